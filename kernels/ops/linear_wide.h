/* Linear for some dozens of rows: y = x w^T at the speed of the memory. CPU twin: linear.h.
 *
 *   x  [m][n_in] half, m at most Columns
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kStreamSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the product: StreamOutput of linear_stream.h (E18)
 *
 * The weights are the 64-row operand of the warpgroup's instructions, the rows of x the other. A tile is up to 256
 * rows of w, for kStreamSilu 8 gate rows and their 8 up rows in turn; a block goes through k in stages of panels of 64
 * columns, of the tile and of x, which one warp copies into a ring in shared memory. Where tiles are fewer than
 * multiprocessors, a cluster of blocks splits k and adds up in the order of its blocks.
 *
 * A stage is copied as soon as there is room, across tiles and, before the predecessor has ended, across kernels: where
 * two blocks fit a multiprocessor, the second is the next kernel's, whose ring fills meanwhile.
 */
#ifndef BLINK_OPS_LINEAR_WIDE_H
#define BLINK_OPS_LINEAR_WIDE_H

#include "wide_end.h"
#include "wide_ring.h"

#ifdef __CUDACC__

namespace blink {

/* The sum of the cluster's fragments: the ring is free for them, since a cluster has one tile. */
template <uint32_t Fragments, typename End>
__device__ __forceinline__ void add_cluster(const WidePart& part, uint32_t splits, const float4* fragments,
                                            const End& end) {
#pragma unroll 1
  for (uint32_t f = part.rank; f < Fragments; f += splits) {
    float4 v[kWideMaxSplits], sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (uint32_t s = 0; s < kWideMaxSplits; ++s)
      if (s < splits) v[s] = load_of_block(fragments + f * kWideMembers + threadIdx.x, s);
#pragma unroll
    for (uint32_t s = 0; s < kWideMaxSplits; ++s)
      if (s < splits) sum.x += v[s].x, sum.y += v[s].y, sum.z += v[s].z, sum.w += v[s].w;
    end.take(part.tile, f, sum);
  }
  end.template store_squares<Fragments>(part.tile, part.rank, splits);
}

/* The warpgroup's part of a tile: acc += w x^T over the block's stages. A stage is given back as soon as it has been
 * used: what is in flight counts, not what the tensor cores could do meanwhile. */
template <typename Half, int Columns, int Tiles>
__device__ __forceinline__ void multiply_tile(float (&acc)[Tiles][Columns / 2], uint32_t n_stages, uint32_t panels,
                                              const WideRing& w, const WideRing& x, RingTurn& w_turn,
                                              RingTurn& x_turn) {
#pragma unroll 1
  for (uint32_t stage = 0; stage < n_stages; ++stage) {
    barrier_wait(w.full + w_turn.slot, w_turn.parity);
    barrier_wait(x.full + x_turn.slot, x_turn.parity);
#pragma unroll 1
    for (uint32_t p = 0; p < panels; ++p) {
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

/* grid (cut.splits, clusters), clusters of cut.splits blocks, block (kWideThreads); n_in a multiple of 8. Tiles: 64
 * times it covers a tile's rows; the rings are followed by as much space as 64 * Tiles rows reach beyond a panel. */
template <typename Half, int Output, int Columns, int Tiles>
__global__ void __launch_bounds__(kWideThreads, 2)
    linear_wide_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map, void* y,
                       const __grid_constant__ WideCut cut, const __grid_constant__ WideNorm norm) {
  constexpr uint32_t kFragments = Tiles * Columns / 8;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(dynamic_shared());
  float *scale = reinterpret_cast<float*>(barriers + 4 * kWideMaxSlots), *squares = scale + kWideMaxColumns;
  char* data = reinterpret_cast<char*>(dynamic_shared()) + kWideRingStart;
  const WideRing w(data, barriers, cut.w_slots, cut.tile_rows, cut.panels);
  const WideRing x(data + cut.w_slots * w.stage_bytes, barriers + 2 * kWideMaxSlots, cut.x_slots, Columns, cut.panels);
  const WidePart part(cut);
  const WideEnd<Half, Output, Columns> end{cut, norm, y, scale, squares};
  allow_successor();
  if (threadIdx.x == 0) {
    w.init();
    x.init();
    barrier_init_done();
  }
  __syncthreads();
  if (threadIdx.x == kWideMembers)
    copy_stages(w, w_map, part, cut.panels, cut.tile_rows, Output == kStreamSilu, evict_first());
  if (threadIdx.x == kWideMembers + 32) prefetch_map(x_map);
  wait_for_predecessor();
  if (threadIdx.x == kWideMembers + 32) copy_stages(x, x_map, part, cut.panels, 0, false, evict_last());
  if (threadIdx.x < kWideMembers) {
    if (norm.sums_in) end.load_scales();
    RingTurn w_turn, x_turn;
    for (uint32_t t = 0; t < part.n_tiles; ++t) {
      const uint32_t tile = part.tile + t * part.step;
      float acc[Tiles][Columns / 2];
#pragma unroll
      for (uint32_t i = 0; i < Tiles * Columns / 2; ++i) acc[i / (Columns / 2)][i % (Columns / 2)] = 0.0f;
      multiply_tile<Half, Columns, Tiles>(acc, part.n_stages, cut.panels, w, x, w_turn, x_turn);
      if (cut.splits != 1) group_sync(1, kWideMembers); /* every warp has read the rings */
#pragma unroll
      for (uint32_t f = 0; f < kFragments; ++f) {
        const float* v = acc[f / (Columns / 8)] + f % (Columns / 8) * 4;
        const float4 fragment = make_float4(v[0], v[1], v[2], v[3]);
        if (cut.splits == 1)
          end.take(tile, f, fragment);
        else
          reinterpret_cast<float4*>(data)[f * kWideMembers + threadIdx.x] = fragment;
      }
      if (cut.splits == 1) end.template store_squares<kFragments>(tile, 0, 1);
    }
  }
  if (cut.splits == 1) return;
  __syncwarp();
  cluster_meet();
  if (threadIdx.x < kWideMembers) add_cluster<kFragments>(part, cut.splits, reinterpret_cast<float4*>(data), end);
  cluster_arrive(); /* no block ends while another reads its shared memory */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_LINEAR_WIDE_H */
