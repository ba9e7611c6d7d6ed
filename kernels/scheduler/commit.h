/* Commit: the results of a completed step are taken. Tokens, and the log-probabilities that were asked for, go into the
 * ring; requests go on or end, and sequences that have ended leave the batch. This is what the next plan needs to know.
 * Everything else is concluded later (conclude.h), also that frontends are shown how far their requests are (R2): the
 * next step may be waiting, and that write waits until all others have crossed PCIe.
 */
#ifndef BLINK_SCHEDULER_COMMIT_H
#define BLINK_SCHEDULER_COMMIT_H

#include "../../ringbuffer/words.h"
#include "clock.h"
#include "drafts.h"
#include "life.h"
#include "pages.h"
#include "requests.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class Commit : private Tables {
 public:
  BLINK_FN Commit(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                  PagePool<P>& pool, Drafts<P>& drafts, Requests<P>& requests, Life<P>& life)
      : Tables(config),
        p_(platform),
        steps_(steps),
        clock_(clock),
        pool_(pool),
        drafts_(drafts),
        requests_(requests),
        life_(life) {}

  BLINK_FN void take_completions(uint64_t completed) {
    if (completed == steps_.committed()) {
      if (steps_.in_flight() && clock_.running_for() > c_.step_timeout_ns) give_up_step(steps_.committed() + 1);
      return;
    }
    if (const uint64_t id = step_run_early(completed)) return life_.fail(BLINK_FAULT_GATE, id);
    while (steps_.committed() < completed && life_.phase() != BLINK_PHASE_FAILED) commit(steps_.commit_next());
    if (steps_.in_flight()) clock_.step_begins();
  }

 private:
  // What a step's results may be beside tokens: nothing that a sampler can have left, or none at all for a request.
  static constexpr uint32_t kBad = 1, kFaulty = 2;

  // The id of a step in flight whose gate gave up, or 0. Such a step has run beside the one before it and may complete
  // first: the completion word then says that both have, whose outputs are worth nothing (E2).
  BLINK_FN uint64_t step_run_early(uint64_t completed) {
    uint64_t found = 0;
    for (uint64_t id = p_.shares_step_sets() ? steps_.launched() : completed;
         p_.thread() == 0 && id > steps_.committed(); --id) {
      if (p_.load(&steps_.set_of(id).head->fault)) found = id;
    }
    return p_.broadcast(found);
  }

  // The running step takes too long. It says itself whether it is in a logits processor: those are other people's code,
  // and may never end.
  BLINK_FN void give_up_step(uint64_t id) {
    uint64_t processor = BLINK_MAX_PROCESSORS;
    for (uint32_t i = 0; p_.thread() == 0 && p_.shares_step_sets() && i < BLINK_MAX_PROCESSORS; ++i) {
      if (p_.load(&steps_.set_of(id).head->processing[i])) processor = i;
    }
    processor = p_.broadcast(processor);
    if (processor < BLINK_MAX_PROCESSORS) return life_.fail(BLINK_FAULT_PROCESSOR, processor);
    life_.fail(BLINK_FAULT_STEP, id);
  }

  BLINK_FN void commit(uint64_t id) {
    const blink_step_set& set = steps_.set_of(id);
    const blink_step_head& head = *set.head;
    if (head.batch_size > head.n_decode) commit_scores(set);
    uint32_t found = 0;
    BLINK_ROLLED
    for (uint32_t batch_slot = p_.thread(); batch_slot < head.batch_size; batch_slot += p_.threads()) {
      const bool decodes = batch_slot < head.n_decode;
      if (decodes ? set.batch_first[batch_slot] == batch_slot : set.batch_emit[batch_slot] == BLINK_EMIT_TOKEN)
        found |= commit_sequence(set, batch_slot, decodes);
    }
    found = p_.reduce(found, Or());
    if (found & kBad) return life_.fail(BLINK_FAULT_TOKEN, id);
    if (found & kFaulty) forget_faulty();
  }

  // Whether a step may have put this where a token is to be.
  BLINK_FN bool is_outcome(uint32_t token) const {
    return token < t_.vocab_size || token == BLINK_NO_TOKEN || token == BLINK_DEAD_END;
  }

  // The keys and values of a request without a token to sample may be no numbers: nobody finds them from now on (S17).
  BLINK_FN void forget_faulty() {
    for (uint32_t i = 0; i < t_.n_sequences; ++i) {
      if (!c_.sequences[i].faulty) continue;
      pool_.forget(pages(i), c_.sequences[i].n_pages);
      p_.sync();
      if (p_.thread() == 0) {
        c_.sequences[i].faulty = 0;
        c_.sequences[i].filled = 0;  // what was to be linked is not
      }
      p_.sync();
    }
  }

  // Takes what a step has found for a sequence, from its first batch slot that samples on: a token, and behind it as
  // many as there are drafts that were accepted (S23). Returns what that means for the step.
  BLINK_FN uint32_t commit_sequence(const blink_step_set& set, uint32_t first, bool decodes) {
    const uint32_t i = set.batch_sequence[first];
    blink_sequence& sequence = c_.sequences[i];
    const uint32_t last = first + (decodes ? sequence.n_drafts : 0);
    if (!is_outcome(set.out_token[first])) return kBad;
    if (sequence.use != BLINK_SEQUENCE_ACTIVE) {
      p_.add(&s_.stats.zombie_rows, uint64_t(1 + last - first));
      return 0;
    }
    uint32_t at = first, position = set.token_position[set.batch_last[first]], reason = BLINK_REASON_NONE;
    BLINK_ROLLED
    for (;; ++at, ++position) {
      if (!is_outcome(set.out_token[at])) return kBad;
      const uint32_t token = drafts_.replayed(i, set.out_token[at]);
      reason = commit_token(set, at, sequence, token);
      if (reason) break;
      const bool accepted = at < last && drafts_.accepts(i, position, at - first, token);
      if (at < last || c_.copied_share) history(i)[position + 1] = token;
      if (!accepted) break;
    }
    const uint32_t fed = position + 1;
    if (sequence.source) drafts_.follow(sequence, at + 1 - first);
    if (last > first) {
      sequence.fed = fed;
      drafts_.learn(sequence, at - first);
    }
    if (reason) {
      requests_.end(sequence.slot, reason);
    } else {
      requests_.go_on(sequence.slot);
    }
    sequence.unshown = 1;
    if (set.out_token[at] == BLINK_NO_TOKEN) {
      sequence.faulty = 1;
      return kFaulty;
    }
    if (c_.prefix_cache && decodes) sequence.filled = fed / t_.page_size;
    return 0;
  }

  // Puts one sampled token into the arena and inline, where the status word that follows makes it visible (R2). Returns
  // why the request ends with it, or BLINK_REASON_NONE.
  BLINK_FN uint32_t commit_token(const blink_step_set& set, uint32_t batch_slot, const blink_sequence& sequence,
                                 uint32_t token) {
    const uint32_t slot = sequence.slot;
    if (token == BLINK_NO_TOKEN) return BLINK_REASON_NUMERICAL_FAULT;
    if (token == BLINK_DEAD_END) return BLINK_REASON_GRAMMAR_DEAD_END;
    blink_request& r = c_.requests[slot];
    tell_logprobs(set, batch_slot, logprobs(slot) + uint64_t(r.generated) * r.logprob_words, r.logprob_words);
    const uint64_t record = output_record(token, r.generated, r.submission);
    p_.store(outputs(slot) + r.generated, record);
    p_.store(&c_.progress[slot].records[r.generated % BLINK_INLINE_RECORDS], record);
    ++r.generated;
    p_.add(&s_.stats.tokens, uint64_t(1));
    return finish_reason(r, t_.params[set.batch_sequence[batch_slot]], token);
  }

  // Tells how likely the prompts' tokens were. All of it is there before a record that publishes it (R2).
  BLINK_FN void commit_scores(const blink_step_set& set) {
    for (uint32_t batch_slot = set.head->n_decode + p_.thread(); batch_slot < set.head->batch_size;
         batch_slot += p_.threads()) {
      if (set.batch_emit[batch_slot] == BLINK_EMIT_LOGPROBS) commit_score(set, batch_slot);
    }
    p_.sync();
  }

  // Of the token behind those that the batch slot has seen.
  BLINK_FN void commit_score(const blink_step_set& set, uint32_t batch_slot) {
    const blink_sequence& sequence = c_.sequences[set.batch_sequence[batch_slot]];
    if (sequence.use != BLINK_SEQUENCE_ACTIVE) return;
    const uint64_t position = set.token_position[set.batch_last[batch_slot]] + 1;
    const uint32_t n = c_.requests[sequence.slot].prompt_logprob_words;
    tell_logprobs(set, batch_slot, prompt_logprobs(sequence.slot) + position * n, n);
  }

  // Never of a sequence that has ended: its request's range may be another's by now.
  BLINK_FN void tell_logprobs(const blink_step_set& set, uint32_t batch_slot, uint64_t* to, uint32_t n) {
    const uint64_t* from = set.out_logprobs + uint64_t(batch_slot) * BLINK_LOGPROB_WORDS;
    BLINK_ROLLED
    for (uint32_t i = 0; i < n; i += kAhead) {
      uint64_t word[kAhead];
      for (uint32_t k = 0; k < kAhead; ++k) word[k] = from[Min()(i + k, n - 1)];
      for (uint32_t k = 0; k < kAhead && i + k < n; ++k) p_.store(to + i + k, word[k]);
    }
  }

  BLINK_FN uint32_t finish_reason(const blink_request& r, const blink_descriptor& d, uint32_t token) const {
    if (r.generated >= d.min_tokens) {
      BLINK_ROLLED
      for (uint32_t i = 0; i < d.n_stop_ids; ++i) {
        if (token == d.stop_ids[i]) return BLINK_REASON_STOP_ID;
      }
      BLINK_ROLLED
      for (uint32_t i = 0; i < t_.n_eos && !(d.flags & BLINK_FLAG_IGNORE_EOS); ++i) {
        if (token == t_.eos[i]) return BLINK_REASON_EOS;
      }
    }
    return r.generated >= r.max_outputs ? BLINK_REASON_LENGTH : BLINK_REASON_NONE;
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  PagePool<P>& pool_;
  Drafts<P>& drafts_;
  Requests<P>& requests_;
  Life<P>& life_;
};

}  // namespace blink

#endif
