/* Tiled GEMM of fp8 with fp8, for many rows: y = x w^T, both quantised (ops/quantize.h). Reference: numpy's product of
 * the quantised values (tests/kernels/test_tiled_fp8_device.py).
 *
 *   x  [m][n_in] fp8, with scales [1][x_stride], or [ceil(n_in / 128)][x_stride] if they are by block
 *   w  [n_out][n_in] fp8, or [2][n_out][n_in] for kEpilogueSilu, with scales [rows][1], or [ceil(rows / 128)]
 *      [ceil(n_in / 128)] if they are by block; for kEpilogueSilu n_out is then a multiple of 128
 *   y  [m][n_out]: kEpilogueHalf, kEpilogueAdd or kEpilogueSilu of gemv.h; or kEpilogueFloat [splits][part_rows]
 *      [n_out], of which the sum over splits is the result (split_sums.h)
 *
 * It is the kernel of tiled_gemm_sm90.h with stages of 128 columns, in which E20 and E21 hold, but for its sums, which
 * depend on into how many splits the host cuts k, too. The tensor cores add up short of fp32 (wgmma_sm90.h), so that
 * their sums end after kTiledFp8Interval stages, 512 columns, and are added in registers; with scales by block they end
 * after one, and are scaled as they are added. Scales by row are applied at the end.
 *
 * Who adds does not multiply. In tiles of up to kTiledFp8TwoParts columns, a warpgroup has registers for two sums of
 * the tensor cores: one is added while the other grows. In wider ones it has to wait for its sum. There, if scales are
 * by row, the other warpgroup multiplies meanwhile, because its sums end two stages earlier.
 *
 * The scales of x come to the stages beside x: by block to each, by row to the last of a tile.
 */
#ifndef BLINK_OPS_GEMM_TILED_FP8_GEMM_SM90_H
#define BLINK_OPS_GEMM_TILED_FP8_GEMM_SM90_H

#include "kernels/ops/quantize.h"
#include "tiled_gemm_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTiledFp8Columns = 176;  /* rows of x of a tile, at most */
constexpr uint32_t kTiledFp8TwoParts = 128; /* columns of a tile whose warpgroups have two sums of the tensor cores */
constexpr uint32_t kTiledFp8Interval = 4;   /* stages that the tensor cores add up, if scales are by row */
constexpr uint32_t kTiledFp8PipelineBytes = 194560;
constexpr uint32_t kTiledFp8Scales = 880; /* floats: of the stages' columns */
constexpr uint32_t kTiledFp8Warps = 8;    /* that multiply */

/* The scales of both operands; and how k is split, where tiles are fewer than multiprocessors. */
struct TiledFp8Params {
  const float *x_scales, *w_scales;
  uint32_t x_stride, n_out;
  uint32_t splits;    /* 1, or of kEpilogueFloat more: as many results, one below the other */
  uint32_t share;     /* of k, in words, that a split sums up: whole stages */
  uint32_t part_rows; /* of a split's result: at least m, a multiple of kTiledBox */
};

/* All tiles of the first split of k, then those of the next. */
struct SplitSums {
  const TiledParams& params;
  const TiledFp8Params& fp8;

  __device__ __forceinline__ uint32_t n_tiles() const { return params.w_tiles * params.x_tiles * fp8.splits; }
  __device__ __forceinline__ uint32_t split(uint32_t tile) const { return tile / (params.w_tiles * params.x_tiles); }
  __device__ __forceinline__ TiledTile at(uint32_t tile) const {
    TiledTile found(params, tile % (params.w_tiles * params.x_tiles));
    found.k = split(tile) * fp8.share, found.k_end = min(params.n_in, found.k + fp8.share);
    return found;
  }
};

struct TiledFp8Shared {
  unsigned char stages[kTiledFp8PipelineBytes];
  unsigned char turned[2][kTiledStagingBytes];
  float scales[kTiledFp8Scales];
  uint64_t full[kTiledMaxStages], empty[kTiledMaxStages];
};
constexpr uint32_t kTiledFp8SharedBytes = 230944;
static_assert(sizeof(TiledFp8Shared) == kTiledFp8SharedBytes, "the engine launches with so much");

