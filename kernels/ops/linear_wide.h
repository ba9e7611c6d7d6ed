/* Linear for some dozens of rows: y = x w^T at the speed of the memory. CPU twin: linear.h.
 *
 *   x  [m][n_in] half, m at most Columns
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kStreamSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the product: StreamOutput of linear_stream.h (E18)
 *
 * The weights are the 64-row operand of the warpgroup's instructions, the rows of x the other. A tile is up to 128
 * rows of w, for kStreamSilu 8 gate rows and their 8 up rows in turn; a block goes through k in stages of panels of 64
 * columns, of the tile and of x, which one warp copies into a ring in shared memory. Where tiles are fewer than
 * multiprocessors, a cluster of blocks splits k and adds up in the order of its blocks.
 *
 * A stage is copied as soon as there is room, across tiles and, before the predecessor has ended, across kernels: a
 * block's ring fills as soon as the block has room on a multiprocessor. There must be little code between, since a
 * kernel fetches its code anew, a line after the other.
 */
#ifndef BLINK_OPS_LINEAR_WIDE_H
#define BLINK_OPS_LINEAR_WIDE_H

#include "wide_end.h"
#include "wide_ring.h"

#ifdef __CUDACC__

namespace blink {

/* Fragments f, f + step, ... of a tile, `Batch` at a time so that what their ends load does not wait for each other.
 * sum(f) is a fragment. Rolled up: as code for each, they were up to 60 KB, and every kernel had to fetch its code
 * anew. */
template <uint32_t Batch, typename End, typename Sum>
__device__ __forceinline__ void end_fragments(const End& end, uint32_t tile, uint32_t f, uint32_t step, uint32_t last,
                                              const Sum& sum) {
#pragma unroll 1
  for (; f < last; f += Batch * step) {
    typename End::Before before[Batch];
    float4 v[Batch];
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b * step < last) before[b] = end.load(tile, f + b * step), v[b] = sum(f + b * step);
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b * step < last) end.put(tile, f + b * step, v[b], before[b]);
  }
}

/* The warpgroup's part of a tile: acc += w x^T over the block's stages. A stage is given back as soon as it has been
 * used: what is in flight counts, not what the tensor cores could do meanwhile. */
template <typename Half, int Columns, int Tiles>
__device__ __forceinline__ void multiply_tile(float (&acc)[Tiles][Columns / 2], const WideCut& cut, const WideRing& w,
                                              const WideRing& x, RingTurn& w_turn, RingTurn& x_turn) {
#pragma unroll 1
  for (uint32_t stage = 0; stage < cut.share; ++stage) {
    barrier_wait(w.full + w_turn.slot, w_turn.parity);
    barrier_wait(x.full + x_turn.slot, x_turn.parity);
#pragma unroll 1
    for (uint32_t p = 0; p < cut.panels; ++p) {
      const uint64_t a = matrix_descriptor(w.panel(w_turn.slot, p), kWideAtom, 0),
                     b = matrix_descriptor(x.panel(x_turn.slot, p), kWideAtom, 0);
      products_begin();
#pragma unroll
      for (uint32_t step = 0; step < kWidePanel / 16; ++step)
#pragma unroll
        for (uint32_t t = 0; t < Tiles; ++t)
          product(acc[t], advance(a, 64 * t * kWideRowBytes + 32 * step), advance(b, 32 * step), true, Half());
      products_commit();
    }
    products_wait<0>();
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t) settle(acc[t]);
    if (threadIdx.x % 32 == 0) barrier_arrive(w.empty + w_turn.slot), barrier_arrive(x.empty + x_turn.slot);
    w_turn.next(w.n_slots);
    x_turn.next(x.n_slots);
  }
}

/* A thread's part of 64 rows, where it finds fragment f again at [f * kWideMembers]. */
template <int N>
__device__ __forceinline__ void keep_fragments(float4* kept, const float (&v)[N]) {
#pragma unroll
  for (uint32_t f = 0; f < N / 4; ++f)
    kept[f * kWideMembers] = make_float4(v[4 * f], v[4 * f + 1], v[4 * f + 2], v[4 * f + 3]);
}

/* What becomes of a tile: by 64 rows if it is the block's alone, else by what the blocks of the cluster have kept of
 * it, of which each sums up every Splits-th fragment. `kept`: of the block. */
