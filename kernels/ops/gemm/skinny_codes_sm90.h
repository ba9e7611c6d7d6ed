/* How skinny_gemm_sm90.h multiplies weights in codes of four bits: converted to halves in registers, with their scales,
 * while those of the step before are multiplied. A panel of weights has four panels of x.
 *
 * Scales come from memory to registers, two turns ahead: a line of 128 bytes has those of 1,024 columns or more.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_CODES_SM90_H
#define BLINK_OPS_GEMM_SKINNY_CODES_SM90_H

#include "kernels/primitives/codes.h"
#include "skinny_fp8_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSkinnyCodePanel = 2 * kSkinnyRowBytes; /* columns */
constexpr uint32_t kSkinnyCodeTurn = 64;                   /* columns that are converted together: 32 bytes */
static_assert(2 * kSkinnyFp8Turn == kSkinnyCodeTurn && kSkinnyPanel == kSkinnyCodeTurn, "a turn has a panel of x");

/* The units of scales of a thread's two rows of 64 rows, at a turn's two groups of 32 columns, as they lie in memory.
 */
struct SkinnyUnits {
  uint32_t raw[2][2];
};

/* Where a thread's two rows of each of its 64 rows have their scales. */
template <ScaleForm Form, int Tiles>
struct SkinnyCodeScales {
  const CodeMatrix& w;
  uint32_t n_in;
  uint64_t first[Tiles][2]; /* units */

  template <typename Split, int Output>
  __device__ __forceinline__ void find(const SkinnyWeightRows<Output>& weights, uint32_t tile) {
#pragma unroll
    for (uint32_t t = 0; t < Tiles; ++t)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t r = 64 * Split::rows(t) + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
        first[t][h] = uint64_t(weights.index(tile, r)) * (n_in >> w.shift);
      }
  }
  /* From column k on, behind the last of which x is zero. */
  __device__ __forceinline__ void load(SkinnyUnits& units, uint32_t t, uint32_t k) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c)
        load_unit<Form>(w, first[t][h], min(k + kCodeGroup * c, n_in - kCodeGroup), true, units.raw[h][c]);
  }
};

/* The operands of the tensor cores' four instructions that a turn's words become. */
template <typename Half, ScaleForm Form>
__device__ __forceinline__ void convert_codes(uint32_t (&a)[4][4], const uint32_t (&words)[4],
                                              const SkinnyUnits& units) {
#pragma unroll
  for (uint32_t c = 0; c < 2; ++c) {
    const CodeFactors<Half, Form> low(units.raw[0][c]), high(units.raw[1][c]);
#pragma unroll
    for (uint32_t step = 0; step < 2; ++step) {
      uint32_t (&to)[4] = a[2 * c + step];
      to[0] = low.pair(words[2 * c], 2 * step), to[1] = high.pair(words[2 * c + 1], 2 * step);
      to[2] = low.pair(words[2 * c], 2 * step + 1), to[3] = high.pair(words[2 * c + 1], 2 * step + 1);
    }
  }
}

/* As multiply_tile does it with halves. */
template <typename Half, ScaleForm Form, typename Split, int Output, int Tiles, int N>
__device__ __forceinline__ void multiply_code_tile(float (&acc)[Tiles][N], uint32_t tile,
                                                   const SkinnyWeightRows<Output>& weights, const CodeMatrix& codes,
                                                   const SkinnyPipeline& w, const SkinnyPipeline& x,
                                                   PipelineState& w_state, PipelineState& x_state) {
  constexpr uint32_t kTurns = kSkinnyCodePanel / kSkinnyCodeTurn, kAll = Tiles * kTurns;
  const SkinnyParams& params = weights.params;
  const uint32_t columns = Split::column_group() * (2 * N * kSkinnyRowBytes);
  SkinnyCodeScales<Form, Tiles> scales = {codes, params.n_in, {}};
  scales.template find<Split>(weights, tile);
  uint32_t k = blockIdx.x * params.share * params.panels * kSkinnyCodePanel;
#pragma unroll 1
  for (uint32_t stage = 0; stage < params.share; ++stage) {
    SkinnyUnits units[2]; /* of two turns, as words and operands are */
    scales.load(units[0], 0, k);
    barrier_wait(w.full + w_state.index, w_state.phase);
    barrier_wait(x.full + x_state.index, x_state.phase);
#pragma unroll 1
    for (uint32_t p = 0; p < params.panels; ++p, k += kSkinnyCodePanel) {
      const SkinnyFp8Rows rows(w.panel(w_state.index, p));
      const uint64_t b = matrix_descriptor(x.panel(x_state.index, kTurns * p) + columns, kSkinnyAtom, 0);
      uint32_t words[2][4], a[2][4][4];
      if (p) scales.load(units[0], 0, k);
      scales.load(units[1], 0, k + kSkinnyCodeTurn);
      rows.load(words[0], 64 * Split::rows(0), 0);
      rows.load(words[1], 64 * Split::rows(0), 1);
      wgmma_wait<0>(); /* of the panel before: its operands' registers are free */
      convert_codes<Half, Form>(a[0], words[0], units[0]);
#pragma unroll
      for (uint32_t i = 0; i < kAll; ++i) {
        const uint32_t t = i / kTurns, turn = i % kTurns, after = (i + 2) % kTurns;
        const uint64_t at = advance(b, turn * x.panel_bytes);
        if (i + 2 < kAll) {
          scales.load(units[i % 2], (i + 2) / kTurns, k + kSkinnyCodeTurn * after);
          rows.load(words[i % 2], 64 * Split::rows((i + 2) / kTurns), after);
        }
        wgmma_fence();
#pragma unroll
        for (uint32_t step = 0; step < 4; ++step)
          wgmma_along_k(acc[t], a[i % 2][step], advance(at, kSkinnyFp8Turn * step), true, Half());
        wgmma_commit();
        if (i + 1 < kAll) {
          wgmma_wait<1>(); /* the other registers are free */
          convert_codes<Half, Form>(a[(i + 1) % 2], words[(i + 1) % 2], units[(i + 1) % 2]);
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

#endif /* BLINK_OPS_GEMM_SKINNY_CODES_SM90_H */