/* The scales of a tile's rows of x that exist. */
template <int Form>
struct TokenScales {
  const TiledFp8Params& of;
  uint32_t columns; /* of a tile */
  float* places;    /* as many for each stage */

  __device__ __forceinline__ uint32_t bytes(const TiledTile& at, uint32_t k) const {
    if (Form == kScaleByRow && k + kTiledPanel < at.k_end) return 0;
    return min(columns, of.x_stride - at.x) * uint32_t(sizeof(float));
  }
  __device__ __forceinline__ void copy(uint32_t stage, const TiledTile& at, uint32_t k, uint64_t* full) const {
    const uint64_t block = Form == kScaleByBlock ? k / kTiledPanel : 0;
    if (const uint32_t n = bytes(at, k))
      copy_bytes(places + stage * columns, of.x_scales + block * of.x_stride + at.x, n, full);
  }
};

/* A multiplying warpgroup, `group` 0 or 1. */
template <typename Half, int Output, int Form, uint32_t Columns>
struct TiledFp8Consumer {
  using Epilogue = TiledEpilogue<Half, Output, (Columns + 31) / 32 * 32>;
  using Sums = float[Columns / 2];
  static constexpr uint32_t kStages = Form == kScaleByBlock ? 1 : kTiledFp8Interval;
  static constexpr bool kTwoParts = Columns <= kTiledFp8TwoParts;
  TiledFp8Shared& shared;
  const TiledParams& params;
  const TiledFp8Params& fp8;
  uint32_t group;

  /* Scales of the thread's two rows of w, of which kEpilogueSilu has one of gate and one of up. */
  struct RowScales {
    float of[2];
  };

  /* Room for the next stage, in both blocks, by every warp: each has read scales (E21). */
  __device__ __forceinline__ void release(uint32_t stage) const {
    const uint32_t lane = threadIdx.x % 32;
    __syncwarp();
    if (lane < 2) barrier_arrive_at(shared.empty + stage, lane);
  }