template <int Columns, int Tiles, int Splits, typename End>
__device__ __forceinline__ void end_tile(float (&acc)[Tiles][Columns / 2], uint32_t tile, float4* kept,
                                         const End& end) {
  constexpr uint32_t kGroups = Columns / 8, kFragments = Tiles * kGroups;
  float4* own = kept + threadIdx.x;
  if constexpr (Splits == 1) {
#pragma unroll 1
    for (uint32_t t = 0; t < Tiles; ++t) {
      keep_fragments(own, acc[0]);
      const auto sum = [=](uint32_t f) { return own[(f - t * kGroups) * kWideMembers]; };
      end_fragments<End::kBatch>(end, tile, t * kGroups, 1, (t + 1) * kGroups, sum);
#pragma unroll
      for (uint32_t u = 1; u < Tiles; ++u)
#pragma unroll
        for (uint32_t i = 0; i < Columns / 2; ++i) acc[u - 1][i] = acc[u][i];
    }
    end.template store_squares<kFragments>(tile, 0, 1);
  } else {
    group_sync(1, kWideMembers); /* every warp has read the rings */
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t) keep_fragments(own + t * kGroups * kWideMembers, acc[t]);
    cluster_meet();
    const auto sum = [=](uint32_t f) {
      float4 v[Splits], all = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (uint32_t s = 0; s < Splits; ++s) v[s] = load_of_block(own + f * kWideMembers, s);
#pragma unroll
      for (uint32_t s = 0; s < Splits; ++s) all.x += v[s].x, all.y += v[s].y, all.z += v[s].z, all.w += v[s].w;
      return all;
    };
    end_fragments<End::kBatch>(end, tile, blockIdx.x, Splits, kFragments, sum);
    end.template store_squares<kFragments>(tile, blockIdx.x, Splits);
  }
}

/* grid (Splits, clusters), clusters of Splits blocks, which have one tile each if they are more than one; block
 * (kWideThreads); n_in a multiple of 8. Tiles: 64 times it covers a tile's rows; the rings are followed by as much
 * space as 64 * Tiles rows reach beyond a panel. */
template <typename Half, int Output, int Columns, int Tiles, int Splits>
__global__ void __launch_bounds__(kWideThreads, 2)
    linear_wide_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map, void* y,
                       const __grid_constant__ WideCut cut, const __grid_constant__ WideNorm norm) {
  uint64_t* barriers = reinterpret_cast<uint64_t*>(dynamic_shared());
  float *scale = reinterpret_cast<float*>(barriers + 4 * kWideMaxSlots), *squares = scale + kWideMaxColumns;
  char* behind = reinterpret_cast<char*>(dynamic_shared()) + kWideRingStart;
  /* Fragments: those of 64 rows in front of the rings, or those of a cluster's only tile in their place. */
  float4* kept = reinterpret_cast<float4*>(behind);
  char* data = behind + (Splits == 1 ? sizeof(float4) * kWideMembers * (Columns / 8) : 0);
  const WideRing w(data, barriers, cut.w_slots, cut.tile_rows, cut.panels);
  const WideRing x(data + cut.w_slots * w.stage_bytes, barriers + 2 * kWideMaxSlots, cut.x_slots, Columns, cut.panels);
  allow_successor();
  if (threadIdx.x >= kWideMembers) { /* a warp that copies weights, and one that copies x */
    const bool weights = threadIdx.x < kWideMembers + 32;
    const WideRing ring = weights ? w : x;
    ring.init();
    group_arrive(2, kWideThreads);
    if (!weights) {
      if (threadIdx.x % 32 == 0) prefetch_map(x_map);
      wait_for_predecessor();
    }
    if (threadIdx.x % 32 == 0)
      copy_stages(ring, weights ? w_map : x_map, cut, weights ? cut.tile_rows : 0, weights && Output == kStreamSilu,
                  weights ? evict_first() : evict_last());
    __syncwarp();
    if (Splits != 1) cluster_meet(); /* as the others do */
  } else {
    const WideEnd<Half, Output, Columns> end{cut, norm, y, scale, squares};
    group_sync(2, kWideThreads); /* the rings' barriers are there */
    wait_for_predecessor();
    if (norm.sums_in) end.load_scales();
    RingTurn w_turn, x_turn;
#pragma unroll 1
    for (uint32_t tile = blockIdx.y; tile < cut.n_tiles; tile += gridDim.y) {
      float acc[Tiles][Columns / 2];
#pragma unroll
      for (uint32_t i = 0; i < Tiles * Columns / 2; ++i) acc[i / (Columns / 2)][i % (Columns / 2)] = 0.0f;
      multiply_tile<Half, Columns, Tiles>(acc, cut, w, x, w_turn, x_turn);
      end_tile<Columns, Tiles, Splits>(acc, tile, kept, end);
    }
  }
  if (Splits == 1) return;
  cluster_arrive(); /* no block ends while another reads its shared memory */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_LINEAR_WIDE_H */
