/* Tiled GEMM, for many rows: y = x w^T at the speed of the tensor cores. CPU reference: matmul.h.
 *
 *   x  [m][n_in] half
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kEpilogueSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the result: kEpilogueAdd or kEpilogueSilu of gemv.h (E20)
 *
 * A pair of blocks, a cluster, has a tile: 256 rows of w, for kEpilogueSilu 8 gate rows and their 8 up rows in turn,
 * and up to 256 rows of x. Each block multiplies 128 of the rows of w with all of x, of which it brings half to both.
 * The weights are the 64-row operand of the warpgroups' instructions, so that a tile may have any multiple of 16 rows
 * of x: as many as make the tiles fill the multiprocessors (gpu_backend/ops/tiled_cut.py).
 *
 * In a block one warp copies w and one x into a pipeline of stages, 64 of k, and two warpgroups multiply 64 rows of w
 * each.
 *
 * E20. Sums are added up over k in order, within one block. An output depends on its row of x and the weights alone,
 * not on how the matmul is divided. Each element of the residual is added to once.
 * E21. The two blocks of a pair bring each other half of x. A block writes to a stage of both when the warpgroups of
 * both have read it, and ends when the other has done so too: until then the other's copies and arrivals may still
 * come.
 */
#ifndef BLINK_OPS_GEMM_TILED_GEMM_SM90_H
#define BLINK_OPS_GEMM_TILED_GEMM_SM90_H

#include "kernels/primitives/pipeline_state.h"
#include "tiled_epilogue_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTiledThreads = 3 * kWarpgroup;
constexpr uint32_t kTiledRows = 128; /* of w, of a block */
constexpr uint32_t kTiledPanel = 64; /* of k: a swizzled row */
constexpr uint32_t kTiledWBytes = kTiledRows * kSwizzleBytes;
constexpr uint32_t kTiledPipelineBytes = 196608;
constexpr uint32_t kTiledMaxStages = 6;
constexpr uint32_t kTiledProducerRegisters = 40, kTiledConsumerRegisters = 232; /* of a thread: 168 on average */

/* The tiling of a matmul: made on the host (gpu_backend/ops/tiled_cut.py). */
struct TiledParams {
  uint32_t m, n_in;          /* n_in in 16-bit words: of a row of fp8, half as many as it has elements */
  uint32_t columns;          /* rows of x of a tile: a multiple of 16, 128 to kTiledColumns; of fp8 from 64 */
  uint32_t w_tiles, x_tiles; /* tiles along w and along x */
  uint32_t band;             /* tiles along x that follow each other before the next along w */
};

struct TiledShared {
  unsigned char stages[kTiledPipelineBytes];
  unsigned char turned[2][kTiledStagingBytes];
  uint64_t full[kTiledMaxStages], empty[kTiledMaxStages];
};
constexpr uint32_t kTiledSharedBytes = 229472;
static_assert(sizeof(TiledShared) == kTiledSharedBytes, "the engine launches with so much");

/* A stage of the pipeline: w's rows, then x's. */
struct TiledState : PipelineState {
  uint32_t n_stages;

  template <typename Shared>
  __device__ __forceinline__ TiledState(const Shared& shared, const TiledParams& params)
      : n_stages(min(kTiledMaxStages, uint32_t(sizeof(shared.stages)) / stage_bytes(params))) {}
  __device__ __forceinline__ static uint32_t stage_bytes(const TiledParams& params) {
    return kTiledWBytes + params.columns * kSwizzleBytes;
  }
  __device__ __forceinline__ void advance() { next(n_stages); }
};

/* Where a tile begins: neighbours in order share their rows of w, or, a band of x later, those of x. */
struct TiledTile {
  uint32_t w, x;     /* tile along w, row of x */
  uint32_t k, k_end; /* which of k is summed up */

  __device__ __forceinline__ TiledTile(const TiledParams& params, uint32_t tile) : k(0), k_end(params.n_in) {
    const uint32_t first = tile / (params.band * params.w_tiles) * params.band,
                   width = min(params.band, params.x_tiles - first);
    const uint32_t rest = tile - first * params.w_tiles;
    w = rest / width;
    x = (first + rest % width) * params.columns;
  }
};

