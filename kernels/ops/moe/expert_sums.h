/* How the warps of a block share a tile of expert_gemv.h, and what becomes of their sums.
 */
#ifndef BLINK_OPS_MOE_EXPERT_SUMS_H
#define BLINK_OPS_MOE_EXPERT_SUMS_H

#include "kernels/ops/activation.h"
#include "kernels/ops/gemm/weight_lanes.h"
#include "small_batch_plan.h"

namespace blink {

/* kLongDown is kDown where a row is so long that all warps of a block have a part of it (`kLongDownChunks`). */
enum ExpertMatmul { kGateUp, kDown, kLongDown };

#ifdef __CUDACC__

/* Pairs of a unit: two groups, of codes one. A warp has 384 columns of gpt-oss's rows, of which x of two groups would
 * take 96 registers, and read again for each tile it would be more bytes than the weights. Pairs that would have been a
 * second group are a unit of their own: its weights are converted once more, but come from L2, since another block
 * reads them for the first group at about the same time. */
template <ScaleForm Form>
constexpr uint32_t kUnitPairs = kIsCodes<Form> ? kPairGroup : 2 * kPairGroup;

/* How a block shares a tile's outputs and k among its warps, and which rows of w they are. Most down
 * matmuls are short in k, so two groups of warps take 16 outputs each; a gate_up tile is 8 gate rows and their 8 up
 * rows. */
template <ExpertMatmul Matmul>
struct ExpertLayout {
  static constexpr uint32_t kGroups = Matmul == kDown ? 2 : 1, kSplits = kExpertWarps / kGroups;
  static constexpr uint32_t kOutputs = Matmul == kGateUp ? 8 : 16 * kGroups;
};

/* What the warps of a block add up: the fragments of each. */
struct ExpertSums {
  float4 part[2][kExpertWarps][2][32]; /* two tiles in turn, warps, 8 pairs each */

  /* Row `row` of the 16 of warps first.. for pair `column` of the unit. */
  template <uint32_t Splits>
  __device__ __forceinline__ float total(uint32_t buffer, uint32_t first, uint32_t row, uint32_t column) const {
    const uint32_t lane = row % 8 * 4 + column % 8 / 2, e = row / 8 * 2 + column % 2;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < Splits; ++warp)
      sum += reinterpret_cast<const float*>(&part[buffer][first + warp][column / 8][lane])[e];
    return sum;
  }
};

/* Writes the tile: the sums over k, for kGateUp through silu * mul. A thread has one output, of several pairs; `thread`
 * says whose. Biased: `bias` is that of kGateUp, of the tile's gates, and `apart` further on of its ups. */
template <typename Half, ExpertMatmul Matmul, bool Biased = false>
__device__ __forceinline__ void store_tile(const ExpertSums& sums, uint32_t buffer, const ExpertUnit& unit,
                                           const uint32_t* pairs, Half* out, uint32_t tile, uint32_t n_out,
                                           const OutputScales& scale, uint32_t thread, const Half* bias,
                                           uint32_t apart) {
  using Layout = ExpertLayout<Matmul>;
  constexpr uint32_t kSplits = Layout::kSplits, kOutputs = Layout::kOutputs;
  static_assert(kExpertThreads % kOutputs == 0, "a thread's output is the same for all pairs");
  for (uint32_t i = thread; i < unit.count * kOutputs; i += kExpertThreads) {
    const uint32_t o = i % kOutputs, column = i / kOutputs, j = tile * kOutputs + o;
    if (j >= n_out) continue;
    const uint32_t sorted = unit.first + column, row = Matmul == kGateUp ? sorted : pairs[sorted];
    float value = scale.low * sums.total<kSplits>(buffer, o / 16 * kSplits, o % 16, column);
    if (Matmul == kGateUp) {
      float up = scale.high * sums.total<kSplits>(buffer, 0, o + 8, column);
      if (Biased) value += to_float(bias[o]), up += to_float(bias[apart + o]);
      value = gated(value, up);
    }
    from_float(value, out + uint64_t(row) * n_out + j);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_EXPERT_SUMS_H */
