/* Linear for some dozens of rows: y = x w^T at the speed of the memory. CPU twin: linear.h.
 *
 *   x  [m][n_in] half, m at most Columns
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kStreamSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the product: StreamOutput of linear_stream.h (E18)
 *
 * The weights are the 64-row operand of a warpgroup's instructions, the rows of x the other. A tile is up to 256
 * rows of w, for kStreamSilu 8 gate rows and their 8 up rows in turn; a block goes through k in stages of panels of 64
 * columns, which one warp copies of the tile and another of x, each into a ring in shared memory. Where tiles are fewer
 * than multiprocessors, a cluster of blocks splits k and adds up in the order of its blocks.
 *
 * A stage is copied as soon as there is room, across tiles and, before the predecessor has ended, across kernels: a
 * block's ring fills as soon as the block has room on a multiprocessor. There must be little code between, since a
 * kernel fetches its code anew, a line after the other.
 *
 * E18. Sums are added up in a fixed order: k within a block, then the blocks of a cluster by rank. Each element of the
 * residual is added to once. An output for a row of x depends on that row, on the weights and on the shape alone.
 */
#ifndef BLINK_OPS_LINEAR_WIDE_H
#define BLINK_OPS_LINEAR_WIDE_H

#include "wide_end.h"
#include "wide_mail.h"
#include "wide_ring.h"

#ifdef __CUDACC__

namespace blink {

/* Fragments f to last - 1 of a tile, `Batch` at a time so that what their ends load does not wait for each other;
 * sum(f) is a fragment. Rolled up: as code for each, they were up to 60 KB, and every kernel had to fetch its code
 * anew. */
template <uint32_t Batch, typename End, typename Sum>
__device__ __forceinline__ void end_fragments(const End& end, uint32_t tile, uint32_t f, uint32_t last,
                                              const Sum& sum) {
#pragma unroll 1
  for (; f < last; f += Batch) {
    typename End::Before before[Batch];
    float4 v[Batch];
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b < last) before[b] = end.load(tile, f + b), v[b] = sum(f + b);
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b < last) end.put(tile, f + b, v[b], before[b]);
  }
}

/* A warpgroup's part of a tile, which is 2 * N rows of x: acc += w x^T over the block's stages. A stage is given back
 * as soon as it has been used: what is in flight counts, not what the tensor cores could do meanwhile. */
