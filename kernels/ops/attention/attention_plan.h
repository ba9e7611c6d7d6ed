/* Attention plan: how the cached keys of the sequences that decode are divided into KV splits, once a step for
 * all its layers.
 *
 * A split is a run of a sequence's cached keys, which one block (decode_attention_sm90.h) reads for each of the key
 * heads. Where a sequence is split depends on its own length and the shape, never on the other sequences. Splits are
 * listed longest first, so that dealing them out in order leaves little to wait for at the end.
 *
 *   plan   [1 + batch slots * most]: plan[0].row is the number of splits, which follow
 *   turns  [batch_slots][head_dim / 2] (cos, sin) of RoPE at the batch slot's position
 *
 * A model whose layers differ in window or RoPE has a plan and turns for each kind of layer. With a window, the
 * first split of a sequence begins at the tile that has the first key seen, so it may begin with keys that are hidden.
 *
 * There is no CPU reference: on the CPU a sequence is one split.
 *
 * In a verify step each of a sequence's rows is split as if it were the only one: the keys of the sequence's rows
 * before it count as cached keys. Neighbours that are split alike, which differ in their last split's length alone,
 * share their splits, so that their keys are read once.
 *
 * E15. The kernel that makes the plan lets no other start before it has ended. So attention may read, before its own
 * wait, the plan, the block table, and keys and values of earlier steps, but nothing that another kernel of this step
 * writes. In a verify step, keys and values of this step lie behind those of earlier ones (append_kv.h): who copies
 * tiles waits before the first tile that has a cell of theirs, whether the row sees the cell or not.
 * E16. Where decode attention splits a row's keys depends on the row's position and the shape alone. Within a split the
 * order of tiles is fixed, and splits are combined in order. So a row's output does not depend on which block took
 * which split, nor on the other sequences, nor on whether the keys before it are of earlier steps or of its own: with
 * the same limits, a verify step and one decode step after the other give the same bits.
 */
#ifndef BLINK_OPS_ATTENTION_ATTENTION_PLAN_H
#define BLINK_OPS_ATTENTION_ATTENTION_PLAN_H

#include "kv_tile.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSplitPlanThreads = 1024;
constexpr uint32_t kSlotThreads = 4; /* threads that work on one batch slot */

/* Keys first.. first + keys - 1 of a row's sequence; the last of its n_splits splits also has the row's own key. `row`:
 * its batch slot, and its token, which has the same index where sequences decode (step.h). `sharing`: so many rows,
 * from that one on, share the split, of which they see as many keys, but for the last split, where `keys` are the last
 * row's and each row before it sees one less; in the lower half, the number of the split's tiles that hold nothing but
 * keys of earlier steps. */
struct alignas(16) KvSplit {
  uint32_t row, sharing, sequence, position;
  uint32_t first, keys, index, n_splits;
};

/* A sequence's cached keys are divided into `usual` splits, of at least `least` and at most `longest` keys, but never
 * into more than `most`. */
struct KvSplitLimits {
  uint32_t usual, least, longest, most;

  __device__ __forceinline__ uint32_t splits(uint32_t n_keys) const {
    const uint32_t share = max(least, min(longest, (n_keys + usual - 1) / usual));
    return max(1u, min(most, (n_keys + share - 1) / share));
  }
  /* The keys of each of n splits except the last. */
  static __device__ __forceinline__ uint32_t keys(uint32_t n_keys, uint32_t n) {
    return max(1u, ((n_keys + n - 1) / n + kTileKeys - 1) / kTileKeys) * kTileKeys;
  }
};

/* Where the cached keys begin that the new token at `position` needs: at a tile, if it needs any. */
__device__ __forceinline__ uint32_t first_needed(uint32_t position, uint32_t window) {
  const uint32_t seen = first_seen(position, window);
  return seen == position ? position : seen / kTileKeys * kTileKeys;
}

/* How the cached keys of a row are split. */
struct RowSplits {
  uint32_t first, keys, n; /* the first key; of each split but the last; splits */

  __device__ __forceinline__ RowSplits(const KvSplitLimits& limits, uint32_t position, uint32_t window)
      : first(first_needed(position, window)) {
    const uint32_t n_keys = position - first;
    keys = KvSplitLimits::keys(n_keys, limits.splits(n_keys));
    n = max(1u, (n_keys + keys - 1) / keys); /* rounding up may have left nothing for the last */
  }
  __device__ __forceinline__ bool is_like(const RowSplits& other) const {
    return first == other.first && keys == other.keys && n == other.n;
  }
};