/* All tiles, each with all of k. */
struct WholeSums {
  const TiledParams& params;

  __device__ __forceinline__ uint32_t n_tiles() const { return params.w_tiles * params.x_tiles; }
  __device__ __forceinline__ TiledTile at(uint32_t tile) const { return TiledTile(params, tile); }
};

/* How a kernel begins. A stage is free when both blocks have arrived, `releases` times together. */
template <typename Shared>
__device__ __forceinline__ void begin_tiled(Shared& shared, const BoxMap& w_map, uint32_t releases) {
  allow_successor();
  if (threadIdx.x == 0) {
    prefetch_map(w_map);
    for (uint32_t s = 0; s < kTiledMaxStages; ++s) {
      barrier_init_count(shared.full + s, 2);
      barrier_init_count(shared.empty + s, releases);
    }
    barrier_init_done();
  }
  __syncthreads();
  cluster_arrive(); /* before either block's copies and arrivals reach the other */
  cluster_wait();
}

/* Fills the pipeline with this block's rows of w, by one thread, which waits for nothing but room. */
template <int Output, typename Shared, typename Tiles>
__device__ __forceinline__ void copy_tiled_w(Shared& shared, const BoxMap& map, const TiledParams& params,
                                             const Tiles& tiles) {
  TiledState state(shared, params);
  const uint32_t stage_bytes = TiledState::stage_bytes(params);
  const uint64_t policy = params.band < params.x_tiles ? evict_normal() : evict_first(); /* whether it is read again */
  for (uint32_t tile = blockIdx.x / 2; tile < tiles.n_tiles(); tile += gridDim.x / 2) {
    const TiledTile at = tiles.at(tile);
    const uint32_t row = (2 * at.w + cluster_rank()) * kTiledRows;
    for (uint32_t k = at.k; k < at.k_end; k += kTiledPanel, state.advance()) {
      uint64_t* const full = shared.full + state.index;
      barrier_wait(shared.empty + state.index, state.phase ^ 1);
      barrier_expect(full, kTiledWBytes);
      copy_box(shared.stages + state.index * stage_bytes, map, k, Output == kEpilogueSilu ? 0 : row, 0,
               Output == kEpilogueSilu ? row / 16 : 0, full, policy);
    }
  }
}

/* What comes with x to a stage, to this block alone: of halves, nothing. The arguments are the tile and the stage's
 * first k, those of copy the stage before them and its barrier behind. */
struct NothingBeside {
  __device__ __forceinline__ uint32_t bytes(const TiledTile&, uint32_t) const { return 0; }
  __device__ __forceinline__ void copy(uint32_t, const TiledTile&, uint32_t, uint64_t*) const {}
};

/* The same with this block's half of the rows of x, to both blocks, after the predecessor's end. */
template <typename Shared, typename Tiles, typename Beside>
__device__ __forceinline__ void copy_tiled_x(Shared& shared, const BoxMap& map, const TiledParams& params,
                                             const Tiles& tiles, const Beside& beside) {
  TiledState state(shared, params);
  const uint32_t stage_bytes = TiledState::stage_bytes(params), half = cluster_rank() * (params.columns / 2);
  for (uint32_t tile = blockIdx.x / 2; tile < tiles.n_tiles(); tile += gridDim.x / 2) {
    const TiledTile at = tiles.at(tile);
    for (uint32_t k = at.k; k < at.k_end; k += kTiledPanel, state.advance()) {
      uint64_t* const full = shared.full + state.index;
      barrier_wait(shared.empty + state.index, state.phase ^ 1);
      barrier_expect(full, params.columns * kSwizzleBytes + beside.bytes(at, k));
      copy_box_to_pair(shared.stages + state.index * stage_bytes + kTiledWBytes + half * kSwizzleBytes, map, k,
                       at.x + half, 0, 0, full);
      beside.copy(state.index, at, k, full);
    }
  }
}

/* A multiplying warpgroup, `group` 0 or 1. */
template <typename Half, int Output>
struct TiledConsumer {
  using Epilogue = TiledEpilogue<Half, Output>;
  TiledShared& shared;
  const TiledParams& params;
  uint32_t group;

