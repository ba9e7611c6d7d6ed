/* Skinny GEMM with split k, for some dozens of rows: y = x w^T at the speed of the memory. CPU reference: matmul.h.
 *
 *   x  [m][n_in] half, m at most Columns
 *   w  [n_out][n_in] half, fp8 or codes of four bits, or [2][n_out][n_in] for kEpilogueSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the result: EpilogueOp of gemv.h (E18)
 *
 * The weights are the 64-row operand of a warpgroup's instructions, the rows of x the other. A tile is up to 256
 * rows of w, for kEpilogueSilu 8 gate rows and their 8 up rows in turn; a block goes through k in stages of panels of
 * 64 columns, which one warp copies of the tile and another of x, each into a pipeline of stages in shared memory.
 * Where tiles are fewer than multiprocessors, a cluster of blocks splits k and adds up in the order of its blocks.
 *
 * A stage is copied as soon as there is room, across tiles and, before the predecessor has ended, across kernels: a
 * block's pipeline fills as soon as the block has room on a multiprocessor. There must be little code between, since a
 * kernel fetches its code anew, a line after the other.
 *
 * E18. Sums are added up in a fixed order: k within a warpgroup, warpgroups that share it, then the blocks of a cluster
 * by rank. Each element of the residual is added to once. An output for a row of x depends on that row, on the weights
 * and on the shape alone.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_GEMM_SM90_H
#define BLINK_OPS_GEMM_SKINNY_GEMM_SM90_H

#include "skinny_codes_sm90.h"
#include "skinny_epilogue_sm90.h"
#include "skinny_fp8_sm90.h"
#include "split_k_reduction_sm90.h"
#include "skinny_pipeline_sm90.h"
#include "weights_ahead.h"

#ifdef __CUDACC__

namespace blink {

/* Fragments f to last - 1 of a tile, `Batch` at a time so that what their ends load does not wait for each other;
 * sum(f) is a fragment. Rolled up: as code for each, they were up to 60 KB, and every kernel had to fetch its code
 * anew. */
template <uint32_t Batch, typename Epilogue, typename Sum>
__device__ __forceinline__ void epilogue_fragments(const Epilogue& epilogue, uint32_t tile, uint32_t f, uint32_t last,
                                                   const Sum& sum) {
#pragma unroll 1
  for (; f < last; f += Batch) {
    typename Epilogue::Before before[Batch];
    float4 v[Batch];
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b < last) before[b] = epilogue.load(tile, f + b), v[b] = sum(f + b);
#pragma unroll
    for (uint32_t b = 0; b < Batch; ++b)
      if (f + b < last) epilogue.put(tile, f + b, v[b], before[b]);
  }
}

/* A warpgroup's part of a tile, which is 2 * N rows of x: acc += w x^T over the block's stages. A stage is given back
 * as soon as it has been used: what is in flight counts, not what the tensor cores could do meanwhile. */
template <typename Half, int Tiles, int N>
__device__ __forceinline__ void multiply_tile(float (&acc)[Tiles][N], uint32_t group, const SkinnyParams& params,
                                              const SkinnyPipeline& w, const SkinnyPipeline& x, PipelineState& w_state,
                                              PipelineState& x_state) {
  const uint32_t columns = group * (2 * N * kSkinnyRowBytes);
#pragma unroll 1
  for (uint32_t stage = 0; stage < params.share; ++stage) {
    barrier_wait(w.full + w_state.index, w_state.phase);
    barrier_wait(x.full + x_state.index, x_state.phase);
#pragma unroll 1
    for (uint32_t p = 0; p < params.panels; ++p) {
      const uint64_t a = matrix_descriptor(w.panel(w_state.index, p), kSkinnyAtom, 0),
                     b = matrix_descriptor(x.panel(x_state.index, p) + columns, kSkinnyAtom, 0);
      wgmma_fence();
#pragma unroll
      for (uint32_t step = 0; step < kSkinnyPanel / 16; ++step)
#pragma unroll
        for (uint32_t t = 0; t < Tiles; ++t)
          wgmma(acc[t], advance(a, 64 * t * kSkinnyRowBytes + 32 * step), advance(b, 32 * step), true, Half());
      wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t) settle(acc[t]);
    if (threadIdx.x % 32 == 0) barrier_arrive(w.empty + w_state.index), barrier_arrive(x.empty + x_state.index);
    w_state.next(w.n_stages);
    x_state.next(x.n_stages);
  }
}