template <typename Half, int Tiles, int N>
__device__ __forceinline__ void multiply_tile(float (&acc)[Tiles][N], uint32_t group, const WideCut& cut,
                                              const WideRing& w, const WideRing& x, RingTurn& w_turn,
                                              RingTurn& x_turn) {
  const uint32_t columns = group * (2 * N * kWideRowBytes);
#pragma unroll 1
  for (uint32_t stage = 0; stage < cut.share; ++stage) {
    barrier_wait(w.full + w_turn.slot, w_turn.parity);
    barrier_wait(x.full + x_turn.slot, x_turn.parity);
#pragma unroll 1
    for (uint32_t p = 0; p < cut.panels; ++p) {
      const uint64_t a = matrix_descriptor(w.panel(w_turn.slot, p), kWideAtom, 0),
                     b = matrix_descriptor(x.panel(x_turn.slot, p) + columns, kWideAtom, 0);
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

/* A thread's part of 64 rows, where it finds fragment f again at [f * kWarpgroup]. */
template <int N>
__device__ __forceinline__ void keep_fragments(float4* kept, const float (&v)[N]) {
#pragma unroll
  for (uint32_t f = 0; f < N / 4; ++f)
    kept[f * kWarpgroup] = make_float4(v[4 * f], v[4 * f + 1], v[4 * f + 2], v[4 * f + 3]);
}

/* What becomes of a tile that is the block's alone: its outputs, by 64 rows. Of the fragments of each, the warpgroup
 * has those from `mine` on, for which there is room at `kept`. */
template <int Tiles, int N, typename End>
__device__ __forceinline__ void end_tile(float (&acc)[Tiles][N], uint32_t mine, uint32_t tile, float4* kept,
                                         const End& end) {
#pragma unroll 1
  for (uint32_t t = 0; t < Tiles; ++t) {
    keep_fragments(kept, acc[0]);
    const uint32_t first = t * End::kGroups + mine;
    const auto sum = [=](uint32_t f) { return kept[(f - first) * kWarpgroup]; };
    end_fragments<End::kBatch>(end, tile, first, first + N / 4, sum);
#pragma unroll
    for (uint32_t u = 1; u < Tiles; ++u)
#pragma unroll
      for (uint32_t i = 0; i < N; ++i) acc[u - 1][i] = acc[u][i];
  }
  end.store_squares(tile, 0, Tiles * End::kGroups);
}

/* The same of a tile of which each block of the cluster has made a part of the sums, and ends a part. One warpgroup. */
template <int Tiles, int N, typename Mail, typename End>
__device__ __forceinline__ void end_share(const float (&acc)[Tiles][N], uint32_t tile, float4* kept, const Mail& mail,
                                          const End& end) {
  group_sync(1, kWarpgroup); /* every warp has read the rings */
#pragma unroll
  for (uint32_t t = 0; t < Tiles; ++t) keep_fragments(kept + t * (N / 4) * kWarpgroup + threadIdx.x, acc[t]);
  cluster_wait(); /* all blocks have started */
  mail.send(kept);
  const uint32_t first = mail.first(mail.rank()), n = mail.count(mail.rank());
  typename End::Before before[Mail::kShare];
#pragma unroll
  for (uint32_t i = 0; i < Mail::kShare; ++i)
    if (i < n) before[i] = end.load(tile, first + i);
  mail.receive();
#pragma unroll 1
  for (uint32_t i = 0; i < n; ++i) {
    end.put(tile, first + i, mail.sum(kept, i), before[0]);
#pragma unroll
    for (uint32_t u = 1; u < Mail::kShare; ++u) before[u - 1] = before[u];
  }
  end.store_squares(tile, first, first + n);
}

/* grid (Splits, clusters), clusters of Splits blocks, which have one tile each if they are more than one; block
 * (kWideThreads<Columns, Splits>); n_in a multiple of 8. Tiles: 64 times it covers a tile's rows; the rings are
 * followed by as much space as 64 * Tiles rows reach beyond a panel. */
template <typename Half, int Output, int Columns, int Tiles, int Splits>
__global__ void __launch_bounds__(kWideThreads<Columns, Splits>, 2)
    linear_wide_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map, void* y,
                       const __grid_constant__ WideCut cut, const __grid_constant__ WideNorm norm) {
  static_assert(kWideFits<Output, Columns, Tiles>, "the squares would reach into what lies behind them");
  constexpr uint32_t kMembers = kWideMembers<Columns, Splits>, kThreads = kWideThreads<Columns, Splits>;
  using Mail = WideMail<Tiles * Columns / 8, Splits>;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(dynamic_shared());
  float *scale = reinterpret_cast<float*>(barriers + 4 * kWideMaxSlots + 2), *squares = scale + kWideMaxColumns;
  char* behind = reinterpret_cast<char*>(dynamic_shared()) + kWideRingStart;
  /* In front of the rings: fragments of 64 rows, or what other blocks send, which may be ahead. A cluster's only tile
   * is kept where the rings were. */
  constexpr uint32_t kFront = Splits == 1 ? Columns / 8 : (Splits - 1) * Mail::kShare;
  char* data = behind + kFront * kFragmentBytes;
  const Mail mail(barriers + 4 * kWideMaxSlots, behind);
  const WideRing w(data, barriers, cut.w_slots, cut.tile_rows, cut.panels);
  const WideRing x(data + cut.w_slots * w.stage_bytes, barriers + 2 * kWideMaxSlots, cut.x_slots, Columns, cut.panels);
  allow_successor();
  if (threadIdx.x >= kMembers) { /* a warp that copies weights, and one that copies x */
    const bool weights = threadIdx.x < kMembers + 32;
    const WideRing ring = weights ? w : x;
    ring.init(kMembers / 32);
    if (Splits != 1 && threadIdx.x == kMembers) mail.init();
    __syncwarp();
    group_arrive(2, kThreads);
    if (Splits != 1) cluster_arrive();
    if (!weights) {
      if (threadIdx.x % 32 == 0) prefetch_map(x_map);
      wait_for_predecessor();
    }
    if (threadIdx.x % 32 == 0)
      copy_stages(ring, weights ? w_map : x_map, cut, weights ? cut.tile_rows : 0, weights && Output == kStreamSilu,
                  weights ? evict_first() : evict_last());
    __syncwarp();
    if (Splits != 1) cluster_wait();
  } else {
    const WideEnd<Half, Output, Columns, kMembers> end{cut, norm, y, scale, squares};
    if (Splits != 1) cluster_arrive();
    group_sync(2, kThreads); /* the barriers are there */
    end.prefetch_weights(blockIdx.y);
    wait_for_predecessor();
    if (norm.sums_in) end.load_scales();
    constexpr uint32_t kSums = Columns / 2 * kWarpgroup / kMembers;
    const uint32_t group = wide_group<kMembers>(), mine = group * kSums / 4;
    RingTurn w_turn, x_turn;
#pragma unroll 1
    for (uint32_t tile = blockIdx.y; tile < cut.n_tiles; tile += gridDim.y) {
      float acc[Tiles][kSums];
#pragma unroll
      for (uint32_t i = 0; i < Tiles * kSums; ++i) acc[i / kSums][i % kSums] = 0.0f;
      multiply_tile<Half>(acc, group, cut, w, x, w_turn, x_turn);
      if constexpr (Splits == 1)
        end_tile(acc, mine, tile, reinterpret_cast<float4*>(behind) + mine * kWarpgroup + wide_place<kMembers>(), end);
      else
        end_share(acc, tile, reinterpret_cast<float4*>(data), mail, end);
    }
  }
  if (Splits == 1) return;
  cluster_arrive(); /* no block ends before what it has sent has come */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_LINEAR_WIDE_H */
