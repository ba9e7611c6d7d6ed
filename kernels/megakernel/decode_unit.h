/* Units of the megakernel's attention: which part of it a block works on (decode_attention.h). */
#ifndef BLINK_MEGAKERNEL_DECODE_UNIT_H
#define BLINK_MEGAKERNEL_DECODE_UNIT_H

#include "kernels/ops/attention/kv_tile.h"
#include "kernels/ops/attention/rope.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kMinSplitKeys = 64; /* a split shorter than this is not worth a block */

/* How a sequence's cached keys are split over at most `most` blocks, where `most` is at most kMaxSplits. */
struct Splits {
  uint32_t keys, used; /* keys of a split; splits */

  __device__ __forceinline__ Splits(uint32_t n_keys, uint32_t most) {
    const uint32_t share = (n_keys + most - 1) / most;
    keys = max(kMinSplitKeys, (share + kTileKeys - 1) / kTileKeys * kTileKeys);
    used = max(1u, (n_keys + keys - 1) / keys);
  }
};

/* What a block works on: up to Group query heads, from `head` on, of one key head and one batch slot, and one split of
 * the batch slot's keys. */
struct DecodeUnit {
  uint32_t token, sequence, position, kv_head, member, head, n_queries, index, split;
  Splits splits;

  /* `group` counts the groups of a batch slot, of which each key head has ceil(ratio / group_size). */
  __device__ __forceinline__ DecodeUnit(const struct blink_step_set& set, uint32_t n_heads, uint32_t n_kv_heads,
                                        uint32_t group_size, uint32_t batch_slot, uint32_t group, uint32_t of_split,
                                        uint32_t most_splits)
      : token(set.batch_last[batch_slot]),
        sequence(set.token_sequence[token]),
        position(set.token_position[token]),
        split(of_split),
        splits(position, most_splits) {
    const uint32_t ratio = n_heads / n_kv_heads, groups = (ratio + group_size - 1) / group_size;
    kv_head = group / groups;
    member = group % groups * group_size;
    head = kv_head * ratio + member;
    n_queries = min(group_size, ratio - member);
    index = batch_slot * n_kv_heads * groups + group;
  }

  /* Whether the unit has work: the sequence's cached keys may need fewer splits than there are units for. */
  __device__ __forceinline__ bool exists() const { return split < splits.used; }
  __device__ __forceinline__ bool takes_new() const { return split + 1 == splits.used; }
  __device__ __forceinline__ uint32_t first_key(uint32_t warp) const { return split * splits.keys + warp * kTileKeys; }
  __device__ __forceinline__ uint32_t end_key() const { return min(position, (split + 1) * splits.keys); }
};

/* A unit in shared memory, with all that is the same in every layer. It is kept because computing it takes two loads,
 * one after the other. */
template <int HeadDim>
struct __align__(16) PreparedUnit {
  float4 turn[HeadDim / 4]; /* cosine and sine of dimensions 2 i and 2 i + 1 */
  DecodeUnit unit;

  /* Called by the whole block, which must synchronise before it uses the unit. */
  __device__ __forceinline__ void prepare(const DecodeUnit& of_block, const RopePair* table) {
    const uint32_t t = threadIdx.x;
    if (t == 0) unit = of_block;
    if (t >= HeadDim / 4) return;
    const RopePair low = table[2 * t], high = table[2 * t + 1];
    const uint32_t position = of_block.position;
    turn[t] = make_float4(low.cosine(position), low.sine(position), high.cosine(position), high.sine(position));
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_DECODE_UNIT_H */