/* A thread's part of 64 rows, where it finds fragment f again at [f * kWarpgroup]. */
template <int N>
__device__ __forceinline__ void keep_fragments(float4* kept, const float (&v)[N]) {
#pragma unroll
  for (uint32_t f = 0; f < N / 4; ++f)
    kept[f * kWarpgroup] = make_float4(v[4 * f], v[4 * f + 1], v[4 * f + 2], v[4 * f + 3]);
}

/* Keeps what all warpgroups have of a tile, or of a part of each 64 rows' fragments: [turn group][64 rows][fragment].
 */
template <typename Split, int Tiles, int N>
__device__ __forceinline__ void keep_tile(float4* kept, const float (&acc)[Tiles][N]) {
  constexpr uint32_t kBarrier = Split::kConsumers == Split::kEnders ? 1 : 3; /* others might wait at the enders' */
  constexpr uint32_t kFragments = Split::kFragments * N / Split::kSums;      /* of all rows */
  group_sync(kBarrier, Split::kConsumers);                                   /* nobody reads what lies there any more */
#pragma unroll
  for (uint32_t t = 0; t < Tiles; ++t)
    if (Split::wanted(t))
      keep_fragments(kept + (Split::turn_group() * kFragments + Split::rows(t) * (N / 4)) * kWarpgroup +
                         consumer_thread<Split::kConsumers>(),
                     acc[t]);
  if (Split::kGroups > 1) group_sync(kBarrier, Split::kConsumers);
}

/* The sum of what warpgroups with different columns have kept of a fragment, in their order: `of_thread` is the
 * first's, and each has kept `n` fragments. */