  /* Room for the next stage, in this block and in the other, whose x comes from both (E21). */
  __device__ __forceinline__ void release(uint32_t stage) const {
    const uint32_t thread = threadIdx.x % kWarpgroup;
    if (thread % 32 == 0 && thread < 64) barrier_arrive_at(shared.empty + stage, thread / 32);
  }

  /* Sums of a tile over k, of Columns rows of x. */
  template <int Columns>
  __device__ __forceinline__ void multiply(TiledState& state, typename Epilogue::Sums& all) const {
    auto& sums = reinterpret_cast<float (&)[Columns / 2]>(all);
    const uint64_t w0 = matrix_descriptor(shared.stages + group * 64 * kSwizzleBytes, kGroupBytes, kNoColumns),
                   x0 = matrix_descriptor(shared.stages + kTiledWBytes, kGroupBytes, kNoColumns);
    constexpr uint32_t kStage = kTiledWBytes + Columns * kSwizzleBytes;
    uint32_t used = 0;
    for (uint32_t k = 0; k < params.n_in; k += kTiledPanel, state.advance()) {
      barrier_wait(shared.full + state.index, state.phase);
      const uint64_t w = advance(w0, state.index * kStage), x = advance(x0, state.index * kStage);
      wgmma_fence();
#pragma unroll
      for (uint32_t part = 0; part < kTiledPanel / kWgmmaK; ++part)
        wgmma(sums, advance(w, 2 * kWgmmaK * part), advance(x, 2 * kWgmmaK * part), k + part != 0, Half());
      wgmma_commit();
      wgmma_wait<1>();
      if (k) release(used);
      used = state.index;
    }
    wgmma_wait<0>();
    release(used);
    settle(sums);
  }

  __device__ __forceinline__ void run(const Epilogue& epilogue) const {
    TiledState state(shared, params);
    for (uint32_t tile = blockIdx.x / 2; tile < params.w_tiles * params.x_tiles; tile += gridDim.x / 2) {
      const TiledTile at(params, tile);
      typename Epilogue::Sums sums;
      if (params.columns == 256) multiply<256>(state, sums);
      if (params.columns == 240) multiply<240>(state, sums);
      if (params.columns == 224) multiply<224>(state, sums);
      if (params.columns == 208) multiply<208>(state, sums);
      if (params.columns == 192) multiply<192>(state, sums);
      if (params.columns == 176) multiply<176>(state, sums);
      if (params.columns == 160) multiply<160>(state, sums);
      if (params.columns == 144) multiply<144>(state, sums);
      if (params.columns == 128) multiply<128>(state, sums);
      epilogue.store(sums, ((2 * at.w + cluster_rank()) * 2 + group) * Epilogue::kOutputs, at.x, params.columns,
                     params.m);
    }
    epilogue.finish();
  }
};

/* grid (2 * pairs), clusters of 2, block (kTiledThreads), kTiledSharedBytes of shared memory; n_in and n_out multiples
 * of 8. The maps have swizzled boxes of kTiledPanel columns: w_map kTiledRows rows, of kEpilogueSilu 8 gate and 8 up
 * rows in turn, x_map cut.columns / 2 rows; y_map is TiledEpilogue's. */
template <typename Half, int Output>
__global__ void __launch_bounds__(kTiledThreads, 1)
    tiled_gemm_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map,
                      const __grid_constant__ BoxMap y_map, const __grid_constant__ TiledParams params) {
  TiledShared& shared = *reinterpret_cast<TiledShared*>(dynamic_shared());
  begin_tiled(shared, w_map, 2 * 2);
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kTiledProducerRegisters>();
    if (threadIdx.x == 0) copy_tiled_w<Output>(shared, w_map, params, WholeSums{params});
    if (threadIdx.x == 32) {
      prefetch_map(x_map);
      wait_for_predecessor();
      copy_tiled_x(shared, x_map, params, WholeSums{params}, NothingBeside());
    }
    __syncwarp();
    if (threadIdx.x >= 32) wait_for_predecessor();
  } else {
    take_registers<kTiledConsumerRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    wait_for_predecessor();
    TiledConsumer<Half, Output>{shared, params, group}.run(
        TiledEpilogue<Half, Output>{shared.turned[group], y_map, group});
  }
  cluster_arrive(); /* E21 */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_TILED_GEMM_SM90_H */
