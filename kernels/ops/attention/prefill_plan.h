/* Prefill plan: the prompts of a step, its batch slots from n_decode on, divided into units of work for attention, at
 * most `unit_tokens` consecutive tokens of one batch slot. Made once a step, read by attention in every layer.
 *
 *   plan  [1 + max units]: plan[0].count is the number of units; then the units, those with the most keys first
 *
 * There are at most tokens / unit_tokens + batch slots units.
 *
 * E13. The units of a plan are the tokens of every prompt's batch slot, each once, whatever the batch slots. Neither
 * their order nor which block works on them changes a result: a row of attention adds up its own keys in order of
 * position, in tiles that begin at position 0, and keys that are not there have the weight 0 and the value 0.
 */
#ifndef BLINK_OPS_ATTENTION_PREFILL_PLAN_H
#define BLINK_OPS_ATTENTION_PREFILL_PLAN_H

#include "kernels/primitives/common.h"

namespace blink {

/* Tokens first.. first + count - 1 of the step, of one sequence; the last one attends to `keys` keys, of which earlier
 * steps have put the first `past` into the cache. */
struct alignas(16) PrefillUnit {
  uint32_t sequence, first, count, keys, past;
};

#ifdef __CUDACC__

constexpr uint32_t kPrefillPlanThreads = 512;

/* A batch slot's tokens, and the units that they are divided into: all are full except the last. */
struct PromptChunk {
  uint32_t first, tokens, past; /* past: keys that an earlier step has put into the cache */
  uint32_t units;

  __device__ __forceinline__ PromptChunk(const struct blink_step_set& set, uint32_t batch_slot, uint32_t unit_tokens)
      : first(set.batch_first[batch_slot]),
        tokens(set.batch_last[batch_slot] + 1 - first),
        past(set.token_position[first]),
        units((tokens + unit_tokens - 1) / unit_tokens) {}

  /* Units with more than `keys` keys, or as many if `ties`. */
  __device__ __forceinline__ uint32_t before(uint32_t keys, bool ties, uint32_t unit_tokens) const {
    if (units == 0) return 0; /* its token is another batch slot's (step.h) */
    const uint32_t below = keys > past ? min((keys - past - ties) / unit_tokens, units - 1) : 0;
    return units - 1 - below + (past + tokens >= keys + !ties);
  }
};

/* grid (1), block (kPrefillPlanThreads): a warp a batch slot. */
__global__ void prefill_plan_kernel(struct blink_step_set set, PrefillUnit* plan, uint32_t unit_tokens) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t begin = set.head->n_decode, batch_size = set.head->batch_size;
  for (uint32_t l = begin + threadIdx.x / 32; l < batch_size; l += kPrefillPlanThreads / 32) {
    const PromptChunk chunk(set, l, unit_tokens);
    for (uint32_t u = threadIdx.x % 32; u < chunk.units; u += 32) {
      const uint32_t done = u * unit_tokens, count = min(unit_tokens, chunk.tokens - done);
      const uint32_t keys = chunk.past + done + count;
      uint32_t rank = 0;
      for (uint32_t other = begin; other < batch_size; ++other)
        rank += PromptChunk(set, other, unit_tokens).before(keys, other < l, unit_tokens);
      plan[1 + rank] = {set.batch_sequence[l], chunk.first + done, count, keys, chunk.past};
    }
  }
  if (threadIdx.x != 0) return;
  uint32_t total = 0;
  for (uint32_t l = begin; l < batch_size; ++l) total += PromptChunk(set, l, unit_tokens).units;
  plan[0] = {0, 0, total, 0, 0};
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_PREFILL_PLAN_H */
