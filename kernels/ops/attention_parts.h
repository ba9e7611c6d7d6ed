/* Attention parts: what the parts of a row that attention has cut weigh beside each other. A part is
 * [head_dim + 4] fp32 as words of exchange.h: unnormalised output, then maximum (log2 units) and sum.
 */
#ifndef BLINK_OPS_ATTENTION_PARTS_H
#define BLINK_OPS_ATTENTION_PARTS_H

#include "exchange.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kMostParts = 64; /* of a row: two for each lane of the warp that puts them together */

/* A lane has maximum and sum of parts t and t + 32, t = lane, of n. They lie `stride` times 16 bytes apart. */
struct PartBounds {
  uint4 bound[2];

  __device__ __forceinline__ explicit PartBounds(uint32_t n) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      bound[h] = lane() + 32 * h < n ? uint4{} : make_uint4(__float_as_uint(-INFINITY), 1, 0, 0);
  }

  /* Asks for those that are missing. */
  __device__ __forceinline__ void load(const uint4* of_first, uint32_t stride) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      if (is_missing(bound[h])) bound[h] = load_relaxed(of_first + (lane() + 32 * h) * stride);
  }
  __device__ __forceinline__ bool missing() const { return is_missing(bound[0]) || is_missing(bound[1]); }

  /* What the lane's parts weigh; the sum of all. */
  __device__ __forceinline__ float weigh(float (&weight)[2]) const {
    const float max[2] = {__uint_as_float(bound[0].x), __uint_as_float(bound[1].x)};
    const float most = warp_max(fmaxf(max[0], max[1]));
    float sum = 0.0f;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      weight[h] = exp2f(max[h] - most);
      sum += weight[h] * __uint_as_float(bound[h].y);
    }
    return warp_sum(sum);
  }

  static __device__ __forceinline__ void clear(uint4* of_first, uint32_t stride, uint32_t n) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
      if (lane() + 32 * h < n) of_first[(lane() + 32 * h) * stride] = make_uint4(0, 0, 0, 0);
  }

 private:
  static __device__ __forceinline__ uint32_t lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ bool is_missing(const uint4& v) { return min(v.x, v.y) == 0; }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_PARTS_H */