  __device__ __forceinline__ float scale_at(uint32_t row, uint32_t index, uint32_t n) const {
    return row < n ? fp8.w_scales[index] : 0.0f; /* of rows that do not exist nothing is stored */
  }
  __device__ __forceinline__ RowScales scales_by_row(uint32_t w_tile) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, n = fp8.n_out;
    const uint32_t first = ((2 * w_tile + cluster_rank()) * 2 + group) * Epilogue::kOutputs;
    if (Output == kEpilogueSilu) {
      const uint32_t row = first + warp * 8 + lane / 4;
      return {{scale_at(row, row, n), scale_at(row, n + row, n)}};
    }
    const uint32_t row = first + warp * 16 + lane / 4;
    return {{scale_at(row, row, n), scale_at(row + 8, row + 8, n)}};
  }
  /* Of 32 blocks of columns from `k` on, one for each lane; all of this block's rows, or its gate rows and its up rows,
   * share one. Loaded one by one, they would be waited for at every stage. */
  __device__ __forceinline__ RowScales scales_by_block(uint32_t w_tile, uint32_t k) const {
    const uint32_t n_blocks = (params.n_in + kTiledPanel - 1) / kTiledPanel;
    const uint32_t block = min(k / kTiledPanel + threadIdx.x % 32, n_blocks - 1);
    const uint32_t row = Output == kEpilogueSilu ? w_tile * kScaleBlock : (2 * w_tile + cluster_rank()) * kScaleBlock;
    const uint32_t at = row / kScaleBlock * n_blocks + block;
    if (Output != kEpilogueSilu) return {{scale_at(row, at, fp8.n_out), 0.0f}};
    return {{scale_at(row, at, fp8.n_out), scale_at(row, at + fp8.n_out / kScaleBlock * n_blocks, fp8.n_out)}};
  }

  /* How far a tile's sums have come. */
  struct Progress {
    uint32_t k;
    uint32_t multiplied; /* stages of the tile */
    uint32_t used;       /* the last of these, in the pipeline */
    uint32_t interval;   /* stages of the next sum that the tensor cores make */
    RowScales rows;      /* by row of all of k, by block of the 32 stages that the last one belongs to */
  };

  /* The scales of the stage `used` for the thread's columns: of each group of 8 it has two. */
  __device__ __forceinline__ const float2* column_scales(uint32_t used) const {
    return reinterpret_cast<const float2*>(shared.scales + used * Columns) + threadIdx.x % 4;
  }

  /* Adds what the tensor cores have summed up to the stage that was multiplied last, by block times its scales. */
  __device__ __forceinline__ void add(const Sums& part, Sums& sums, const Progress& at) const {
    if (Form == kScaleByRow) {
#pragma unroll
      for (uint32_t i = 0; i < Columns / 2; ++i) sums[i] += part[i];
      return;
    }
    const float2* const x = column_scales(at.used);
    float row[2];
#pragma unroll
    for (uint32_t h = 0; h < (Output == kEpilogueSilu ? 2 : 1); ++h)
      row[h] = __shfl_sync(0xffffffffu, at.rows.of[h], (at.multiplied - 1) % 32);
#pragma unroll
    for (uint32_t g = 0; g < Columns / 8; ++g) {
      const float2 of_x = x[4 * g];
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const float w = row[Output == kEpilogueSilu ? h : 0];
        sums[4 * g + 2 * h] += part[4 * g + 2 * h] * (of_x.x * w);
        sums[4 * g + 2 * h + 1] += part[4 * g + 2 * h + 1] * (of_x.y * w);
      }
    }
  }

  /* Multiplies whole sums by the scales by row, which came with the tile's last stage, `used`. */
  __device__ __forceinline__ void scale(Sums& sums, uint32_t used, const RowScales& rows) const {
    const float2* const x = column_scales(used);
#pragma unroll
    for (uint32_t g = 0; g < Columns / 8; ++g) {
      const float2 of_x = x[4 * g];
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        sums[4 * g + 2 * h] *= of_x.x * rows.of[h];
        sums[4 * g + 2 * h + 1] *= of_x.y * rows.of[h];
      }
    }
  }

  /* The products of the pipeline's next stage are on their way to `part`. */
  __device__ __forceinline__ void issue(const TiledState& state, Sums& part, bool accumulate) const {
    const uint64_t w0 = matrix_descriptor(shared.stages + group * 64 * kSwizzleBytes, kGroupBytes, kNoColumns),
                   x0 = matrix_descriptor(shared.stages + kTiledWBytes, kGroupBytes, kNoColumns);
    constexpr uint32_t kStage = kTiledWBytes + Columns * kSwizzleBytes, kInstruction = 2 * kWgmmaK; /* bytes of k */
    barrier_wait(shared.full + state.index, state.phase);
    const uint64_t w = advance(w0, state.index * kStage), x = advance(x0, state.index * kStage);
    wgmma_fence();
#pragma unroll
    for (uint32_t at = 0; at < kSwizzleBytes; at += kInstruction)
      wgmma(part, advance(w, at), advance(x, at), at ? true : accumulate, E4m3());
    wgmma_commit();
  }

  /* The tensor cores sum up the next interval in `part`, of which the last stage may still run afterwards. What they
   * have summed up before, `before`, is added while they multiply the first; null where nothing is left of that. */
  __device__ __forceinline__ void sum_up(TiledState& state, const TiledTile& tile, Progress& at, Sums& part,
                                         Sums* before, Sums& sums) const {
    for (uint32_t s = 0; s < at.interval && at.k < tile.k_end; ++s, at.k += kTiledPanel, state.advance()) {
      issue(state, part, s != 0);
      wgmma_wait<1>();
      if (s == 0 && before) {
        settle(*before);
        add(*before, sums, at);
      }
      if (s || before) release(at.used);
      if (Form == kScaleByBlock && at.multiplied % 32 == 0) at.rows = scales_by_block(tile.w, at.k);
      at.used = state.index, ++at.multiplied;
    }
    at.interval = kStages;
  }
  /* Waits for an interval's last stage, and adds its sum. */
  __device__ __forceinline__ void finish(Sums& part, Sums& sums, const Progress& at) const {
    wgmma_wait<0>();
    settle(part);
    add(part, sums, at);
  }

  /* Sums of a tile over k. */
  __device__ __forceinline__ void multiply(TiledState& state, Sums& sums, const TiledTile& tile) const {
    /* Group 1 ends its first interval early, and so adds while group 0 multiplies. */
    Progress at = {tile.k, 0, 0, kStages > 1 && group ? kStages / 2 : kStages, {}};
    if (Form == kScaleByRow) at.rows = scales_by_row(tile.w);
#pragma unroll
    for (uint32_t i = 0; i < Columns / 2; ++i) sums[i] = 0.0f;
    if (tile.k >= tile.k_end) return; /* a split beyond the end of k */
    if constexpr (kTwoParts) {
      Sums even, odd;
      sum_up(state, tile, at, even, nullptr, sums);
      while (true) {
        if (at.k >= tile.k_end) {
          finish(even, sums, at);
          break;
        }
        sum_up(state, tile, at, odd, &even, sums);
        if (at.k >= tile.k_end) {
          finish(odd, sums, at);
          break;
        }
        sum_up(state, tile, at, even, &odd, sums);
      }
    } else {
      while (true) {
        Sums part;
        sum_up(state, tile, at, part, nullptr, sums);
        finish(part, sums, at);
        if (at.k >= tile.k_end) break;
        release(at.used);
      }
    }
    if (Form == kScaleByRow) scale(sums, at.used, at.rows);
    release(at.used);
  }

  __device__ __forceinline__ void run(const Epilogue& epilogue) const {
    const SplitSums tiles{params, fp8};
    TiledState state(shared, params);
    for (uint32_t tile = blockIdx.x / 2; tile < tiles.n_tiles(); tile += gridDim.x / 2) {
      const TiledTile at = tiles.at(tile);
      typename Epilogue::Sums sums;
      multiply(state, reinterpret_cast<Sums&>(sums), at);
      const uint32_t o = ((2 * at.w + cluster_rank()) * 2 + group) * Epilogue::kOutputs;
      const uint32_t part = tiles.split(tile) * fp8.part_rows; /* row of y where the result begins */
      epilogue.store(sums, o, part + at.x, Columns, part + params.m);
    }
    epilogue.finish();
  }
};