template <typename Split>
__device__ __forceinline__ float4 kept_sum(const float4* of_thread, uint32_t n) {
  float4 sum = of_thread[0];
#pragma unroll
  for (uint32_t g = 1; g < Split::kTurnGroups; ++g) {
    const float4 more = of_thread[g * n * kWarpgroup];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  return sum;
}

/* What becomes of a tile that is the block's alone, if warpgroups have different columns: of each 64 rows two fragments
 * at a time, so that there is room for those of all, which they share. */
template <typename Split, int N, typename Epilogue>
__device__ __forceinline__ void epilogue_turns(float (&acc)[1][N], uint32_t tile, float4* kept,
                                               const Epilogue& epilogue) {
  constexpr uint32_t kPart = 4 * kSkinnyTurnFragments, kParts = N / kPart;
  constexpr uint32_t kKept = Split::kRowGroups * kSkinnyTurnFragments;
  static_assert(kKept == Split::kGroups, "each warpgroup ends one");
  float (&sums)[kParts][1][kPart] = reinterpret_cast<float (&)[kParts][1][kPart]>(acc);
  const uint32_t mine = Split::group();
#pragma unroll 1
  for (uint32_t i = 0; i < kParts; ++i) {
    keep_tile<Split>(kept, sums[0]);
    const uint32_t f =
        mine / kSkinnyTurnFragments * Epilogue::kGroups + i * kSkinnyTurnFragments + mine % kSkinnyTurnFragments;
    const typename Epilogue::Before before = epilogue.load(tile, f);
    epilogue.put(tile, f, kept_sum<Split>(kept + mine * kWarpgroup + threadIdx.x % kWarpgroup, kKept), before);
#pragma unroll
    for (uint32_t u = 1; u < kParts; ++u)
#pragma unroll
      for (uint32_t e = 0; e < kPart; ++e) sums[u - 1][0][e] = sums[u][0][e];
  }
  epilogue.store_squares(tile, 0, Split::kFragments);
}

/* The same if none do: its outputs, by 64 rows. Of the fragments of each, the warpgroup has those from `mine` on. There
 * is room at `kept` for as many as are left to it if all warpgroups end the same. */
template <typename Split, int Tiles, int N, typename Epilogue>
__device__ __forceinline__ void epilogue_tile(float (&acc)[Tiles][N], uint32_t mine, uint32_t tile, float4* kept,
                                              const Epilogue& epilogue) {
  constexpr uint32_t kParts = Split::kRowGroups < N / 4 ? Split::kRowGroups : N / 4, kPart = N / kParts;
  float (&sums)[Tiles * kParts][kPart] = reinterpret_cast<float (&)[Tiles * kParts][kPart]>(acc);
#pragma unroll 1
  for (uint32_t i = 0; i < Tiles * kParts; ++i) {
    keep_fragments(kept, sums[0]);
    const uint32_t first = Split::rows(i / kParts) * Epilogue::kGroups + mine + i % kParts * (kPart / 4);
    const auto sum = [=](uint32_t f) { return kept[(f - first) * kWarpgroup]; };
    if (Split::wanted(i / kParts)) epilogue_fragments<Epilogue::kBatch>(epilogue, tile, first, first + kPart / 4, sum);
#pragma unroll
    for (uint32_t u = 1; u < Tiles * kParts; ++u)
#pragma unroll
      for (uint32_t e = 0; e < kPart; ++e) sums[u - 1][e] = sums[u][e];
  }
  epilogue.store_squares(tile, 0, Split::kFragments);
}

/* The same of a tile of which each block of the cluster has made a part of the sums, and ends a part. By one
 * warpgroup, when all have kept theirs. */
template <typename Split, typename Reduction, typename Epilogue>
__device__ __forceinline__ void epilogue_split(uint32_t tile, float4* kept, const Reduction& reduction,
                                               const Epilogue& epilogue) {
  if (Split::kTurnGroups > 1)
#pragma unroll 4
    for (uint32_t f = 0; f < Split::kFragments; ++f)
      kept[f * kWarpgroup + threadIdx.x] = kept_sum<Split>(kept + f * kWarpgroup + threadIdx.x, Split::kFragments);
  cluster_wait(); /* all blocks have started */
  reduction.send(kept);
  const uint32_t first = reduction.first(reduction.rank()), n = reduction.count(reduction.rank());
  typename Epilogue::Before before[Reduction::kShare];
#pragma unroll
  for (uint32_t i = 0; i < Reduction::kShare; ++i)
    if (i < n) before[i] = epilogue.load(tile, first + i);
  reduction.receive();
#pragma unroll 1
  for (uint32_t i = 0; i < n; ++i) {
    epilogue.put(tile, first + i, reduction.sum(kept, i), before[0]);
#pragma unroll
    for (uint32_t u = 1; u < Reduction::kShare; ++u) before[u - 1] = before[u];
  }
  epilogue.store_squares(tile, first, first + n);
}

/* grid (Splits, clusters), clusters of Splits blocks, which have one tile each if they are more than one; block
 * (SkinnySplit::kThreads); n_in a multiple of 8. Tiles: 64 times it covers a tile's rows; the pipelines are
 * followed by as much space as 64 * Tiles rows reach beyond a panel. */
template <typename Half, int Output, int Columns, int Tiles, int Splits, ScaleForm Form = kUnscaled>
__global__ void __launch_bounds__(SkinnySplit<Columns, Tiles, Splits, Form>::kThreads,
                                  kSkinnyBlocks<Columns, Tiles, Splits, Form>)
    skinny_gemm_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map, void* y,
                       const __grid_constant__ SkinnyParams params, const __grid_constant__ SkinnyFactors<Form> norm,
                       const __grid_constant__ WeightsAhead ahead) {
  static_assert(kSkinnyFits<Output, Columns, Tiles>, "the squares would reach into what lies behind them");
  using Split = SkinnySplit<Columns, Tiles, Splits, Form>;
  constexpr uint32_t kConsumers = Split::kConsumers, kWorkers = Split::kWorkers;
  using Reduction = SplitKReduction<Split::kFragments, Splits>;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(dynamic_shared());
  float *scale = reinterpret_cast<float*>(barriers + 4 * kSkinnyMaxStages + 2), *squares = scale + kSkinnyMaxColumns;
  char* behind = reinterpret_cast<char*>(dynamic_shared()) + kSkinnyPipelineStart;
  /* In front of the pipelines: fragments of 64 rows, at least one a warpgroup, two if they have different
   * columns; or what other blocks send, which may be ahead. A cluster's only tile is kept where the pipelines
   * were. */
  constexpr uint32_t kKept = Columns / 8 < Split::kGroups ? Split::kGroups : Columns / 8; /* of 64 rows */
  constexpr uint32_t kFront = Splits != 1              ? (Splits - 1) * Reduction::kShare
                              : Split::kTurnGroups > 1 ? kSkinnyTurnFragments * Split::kGroups
                                                       : kKept;
  using Scales = SkinnyScales<Form, Split, Output>;
  char* scales_at = behind + kFront * kFragmentBytes;
  char* data = scales_at + Scales::kBytes;
  const Reduction reduction(barriers + 4 * kSkinnyMaxStages, behind);
  const SkinnyPipeline w(data, barriers, params.w_stages, params.tile_rows, params.panels);
  const SkinnyPipeline x(data + params.w_stages * w.stage_bytes, barriers + 2 * kSkinnyMaxStages, params.x_stages,
                         Columns, kSkinnyXPanels<Form> * params.panels);
  allow_successor();
  if (threadIdx.x >= kConsumers) { /* a warp that copies weights, and one that copies x */
    if constexpr (Split::kGivesRegisters) {
      keep_registers<kSkinnyProducerRegisters>();
      if (threadIdx.x >= Split::kWorkers) { /* idle, but a cluster waits for all threads */
        if (Splits != 1) cluster_arrive(), cluster_wait(), cluster_arrive(), cluster_wait();
        return;
      }
    }
    const bool weights = threadIdx.x < kConsumers + 32;
    const SkinnyPipeline pipeline = weights ? w : x;
    pipeline.init(kConsumers / 32);
    if (Splits != 1 && threadIdx.x == kConsumers) reduction.init();
    __syncwarp();
    group_arrive(2, kWorkers);
    if (Splits != 1) cluster_arrive();
    if (!weights) {
      if (threadIdx.x % 32 == 0) prefetch_map(x_map);
      wait_for_predecessor();
    }
    if (threadIdx.x % 32 == 0)
      copy_stages(pipeline, weights ? w_map : x_map, params, (weights ? 1 : kSkinnyXPanels<Form>)*params.panels,
                  weights ? params.tile_rows : 0, weights && Output == kEpilogueSilu,
                  weights ? evict_first() : evict_last());
    __syncwarp();
    if (weights && ahead.w) {
      wait_for_predecessor(); /* which would have to wait for these, too */
      ahead.request();
    }
    if (Splits != 1) cluster_wait();
  } else {
    if constexpr (Split::kGivesRegisters) take_registers<kSkinnyConsumerRegisters>();
    const SkinnyWeightRows<Output> rows{params, weight_scales(norm)};
    const SkinnyEpilogue<Half, Output, Columns, Split::kEnders, Form> epilogue{params, norm, rows, y, scale, squares};
    Scales scales(rows, norm, scales_at);
    scales.start();
    if (Splits != 1) cluster_arrive();
    group_sync(2, kWorkers); /* the barriers are there */
    if (Split::ends()) epilogue.prefetch_weights(blockIdx.y);
    wait_for_predecessor();
    if (norm.sums_in && Split::ends()) epilogue.load_scales();
    constexpr uint32_t kSums = Split::kSums;
    const uint32_t mine = Split::column_group() * kSums / 4; /* the warpgroup's first fragment of 64 rows */
    PipelineState w_state, x_state;
#pragma unroll 1
    for (uint32_t tile = blockIdx.y; tile < params.n_tiles; tile += gridDim.y) {
      float acc[Split::kTiles][kSums];
#pragma unroll
      for (uint32_t i = 0; i < Split::kTiles * kSums; ++i) acc[i / kSums][i % kSums] = 0.0f;
      if constexpr (Form == kUnscaled)
        multiply_tile<Half>(acc, Split::column_group(), params, w, x, w_state, x_state);
      else if constexpr (kIsCodes<Form>)
        multiply_code_tile<Half, Form, Split>(acc, params, scales, w, x, w_state, x_state);
      else
        multiply_fp8_tile<Half, Form, Split>(acc, tile, rows, w, x, w_state, x_state);
      float4* kept = reinterpret_cast<float4*>(Splits == 1 ? behind : data);
      if constexpr (Splits == 1 && Split::kTurnGroups > 1) {
        epilogue_turns<Split>(acc, tile, kept, epilogue);
      } else if constexpr (Splits == 1) {
        kept += threadIdx.x / kWarpgroup * (kKept / Split::kGroups) * kWarpgroup + consumer_thread<Split::kEnders>();
        epilogue_tile<Split>(acc, mine, tile, kept, epilogue);
      } else {
        keep_tile<Split>(kept, acc);
        if (Split::ends())
          epilogue_split<Split>(tile, kept, reduction, epilogue);
        else
          cluster_wait(); /* all blocks have started */
      }
    }
  }
  if (Splits == 1) return;
  cluster_arrive(); /* no block ends before what it has sent has come */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SKINNY_GEMM_SM90_H */
