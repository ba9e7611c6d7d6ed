/* Where a batch slot's answer stands in its grammar (ringbuffer/grammar.h), and which tokens may come next: shared by
 * the sampler and its reference.
 *
 * The state that is kept is that of the answer without its last token: a step walks through the token that the step
 * before has sampled, and through the drafts before its own row, which costs nothing where it waits for its logits
 * anyway. The first step that samples for a sequence, which is one that ends a prompt, walks through all of the answer
 * that there is: a paused request goes on where it was, from its tokens alone. Every row keeps its state. What a
 * rejected draft has left is overwritten before it is read: a place is read by the step whose known token follows it.
 */
#ifndef BLINK_OPS_SAMPLING_ANSWER_GRAMMAR_H
#define BLINK_OPS_SAMPLING_ANSWER_GRAMMAR_H

#include "ringbuffer/grammar_walk.h"
#include "token_weight.h"

namespace blink {

BLINK_HD Grammar grammar_of(const struct blink_tables& tables, const Sequence& sequence) {
  return Grammar(tables.grammars + tables.grammar_at[sequence.index]);
}

/* The place of the state with so many tokens of the answer. */
BLINK_HD struct blink_grammar_state& state_at(const struct blink_tables& tables, const Sequence& sequence,
                                              uint32_t answered) {
  return tables.grammar_states[BLINK_GRAMMAR_STATES * sequence.index + answered % BLINK_GRAMMAR_STATES];
}

/* Whether a token ends the answer where it may end, whatever its bytes are. Where an answer goes on behind one, it
 * stands where it stood. */
BLINK_HD bool is_end(const struct blink_tables& tables, const Sequence& sequence, uint32_t token) {
  for (uint32_t i = 0; i < tables.n_eos; ++i)
    if (token == tables.eos[i]) return true;
  for (uint32_t i = 0; i < sequence.params.n_stop_ids; ++i)
    if (token == sequence.params.stop_ids[i]) return true;
  return false;
}

/* False if the walk has died. */
BLINK_HD bool step_token(const struct blink_vocabulary& vocabulary, uint32_t token, GrammarWalk& walk) {
  const uint32_t first = vocabulary.first[token];
  return walk.step_all(vocabulary.bytes + first, vocabulary.first[token + 1] - first);
}

#ifndef __CUDACC__

/* Where the answer stands now. `begins`: no step has sampled for this sequence before. */
inline void find_state(const struct blink_tables& tables, const Sequence& sequence, bool begins,
                       struct blink_grammar_state& now) {
  const Grammar grammar = grammar_of(tables, sequence);
  struct blink_grammar_state from;
  uint32_t walked = 0;
  if (begins) {
    begin_answer(grammar, from);
  } else {
    walked = sequence.answered() - 1 - sequence.drafts;
    from = state_at(tables, sequence, walked);
  }
  PushedStates pushed;
  GrammarWalk walk(grammar, from, pushed);
  for (uint32_t i = sequence.params.prompt_tokens + walked; i < sequence.length; ++i)
    if (!is_end(tables, sequence, sequence.tokens[i])) step_token(tables.vocabulary, sequence.tokens[i], walk);
  walk.put(now);
}

/* Whether a token may come next. */
inline bool allows(const struct blink_tables& tables, const Sequence& sequence, const struct blink_grammar_state& now,
                   uint32_t token) {
  const Grammar grammar = grammar_of(tables, sequence);
  PushedStates pushed;
  GrammarWalk walk(grammar, now, pushed);
  if (is_end(tables, sequence, token)) return sequence.may_end() && walk.may_end();
  const bool has_bytes = tables.vocabulary.first[token] != tables.vocabulary.first[token + 1];
  return has_bytes && step_token(tables.vocabulary, token, walk);
}

#endif /* !__CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_ANSWER_GRAMMAR_H */
