/* How skinny_gemm_sm90.h multiplies weights in fp8: converted to halves in registers, from where the tensor cores take
 * them, while those of the step before are multiplied. The conversion is exact.
 *
 * Scales by row are for the epilogue. By block, the sums of a panel, whose columns are a block's, are multiplied by the
 * scales of its rows, and added up in fp32.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_FP8_SM90_H
#define BLINK_OPS_GEMM_SKINNY_FP8_SM90_H

#include "skinny_epilogue_sm90.h"
#include "skinny_pipeline_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSkinnyFp8Panel = kSkinnyRowBytes; /* columns */
static_assert(kSkinnyFp8Panel == kScaleBlock, "a panel has one scale a row");
constexpr uint32_t kSkinnyFp8Turn = 32; /* columns that are converted together: two instructions' */
constexpr uint32_t kSkinnyFp8Turns = kSkinnyFp8Panel / kSkinnyFp8Turn;

/* A thread's part of 16 rows of 64 rows of weights: 32 columns at a time. */
struct SkinnyFp8Rows {
  const char* row; /* of the panel, which the lane passes to ldmatrix */
  uint32_t chunk;  /* the lane's first 16 bytes, where the swizzle has put them */

  __device__ __forceinline__ explicit SkinnyFp8Rows(const char* panel) {
    const uint32_t lane = threadIdx.x % 32, r = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
    row = panel + r * kSkinnyRowBytes, chunk = (lane / 16 ^ r % 8) * 16;
  }
  /* Of 64 rows from `first` on: rows r and r + 8 at a word of 16 columns, then at the next 16. */
  __device__ __forceinline__ void load(uint32_t (&words)[4], uint32_t first, uint32_t turn) const {
    load_matrices<false>(words, row + first * kSkinnyRowBytes + (chunk ^ turn * kSkinnyFp8Turn));
  }
};

/* Both operands of the tensor cores' instructions that a turn's words become. */
template <typename Half>
__device__ __forceinline__ void convert_words(uint32_t (&a)[2][4], const uint32_t (&words)[4]) {
#pragma unroll
  for (uint32_t step = 0; step < 2; ++step) {
    to_halves(words[2 * step], a[step][0], a[step][2], Half());
    to_halves(words[2 * step + 1], a[step][1], a[step][3], Half());
  }
}

/* As multiply_tile does it with halves. */
template <typename Half, ScaleForm Form, typename Split, int Output, int Tiles, int N>
__device__ __forceinline__ void multiply_fp8_tile(float (&acc)[Tiles][N], uint32_t tile,
                                                  const SkinnyWeightRows<Output>& weights, const SkinnyPipeline& w,
                                                  const SkinnyPipeline& x, PipelineState& w_state,
                                                  PipelineState& x_state) {
  constexpr uint32_t kAll = Tiles * kSkinnyFp8Turns;
  const SkinnyParams& params = weights.params;
  const uint32_t columns = Split::column_group() * (2 * N * kSkinnyRowBytes);
  const uint32_t n_blocks = Form == kScaleByBlock ? weights.n_blocks() : 0;
  const float* of_row[Tiles][2];
  if (Form == kScaleByBlock)
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h)
        of_row[t][h] = weights.block_scales(
            tile, 64 * Split::rows(t) + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h);
  uint32_t block = blockIdx.x * params.share * params.panels;
#pragma unroll 1
  for (uint32_t stage = 0; stage < params.share; ++stage) {
    barrier_wait(w.full + w_state.index, w_state.phase);
    barrier_wait(x.full + x_state.index, x_state.phase);
#pragma unroll 1
    for (uint32_t p = 0; p < params.panels; ++p, ++block) {
      const SkinnyFp8Rows rows(w.panel(w_state.index, p));
      const uint64_t b = matrix_descriptor(x.panel(x_state.index, 2 * p) + columns, kSkinnyAtom, 0);
      float scale[Tiles][2], part[N];
      uint32_t words[2][4], a[2][2][4]; /* of two turns each */
      if (Form == kScaleByBlock)
#pragma unroll
        for (uint32_t t = 0; t < Tiles; ++t)
#pragma unroll
          for (uint32_t h = 0; h < 2; ++h) scale[t][h] = of_row[t][h][min(block, n_blocks - 1)];
      rows.load(words[0], 64 * Split::rows(0), 0);
      rows.load(words[1], 64 * Split::rows(0), 1);
      wgmma_wait<0>(); /* of the panel before: its operands' registers are free */
      convert_words<Half>(a[0], words[0]);
#pragma unroll
      for (uint32_t i = 0; i < kAll; ++i) {
        const uint32_t t = i / kSkinnyFp8Turns, turn = i % kSkinnyFp8Turns;
        const uint64_t at = advance(b, turn / 2 * x.panel_bytes + turn % 2 * 2 * kSkinnyFp8Turn);
        if (i + 2 < kAll)
          rows.load(words[i % 2], 64 * Split::rows((i + 2) / kSkinnyFp8Turns), (i + 2) % kSkinnyFp8Turns);
        wgmma_fence();
        float (&sums)[N] = Form == kScaleByBlock ? part : acc[t];
        wgmma_along_k(sums, a[i % 2][0], at, Form != kScaleByBlock || turn != 0, Half());
        wgmma_along_k(sums, a[i % 2][1], advance(at, kSkinnyFp8Turn), true, Half());
        wgmma_commit();
        if (i + 1 < kAll) {
          wgmma_wait<1>(); /* the other registers are free */
          convert_words<Half>(a[(i + 1) % 2], words[(i + 1) % 2]);
        }
        if (Form == kScaleByBlock && turn + 1 == kSkinnyFp8Turns) {
          wgmma_wait<0>();
          settle(part);
#pragma unroll
          for (uint32_t e = 0; e < N; ++e) acc[t][e] += scale[t][e / 2 % 2] * part[e];
        }
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t) settle(acc[t]);
    __syncwarp(); /* every lane has read the stage */
    if (threadIdx.x % 32 == 0) barrier_arrive(w.empty + w_state.index), barrier_arrive(x.empty + x_state.index);
    w_state.next(w.n_stages);
    x_state.next(x.n_stages);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SKINNY_FP8_SM90_H */
