/* How the warps of a block share a tile of expert_gemv.h, and what becomes of their sums.
 */
#ifndef BLINK_OPS_MOE_EXPERT_SUMS_H
#define BLINK_OPS_MOE_EXPERT_SUMS_H

#include "kernels/ops/activation.h"
#include "kernels/ops/gemm/weight_lanes.h"
#include "small_batch_plan.h"

namespace blink {

enum ExpertMatmul { kGateUp, kDown };

#ifdef __CUDACC__

/* How a block shares a tile's outputs and k among its warps, and which rows of w they are. A down matmul is
 * short in k, so two groups of warps take 16 outputs each; a gate_up tile is 8 gate rows and their 8 up rows. */
template <ExpertMatmul Matmul>
struct ExpertLayout {
  static constexpr uint32_t kGroups = Matmul == kGateUp ? 1 : 2, kSplits = kExpertWarps / kGroups;
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

/* Writes the tile: the sums over k, for kGateUp through silu * mul. A thread has one output, of several pairs. Biased:
 * `bias` [experts][2][n_out] is that of kGateUp. */
template <typename Half, ExpertMatmul Matmul, bool Biased = false>
__device__ __forceinline__ void store_tile(const ExpertSums& sums, uint32_t buffer, const ExpertUnit& unit,
                                           const uint32_t* pairs, Half* out, uint32_t tile, uint32_t n_out,
                                           const OutputScales& scale, const Half* bias = nullptr) {
  using Layout = ExpertLayout<Matmul>;
  constexpr uint32_t kSplits = Layout::kSplits, kOutputs = Layout::kOutputs;
  static_assert(kExpertThreads % kOutputs == 0, "a thread's output is the same for all pairs");
  for (uint32_t i = threadIdx.x; i < unit.count * kOutputs; i += kExpertThreads) {
    const uint32_t o = i % kOutputs, column = i / kOutputs, j = tile * kOutputs + o;
    if (j >= n_out) continue;
    const uint32_t sorted = unit.first + column, row = Matmul == kGateUp ? sorted : pairs[sorted];
    float value = scale.low * sums.total<kSplits>(buffer, o / 16 * kSplits, o % 16, column);
    if (Matmul == kGateUp) {
      float up = scale.high * sums.total<kSplits>(buffer, 0, o + 8, column);
      if (Biased) {
        const Half* const of_expert = bias + uint64_t(unit.expert) * 2 * n_out + j;
        value += to_float(of_expert[0]), up += to_float(of_expert[n_out]);
      }
      value = gated(value, up);
    }
    from_float(value, out + uint64_t(row) * n_out + j);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_EXPERT_SUMS_H */
