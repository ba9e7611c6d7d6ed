/* The product of gate and up, quantised to fp8 where the grouped GEMM of fp8 has made it: x of down.
 *
 *   elements  [pairs, sorted][n_out] fp8, in the order of columns of kernels/primitives/fp8.h; n_out a multiple of 16
 *   scales    [ceil(n_out / 128)][stride] fp32: of a pair's 128 outputs, as ops/quantize.h makes them by block,
 *             whatever the scales of the weights are: a tile of gate_up is 128 outputs, and no other tile is asked
 *
 * It is not rounded to half in between.
 */
#ifndef BLINK_OPS_MOE_QUANTIZED_PRODUCT_SM90_H
#define BLINK_OPS_MOE_QUANTIZED_PRODUCT_SM90_H

#include "kernels/ops/activation.h"
#include "kernels/ops/quantize.h"
#include "expert_plan.h"

#ifdef __CUDACC__

namespace blink {

/* Of up to Unit pairs, among the 8 warps of two warpgroups. */
template <uint32_t Unit>
struct ProductScratch {
  static constexpr uint32_t kWarps = 2 * kWarpgroup / 32;
  float most[kWarps][Unit], inverse[Unit];
};

/* Where the two multiplying warpgroups, the second and the third of a block, put the product. */
template <uint32_t Unit>
struct QuantizedProduct {
  static constexpr uint32_t kThreads = 2 * kWarpgroup, kBarrier = 1;
  uint8_t* elements;
  float* scales;
  uint32_t stride;

  /* Quantises and stores a tile of a unit. A warp has 16 outputs and their pairs as `wgmma` has them; `o` is the first
   * of them, n_out or more where they do not exist. All 256 threads come here for every item. */
  __device__ __forceinline__ void store(ProductScratch<Unit>& scratch, float (&gate)[Unit / 2],
                                        const float (&up)[Unit / 2], const ExpertUnit& unit, uint32_t tile, uint32_t o,
                                        uint32_t n_out) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - kWarpgroup / 32, r = lane / 4, q = lane % 4;
#pragma unroll
    for (uint32_t g = 0; g < Unit / 8; ++g) {
      if (8 * g >= unit.count) break;
      float most[2];
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) gate[4 * g + e] = gated(gate[4 * g + e], up[4 * g + e]);
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        most[e] = fmaxf(fabsf(gate[4 * g + e]), fabsf(gate[4 * g + 2 + e]));
#pragma unroll
        for (int rows = 4; rows < 32; rows *= 2) most[e] = fmaxf(most[e], __shfl_xor_sync(0xffffffffu, most[e], rows));
      }
      if (r == g % 8) *reinterpret_cast<float2*>(&scratch.most[warp][8 * g + 2 * q]) = make_float2(most[0], most[1]);
    }
    group_sync(kBarrier, kThreads);
    share(scratch, unit, tile);
    group_sync(kBarrier, kThreads);
#pragma unroll
    for (uint32_t g = 0; g < Unit / 8; ++g) {
      if (8 * g >= unit.count) break;
      const float2 inverse = *reinterpret_cast<const float2*>(&scratch.inverse[8 * g + 2 * q]);
      /* Rows r and r + 8 of one pair, then of the next. A lane and its neighbour 4 lanes on have two rows each, and
       * afterwards all four of one pair. */
      const uint32_t mine = to_e4m3(gate[4 * g] * inverse.x, gate[4 * g + 2] * inverse.x, gate[4 * g + 1] * inverse.y,
                                    gate[4 * g + 3] * inverse.y);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 4);
      const uint32_t word = r % 2 ? permute_bytes(other, mine, 0x7362) : permute_bytes(mine, other, 0x5140);
      const uint32_t pair = 8 * g + 2 * q + r % 2;
      if (pair < unit.count && o < n_out)
        *reinterpret_cast<uint32_t*>(elements + uint64_t(unit.first + pair) * n_out + o + r / 2 * 4) = word;
    }
  }

 private:
  /* A thread finds a pair's scale. */
  __device__ __forceinline__ void share(ProductScratch<Unit>& scratch, const ExpertUnit& unit, uint32_t tile) const {
    const uint32_t pair = threadIdx.x - kWarpgroup;
    if (pair >= unit.count) return;
    float most = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < ProductScratch<Unit>::kWarps; ++warp) most = fmaxf(most, scratch.most[warp][pair]);
    const float scale = fp8_scale(most);
    scratch.inverse[pair] = 1.0f / scale;
    scales[uint64_t(tile) * stride + unit.first + pair] = scale;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_QUANTIZED_PRODUCT_SM90_H */
