/* Sample: one token per batch slot from its logits, and, on the GPU, the step's completion.
 *
 *   logits  [batch_slots][vocab] fp32, overwritten: what a grammar masks is left as it is on the GPU, and not read
 *   set.out_token[batch_slot] and history[sequence][position of batch_last + 1] receive the token (step.h)
 *   set.out_logprobs[batch_slot] receives what the request wants to be told: of the token, or of the prompt's next one
 *   where a batch slot is for that (BLINK_EMIT_LOGPROBS)
 *
 * In this order: log-probabilities (log_weight.h), biases, mask and bans (controls.h), repetition penalty over prompt
 * and answer (the CTRL paper's), presence and frequency penalty over the answer (OpenAI's), end and stop ids masked
 * until min_tokens, the request's logits processors (logits_processors.h), what the request's grammar does not allow
 * masked (answer_grammar.h), temperature, min-p, top-k, top-p (vLLM's order), the draw. Temperature 0 is the argmax,
 * ties to the lowest id.
 *
 * NaN counts as minus infinity: it never wins, and has no weight in any sum. A batch slot has no token, BLINK_NO_TOKEN,
 * if after the masks no logit is larger than that: none is a number, or all that are belong to masked tokens. It is at
 * a dead end, BLINK_DEAD_END, if its grammar masks all tokens.
 */
#ifndef BLINK_OPS_SAMPLING_SAMPLE_H
#define BLINK_OPS_SAMPLING_SAMPLE_H

#include "logits_processors.h"
#include "scores.h"
#include "slot_sampler_sm90.h"
#include "token_mask.h"

#ifndef __CUDACC__
#include <optional>
#endif

