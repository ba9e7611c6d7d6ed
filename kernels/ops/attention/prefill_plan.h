/* Prefill plan: the prompts of a step, its batch slots from n_decode on, divided into units of work for attention, at
 * most `unit_tokens` consecutive tokens of one batch slot. Made once a step, read by attention in every layer.
 *
 * The keys of a unit are divided into parts, which different blocks work on, if there are many of them and few units:
 * a step with few prompt tokens has fewer units than there are blocks, and a unit of a long prompt would have to go
 * through all of its keys alone.
 *
 *   plan  [1 + max units * most parts]: plan[0].count is the number of parts; then the parts, those of the units with
 *         the most keys first, and those of a unit in the order of its keys
 *
 * There are at most tokens / unit_tokens + batch slots units.
 *
 * E13. The units of a plan are the tokens of every prompt's batch slot, each once, whatever the batch slots, and the
 * parts of a unit are its keys, each once. Neither their order nor which block works on them changes a result: within a
 * part a row of attention adds up its own keys in order of position, in tiles that begin at position 0, keys that are
 * not there have the weight 0 and the value 0, and a row's parts are added up in order of position, too. So the result
 * of a row depends on its own query and keys, and on how many parts its unit has. That follows from how many keys the
 * last token of the unit sees, and from `part_keys` and `most` of PrefillCut, which the shape of the step decides.
 */
#ifndef BLINK_OPS_ATTENTION_PREFILL_PLAN_H
#define BLINK_OPS_ATTENTION_PREFILL_PLAN_H

#include "flash_accumulators_sm90.h"

namespace blink {

/* Tokens first.. first + count - 1 of the step, of one sequence; the last one attends to `keys` keys, of which earlier
 * steps have put the first `past` into the cache. Of these keys it is part `part` of `parts`, the tiles of kFlashKeys
 * from first_tile to before end_tile. */
struct alignas(16) PrefillUnit {
  uint32_t sequence, first, count, keys, past, part, parts, first_tile, end_tile;
};

#ifdef __CUDACC__

constexpr uint32_t kPrefillPlanThreads = 512;

/* How a step is divided. A unit has a part for each `part_keys` of its keys, but `most` parts at most. */
struct PrefillCut {
  uint32_t unit_tokens, part_keys, most;

  __device__ __forceinline__ uint32_t parts(uint32_t keys) const {
    return min((keys + part_keys - 1) / part_keys, most);
  }
};

/* A batch slot's tokens, and the units that they are divided into: all are full except the last. */
struct PromptChunk {
  uint32_t first, tokens, past; /* past: keys that an earlier step has put into the cache */
  uint32_t units;

  __device__ __forceinline__ PromptChunk(const struct blink_step_set& set, uint32_t batch_slot, const PrefillCut& cut)
      : first(set.batch_first[batch_slot]),
        tokens(set.batch_last[batch_slot] + 1 - first),
        past(set.token_position[first]),
        units((tokens + cut.unit_tokens - 1) / cut.unit_tokens) {}

  /* The tokens before unit `unit`, which is one of this batch slot's or the end. */
  __device__ __forceinline__ uint32_t done(uint32_t unit, const PrefillCut& cut) const {
    return min(unit * cut.unit_tokens, tokens);
  }

  /* Parts of the last `n` units. */
  __device__ __forceinline__ uint32_t last_parts(uint32_t n, const PrefillCut& cut) const {
    if (cut.most == 1) return n;
    uint32_t sum = 0;
    for (uint32_t u = units - n; u < units; ++u) sum += cut.parts(past + done(u + 1, cut));
    return sum;
  }

  /* Units with more than `keys` keys, or as many if `ties`: the last ones. */
  __device__ __forceinline__ uint32_t before(uint32_t keys, bool ties, const PrefillCut& cut) const {
    if (units == 0) return 0; /* its token is another batch slot's (step.h) */
    const uint32_t below = keys > past ? min((keys - past - ties) / cut.unit_tokens, units - 1) : 0;
    return units - 1 - below + (past + tokens >= keys + !ties);
  }
};

/* grid (1), block (kPrefillPlanThreads): a warp a batch slot. The fields of PrefillCut; `part_keys` is a multiple of
 * kFlashKeys, and three times that at least unless `most` is 1, so that every row of a unit sees keys of every part:
 * a part then has two tiles at least, and the last one begins before the keys of the unit's first token end. */
template <typename = void>
__global__ void prefill_plan_kernel(struct blink_step_set set, PrefillUnit* plan, uint32_t unit_tokens,
                                    uint32_t part_keys, uint32_t most) {
  allow_successor();
  wait_for_predecessor();
  const PrefillCut cut = {unit_tokens, part_keys, most};
  const uint32_t begin = set.head->n_decode, batch_size = set.head->batch_size;
  for (uint32_t l = begin + threadIdx.x / 32; l < batch_size; l += kPrefillPlanThreads / 32) {
    const PromptChunk chunk(set, l, cut);
    for (uint32_t u = threadIdx.x % 32; u < chunk.units; u += 32) {
      const uint32_t done = chunk.done(u, cut), end = chunk.done(u + 1, cut);
      const uint32_t keys = chunk.past + end, parts = cut.parts(keys), tiles = (keys + kFlashKeys - 1) / kFlashKeys;
      uint32_t rank = 0;
      for (uint32_t other = begin; other < batch_size; ++other) {
        const PromptChunk beside(set, other, cut);
        rank += beside.last_parts(beside.before(keys, other < l, cut), cut);
      }
      for (uint32_t part = 0; part < parts; ++part) {
        const uint32_t first_tile = tiles * part / parts, end_tile = tiles * (part + 1) / parts;
        plan[1 + rank + part] = {
            set.batch_sequence[l], chunk.first + done, end - done, keys, chunk.past, part, parts, first_tile, end_tile};
      }
    }
  }
  if (threadIdx.x != 0) return;
  uint32_t total = 0;
  for (uint32_t l = begin; l < batch_size; ++l) {
    const PromptChunk chunk(set, l, cut);
    total += chunk.last_parts(chunk.units, cut);
  }
  plan[0] = {0, 0, total, 0, 0, 0, 0, 0, 0};
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_PREFILL_PLAN_H */
