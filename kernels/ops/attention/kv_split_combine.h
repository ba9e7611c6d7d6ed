/* KV split combine: what the parts of a sequence whose keys are split weigh beside each other. A part is
 * [head_dim + 4] fp32 as words of ll_protocol.h: unnormalised output, then maximum (log2 units) and sum.
 */
#ifndef BLINK_OPS_ATTENTION_KV_SPLIT_COMBINE_H
#define BLINK_OPS_ATTENTION_KV_SPLIT_COMBINE_H

#include "kernels/primitives/ll_protocol.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kMaxSplits = 64; /* of a sequence: two for each lane of the warp that combines them */

/* Maximum and sum of a lane's parts, `part` and `part` + 32 of n, which lie `stride` times 16 bytes apart. What does
 * not exist weighs nothing. */
struct PartBounds {
  uint4 bound[2];

  PartBounds() = default;
  __device__ __forceinline__ PartBounds(uint32_t part, uint32_t n) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      bound[h] = part + 32 * h < n ? uint4{} : make_uint4(__float_as_uint(-INFINITY), 1, 0, 0);
  }

  /* Requests those that are missing. */
  __device__ __forceinline__ void load(const uint4* of_part, uint32_t stride) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      if (is_missing(bound[h])) bound[h] = load_relaxed(of_part + 32 * h * stride);
  }
  __device__ __forceinline__ bool missing() const { return is_missing(bound[0]) || is_missing(bound[1]); }

  /* Sets the weights of the lane's parts, and returns the sum of all. `lanes` neighbouring lanes, a power of two, have
   * the parts. */
  __device__ __forceinline__ float weigh(float (&weight)[2], uint32_t lanes = 32) const {
    const float max[2] = {__uint_as_float(bound[0].x), __uint_as_float(bound[1].x)};
    float most = fmaxf(max[0], max[1]), sum = 0.0f;
    for (uint32_t offset = lanes / 2; offset > 0; offset /= 2)
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, int(offset)));
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      weight[h] = exp2f(max[h] - most);
      sum += weight[h] * __uint_as_float(bound[h].y);
    }
    for (uint32_t offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, int(offset));
    return sum;
  }

  static __device__ __forceinline__ void clear(uint4* of_part, uint32_t stride, uint32_t part, uint32_t n) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      if (part + 32 * h < n) of_part[32 * h * stride] = make_uint4(0, 0, 0, 0);
  }

 private:
  static __device__ __forceinline__ bool is_missing(const uint4& v) { return min(v.x, v.y) == 0; }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_KV_SPLIT_COMBINE_H */