namespace blink {

#ifndef __CUDACC__

inline void penalise(const Sequence& sequence, const struct blink_tables& tables, float* logits) {
  const struct blink_descriptor& params = sequence.params;
  std::vector<bool> seen(tables.vocab_size);
  if (params.repetition_penalty != 1.0f) {
    for (uint32_t j = 0; j < sequence.length; ++j) {
      const uint32_t t = sequence.tokens[j];
      if (!seen[t]) logits[t] = repeated(logits[t], params.repetition_penalty);
      seen[t] = true;
    }
    seen.assign(tables.vocab_size, false);
  }
  if (params.presence_penalty != 0.0f) {
    for (uint32_t j = params.prompt_tokens; j < sequence.length; ++j) {
      const uint32_t t = sequence.tokens[j];
      if (!seen[t]) logits[t] -= params.presence_penalty;
      seen[t] = true;
    }
  }
  if (params.frequency_penalty != 0.0f)
    for (uint32_t j = params.prompt_tokens; j < sequence.length; ++j)
      logits[sequence.tokens[j]] -= params.frequency_penalty;
  if (sequence.may_end()) return;
  for (uint32_t j = 0; j < tables.n_eos && !sequence.ignores_eos(); ++j) logits[tables.eos[j]] = -INFINITY;
  for (uint32_t j = 0; j < params.n_stop_ids; ++j)
    if (params.stop_ids[j] < tables.vocab_size) logits[params.stop_ids[j]] = -INFINITY;
}

/* Masks what the sequence's grammar does not allow, now that its answer stands at `now`. False: that is everything. */
inline bool constrain(const Sequence& sequence, const struct blink_tables& tables,
                      const struct blink_grammar_state& now, float* logits) {
  bool any = false;
  for (uint32_t t = 0; t < tables.vocab_size; ++t) {
    const bool allowed = allows(tables, sequence, now, t);
    if (!allowed) logits[t] = -INFINITY;
    any = any || allowed;
  }
  return any;
}

/* The token of one batch slot, from its logits as controls, penalties and processors have left them. `begins`: no step
 * has sampled for its sequence before. */
inline uint32_t sample(const Sequence& sequence, const struct blink_tables& tables, float* logits, bool begins) {
  const struct blink_descriptor& params = sequence.params;
  const uint32_t vocab = tables.vocab_size;
  if (params.grammar_words != 0) {
    struct blink_grammar_state& now = state_at(tables, sequence, sequence.answered());
    find_state(tables, sequence, begins, now);
    if (!constrain(sequence, tables, now, logits)) return BLINK_DEAD_END;
  }
  uint32_t best = 0;
  for (uint32_t t = 1; t < vocab; ++t)
    if (order_key(number(logits[t]), t) > order_key(number(logits[best]), best)) best = t;
  if (!is_candidate(number(logits[best]))) return BLINK_NO_TOKEN;
  if (params.temperature == 0.0f) return best;

  Filter filter = make_filter(params, number(logits[best]));
  if (params.top_k != 0 && params.top_k < vocab) filter.max_rank = select_rank(params, filter, false, logits, vocab);
  if (params.top_p < 1.0f) filter.max_rank = select_rank(params, filter, true, logits, vocab);
  uint64_t total = 0;
  for (uint32_t t = 0; t < vocab; ++t) total += filter.weight(logits[t]);
  uint64_t rest = scale_to(random_bits(params.seed, sequence.answered()), total);
  for (uint32_t t = 0; t < vocab; ++t) {
    const uint64_t weight = filter.weight(logits[t]);
    if (rest < weight) return t;
    rest -= weight;
  }
  return best; /* not reached: rest < total */
}

/* Does what one batch slot that emits wants of `logits` [vocab]. */
inline void sample_slot(const struct blink_step_set& set, const struct blink_tables& tables, float* logits,
                        uint32_t batch_slot) {
  const Sequence sequence = sequence_of(set, tables, batch_slot);
  const struct blink_descriptor& params = sequence.params;
  uint64_t* const words = logprobs_of(set, batch_slot);
  if (set.batch_emit[batch_slot] == BLINK_EMIT_LOGPROBS) {
    const Scores scores(logits, tables.vocab_size, params.prompt_logprob_words - 1);
    return scores.put_prompt(words, next_of_prompt(sequence));
  }
  std::optional<Scores> scores;
  if (params.logprob_words) scores.emplace(logits, tables.vocab_size, params.logprob_words - 1);
  const Controls controls(sequence, tables);
  control(controls, sequence, logits, tables.vocab_size);
  penalise(sequence, tables, logits);
  std::vector<float> processed;
  if (params.n_processors) {
    processed.assign(logits, logits + tables.vocab_size);
    process(controls, sequence, tables, *set.head, processed);
  }
  float* const final_logits = params.n_processors ? processed.data() : logits;
  const uint32_t token = sample(sequence, tables, final_logits, batch_slot >= set.head->n_decode);
  if (scores && is_token(token)) scores->put_answer(words, sequence, controls, token, number(logits[token]));
  put_token(set, tables, sequence, batch_slot, token);
}

#else

constexpr uint32_t kSampleSharedBytes = 44 * 1024;

/* grid (blocks of a batch slot, batch slots), in clusters of a batch slot's, block (kSampleThreads), dynamic shared
 * memory of kSampleSharedBytes and a bit for each token of a block. `processed`: [batch_slots][vocab], for what logits
 * processors return; null without. The last batch slot to finish publishes the step: every token is visible to whoever
 * acquires `completed` (E1). What the scheduler has written for the step is read before the wait: one after the other,
 * such reads are late. */
template <class Processors>
__global__ void __launch_bounds__(kSampleThreads, 1)
    sample_kernel(const __grid_constant__ struct blink_step_set set, const __grid_constant__ struct blink_tables tables,
                  float* logits, float* processed) {
  static_assert(sizeof(SampleScratch) <= kSampleSharedBytes, "does not fit");
  static_assert(sizeof(MaskWork) <= sizeof(SelectScratch::received), "does not fit");
  SampleScratch& scratch = *reinterpret_cast<SampleScratch*>(dynamic_shared());
  const uint32_t batch_slot = blockIdx.y;
  struct blink_step_head* head = set.head;
  const uint32_t emits = batch_slot < head->batch_size ? set.batch_emit[batch_slot] : uint32_t(BLINK_EMIT_NOTHING);
  Sequence sequence = {scratch.params, 0, nullptr, 0, 0};
  if (emits) {
    const Sequence given = sequence_of(set, tables, batch_slot);
    constexpr uint32_t kWords = sizeof(struct blink_descriptor) / sizeof(uint32_t);
    if (threadIdx.x < kWords)
      reinterpret_cast<uint32_t*>(&scratch.params)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(&given.params)[threadIdx.x];
    sequence.index = given.index, sequence.tokens = given.tokens, sequence.length = given.length;
    sequence.drafts = given.drafts;
  }
  Selection::clear(scratch.select);
  DsmemExchange exchange(scratch.barriers); /* which has a barrier of the block behind both */
  SampleSlice slice(tables.vocab_size);
  uint32_t* bits = dynamic_shared() + kSampleSharedBytes / sizeof(uint32_t);
  MaskWork& work = *reinterpret_cast<MaskWork*>(scratch.select.received);
  const TokenMask mask(sequence, tables, slice, scratch.mask, work, bits);
  const bool is_held = samples(emits) && scratch.params.grammar_words != 0;
  if (is_held) {
    mask.make(batch_slot >= head->n_decode);
    slice.allowed = bits;
  }
  wait_for_predecessor();
  const bool is_first = slice.rank == 0 && threadIdx.x == 0;
  if (is_first && batch_slot == 0) head->sample_ns = global_ns();
  const auto finish = [&] {
    if (gridDim.y > 1 && arrive(&head->slots_done) != gridDim.y - 1) return;
    if (gridDim.y > 1) head->slots_done = 0;
    head->done_ns = global_ns();
    store_release(tables.completed, head->id);
  };
  cluster_wait(); /* the other blocks have started and can be sent to */
  if (!emits) {
    if (is_first) finish();
    return;
  }
  const Processors processors(set, tables, processed);
  SlotSampler sampler(sequence, tables, logits + uint64_t(batch_slot) * tables.vocab_size, slice, exchange, scratch,
                      processors);
  uint64_t* const words = logprobs_of(set, batch_slot);
  if (emits == BLINK_EMIT_LOGPROBS) return sampler.run_prompt(words, finish);
  sampler.run(words, [&](uint32_t token) {
    if (is_held) mask.keep_state();
    put_token(set, tables, sequence, batch_slot, token);
    finish();
  });
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_SAMPLE_H */