/* grid (2 * pairs), clusters of 2, block (kTiledThreads), kTiledFp8SharedBytes of shared memory; n_in a multiple of 16
 * and n_out of 8. The maps are those of tiled_gemm_kernel, of pairs of fp8 elements as words of 16 bits; x_stride is a
 * multiple of 4. Columns is params.columns: an instance that branched to all sizes would have too few registers. */
template <typename Half, int Output, int Form, uint32_t Columns>
__global__ void __launch_bounds__(kTiledThreads, 1)
    tiled_fp8_gemm_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map,
                          const __grid_constant__ BoxMap y_map, const __grid_constant__ TiledParams params,
                          const __grid_constant__ TiledFp8Params fp8) {
  TiledFp8Shared& shared = *reinterpret_cast<TiledFp8Shared*>(dynamic_shared());
  begin_tiled(shared, w_map, 2 * kTiledFp8Warps);
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kTiledProducerRegisters>();
    if (threadIdx.x == 0) copy_tiled_w<Output>(shared, w_map, params, SplitSums{params, fp8});
    if (threadIdx.x == 32) {
      prefetch_map(x_map);
      wait_for_predecessor();
      copy_tiled_x(shared, x_map, params, SplitSums{params, fp8}, TokenScales<Form>{fp8, Columns, shared.scales});
    }
    __syncwarp();
    if (threadIdx.x >= 32) wait_for_predecessor();
  } else {
    take_registers<kTiledConsumerRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    wait_for_predecessor();
    using Consumer = TiledFp8Consumer<Half, Output, Form, Columns>;
    Consumer{shared, params, fp8, group}.run(typename Consumer::Epilogue{shared.turned[group], y_map, group});
  }
  cluster_arrive(); /* E21 */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_TILED_FP8_GEMM_SM90_H */
