/* Attention plan: how the rows that decode are cut into pieces of work, once a step for all its layers.
 *
 * A piece is a run of a row's cached keys, which one block (attention_stream.h) reads for each of the key heads. Where
 * a row is cut depends on its own length and the shape, never on the other rows; pieces are listed longest first, so
 * that dealing them out in order leaves little to wait for at the end.
 *
 *   plan   [1 + lanes * most]: plan[0].lane is the number of pieces, which follow
 *   turns  [lanes][head_dim / 2] (cos, sin) of RoPE at the lane's position
 *
 * A model whose layers differ in window or RoPE has a plan and turns for each kind of layer. With a window, a row's
 * keys are cut from the tile on that has the first one seen: its first piece may begin with keys that are hidden.
 *
 * There is no CPU twin: on the CPU a row is one piece.
 */
#ifndef BLINK_OPS_ATTENTION_PLAN_H
#define BLINK_OPS_ATTENTION_PLAN_H

#include "attention_tile.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kCutThreads = 1024;
constexpr uint32_t kLaneThreads = 4; /* that work on a lane */

/* Keys first.. first + keys - 1 of a row; the last of its n_splits pieces also has the step's own key. */
struct alignas(16) AttentionPiece {
  uint32_t lane, token, row, position;
  uint32_t first, keys, split, n_splits;
};

/* A row's cached keys are cut into `usual` pieces, of at least `least` and at most `longest` keys, but never into more
 * than `most`. */
struct AttentionCut {
  uint32_t usual, least, longest, most;

  __device__ __forceinline__ uint32_t pieces(uint32_t n_keys) const {
    const uint32_t share = max(least, min(longest, (n_keys + usual - 1) / usual));
    return max(1u, min(most, (n_keys + share - 1) / share));
  }
  /* Keys of each of n pieces but the last. */
  static __device__ __forceinline__ uint32_t keys(uint32_t n_keys, uint32_t n) {
    return max(1u, ((n_keys + n - 1) / n + kTileKeys - 1) / kTileKeys) * kTileKeys;
  }
};

/* Where the cached keys begin that the new token at `position` needs: at a tile, if it needs any. */
__device__ __forceinline__ uint32_t first_needed(uint32_t position, uint32_t window) {
  const uint32_t seen = first_seen(position, window);
  return seen == position ? position : seen / kTileKeys * kTileKeys;
}

/* The pieces, by one block with shared memory for two words a lane. */
__device__ __forceinline__ void cut_rows(const struct blink_step_set& set, const AttentionCut& cut, uint32_t window,
                                         AttentionPiece* plan) {
  const uint32_t n_lanes = set.head->n_decode, member = threadIdx.x % kLaneThreads;
  uint32_t *pieces = dynamic_shared(), *keys = pieces + n_lanes;
  for (uint32_t i = threadIdx.x; i < n_lanes; i += kCutThreads) {
    const uint32_t position = set.token_position[set.lane_last[i]];
    const uint32_t n_keys = position - first_needed(position, window);
    keys[i] = AttentionCut::keys(n_keys, cut.pieces(n_keys));
    pieces[i] = max(1u, (n_keys + keys[i] - 1) / keys[i]); /* rounding up may have left nothing for the last */
  }
  __syncthreads();
  for (uint32_t base = 0; base < n_lanes; base += kCutThreads / kLaneThreads) {
    const uint32_t i = base + threadIdx.x / kLaneThreads;
    const bool used = i < n_lanes;
    const uint32_t mine = used ? keys[i] : 0, token = used ? set.lane_last[i] : 0;
    const uint32_t position = used ? set.token_position[token] : 0, row = used ? set.token_row[token] : 0;
    uint32_t before = 0, total = 0; /* pieces of the lanes that come first, and of all */
    for (uint32_t j = member; j < n_lanes; j += kLaneThreads) {
      total += pieces[j];
      if (keys[j] > mine || (keys[j] == mine && j < i)) before += pieces[j];
    }
#pragma unroll
    for (uint32_t offset = 1; offset < kLaneThreads; offset *= 2) {
      before += __shfl_xor_sync(0xffffffffu, before, int(offset));
      total += __shfl_xor_sync(0xffffffffu, total, int(offset));
    }
    if (i == 0 && member == 0) plan[0] = {total, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t s = member; used && s < pieces[i]; s += kLaneThreads) {
      const uint32_t first = first_needed(position, window) + s * mine;
      plan[1 + before + s] = {i, token, row, position, first, min(mine, position - first), s, pieces[i]};
    }
  }
  if (n_lanes == 0 && threadIdx.x == 0) plan[0] = {};
}

/* grid (1 + ceil(lanes * head_dim / 2 / kCutThreads)), block (kCutThreads), 8 bytes of dynamic shared memory a lane:
 * the first block cuts, the others turn. Windowed: rows see `window` keys, as first_seen() has it; otherwise all. The
 * successor does not start early: what starts after this kernel may read the plan before it waits (E15). */
template <bool Windowed = false>
__global__ void __launch_bounds__(kCutThreads)
    attention_plan_kernel(struct blink_step_set set, AttentionCut cut, AttentionPiece* plan, const RopePair* table,
                          float2* turns, uint32_t head_dim, uint32_t window) {
  wait_for_predecessor();
  if (blockIdx.x == 0) {
    cut_rows(set, cut, Windowed ? window : 0, plan);
  } else {
    const uint32_t e = (blockIdx.x - 1) * kCutThreads + threadIdx.x, lane = e / (head_dim / 2);
    if (lane < set.head->n_decode) {
      const uint32_t position = set.token_position[set.lane_last[lane]];
      const RopePair pair = table[e % (head_dim / 2)];
      turns[e] = make_float2(pair.cosine(position), pair.sine(position));
    }
  }
  publish();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_PLAN_H */