/* Lists the splits; called by one block with shared memory for two words a batch slot. At most `most_sharing` rows
 * share splits: of the sequence's rows, as many from the first on, as many from there on and so on. */
__device__ __forceinline__ void split_sequences(const struct blink_step_set& set, const KvSplitLimits& limits,
                                                uint32_t window, uint32_t most_sharing, KvSplit* plan) {
  const uint32_t batch_size = set.head->n_decode, member = threadIdx.x % kSlotThreads;
  uint32_t *splits = dynamic_shared(), *keys = splits + batch_size;
  for (uint32_t i = threadIdx.x; i < batch_size; i += kSplitPlanThreads) {
    const uint32_t position = set.token_position[i];
    const RowSplits mine(limits, position, window);
    const bool begins = (i - set.batch_first[i]) % most_sharing == 0;
    const bool shares = !begins && mine.is_like(RowSplits(limits, position - 1, window));
    keys[i] = mine.keys, splits[i] = shares ? 0 : mine.n;
  }
  __syncthreads();
  for (uint32_t base = 0; base < batch_size; base += kSplitPlanThreads / kSlotThreads) {
    const uint32_t i = base + threadIdx.x / kSlotThreads;
    const bool used = i < batch_size;
    const uint32_t mine = used ? keys[i] : 0, first_row = used ? set.batch_first[i] : 0;
    const uint32_t position = used ? set.token_position[i] : 0, sequence = used ? set.token_sequence[i] : 0;
    const uint32_t earlier = used ? set.token_position[first_row] : 0; /* keys of earlier steps */
    uint32_t n_rows = 1;
    while (used && n_rows < most_sharing && i + n_rows < batch_size && splits[i + n_rows] == 0) ++n_rows;
    uint32_t before = 0, total = 0; /* splits of the batch slots that come first, and of all */
    for (uint32_t j = member; j < batch_size; j += kSlotThreads) {
      total += splits[j];
      if (keys[j] > mine || (keys[j] == mine && j < i)) before += splits[j];
    }
#pragma unroll
    for (uint32_t offset = 1; offset < kSlotThreads; offset *= 2) {
      before += __shfl_xor_sync(0xffffffffu, before, int(offset));
      total += __shfl_xor_sync(0xffffffffu, total, int(offset));
    }
    if (i == 0 && member == 0) plan[0] = {total, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t s = member; used && s < splits[i]; s += kSlotThreads) {
      const uint32_t first = first_needed(position, window) + s * mine;
      const uint32_t n_keys = min(mine, position + n_rows - 1 - first);
      const uint32_t earlier_tiles = earlier > first ? min(0xffffu, (earlier - first) / kTileKeys) : 0;
      plan[1 + before + s] = {i, n_rows << 16 | earlier_tiles, sequence, position, first, n_keys, s, splits[i]};
    }
  }
  if (batch_size == 0 && threadIdx.x == 0) plan[0] = {};
}

/* grid (1 + ceil(batch slots * head_dim / 2 / kSplitPlanThreads)), block (kSplitPlanThreads), 8 bytes of dynamic shared
 * memory a batch slot: the first block makes the splits, the others the angles. Windowed: sequences see `window` keys,
 * as first_seen() has it; otherwise all. Verifies: `most_sharing` rows may share splits; otherwise none do. The
 * successor does not start early: what starts after this kernel may read the plan before it waits (E15). */
template <bool Windowed = false, bool Verifies = false>
__global__ void __launch_bounds__(kSplitPlanThreads)
    attention_plan_kernel(struct blink_step_set set, KvSplitLimits limits, KvSplit* plan, const RopePair* table,
                          float2* turns, uint32_t head_dim, uint32_t window, uint32_t most_sharing) {
  wait_for_predecessor();
  if (blockIdx.x == 0) {
    split_sequences(set, limits, Windowed ? window : 0, Verifies ? most_sharing : 1, plan);
  } else {
    const uint32_t e = (blockIdx.x - 1) * kSplitPlanThreads + threadIdx.x, batch_slot = e / (head_dim / 2);
    if (batch_slot < set.head->n_decode) {
      const uint32_t position = set.token_position[batch_slot];
      const RopePair pair = table[e % (head_dim / 2)];
      turns[e] = make_float2(pair.cosine(position), pair.sine(position));
    }
  }
  publish();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_ATTENTION_PLAN_H */
