/* The elements of cached keys and values, and the type in which attention multiplies them.
 *
 * A cache holds halves, or fp8 (e4m3) in the elements' own order: value / scale, rounded to the nearest, and the
 * largest element beyond it. A layer has one scale for its keys, which is folded into the scale of scores, and one for
 * its values, folded into the output. What is no number stays none, and is read for its own sequence only.
 *
 * Attention to fp8 multiplies in float16, in models of bfloat16 too: one instruction makes float16 of two elements
 * without loss, where bfloat16 takes four, and the steps of float16 are finer for queries and weights. Queries beyond
 * the range of float16 become its largest number.
 */
#ifndef BLINK_OPS_ATTENTION_KV_ELEMENT_H
#define BLINK_OPS_ATTENTION_KV_ELEMENT_H

#include "kernels/primitives/common.h"

namespace blink {

#ifndef __CUDACC__

constexpr float kLargestE4m3 = 448.0f;

/* The value that the cache holds of x, where elements are multiplied by `scale`; x itself in a cache of another type,
 * which has scale 0. */
inline float cached_value(float x, float scale) {
  if (scale == 0.0f || x != x) return x;
  const float of_scale = x / scale, size = fminf(fabsf(of_scale), kLargestE4m3);
  /* Neighbours are an eighth of the power of two below them apart, and the subnormals as far as the smallest normal
   * numbers. */
  const float step = ldexpf(1.0f, (size < 0x1p-6f ? -6 : ilogbf(size)) - 3);
  return copysignf(nearbyintf(size / step) * step, of_scale) * scale;
}

#else

/* An element of fp8. */
struct Fp8 {
  unsigned char bits;
};

/* How attention multiplies the elements of a cache. */
template <typename Cache>
struct KvElement {
  using Half = Cache;
  using Four = uint2; /* neighbours */
  static constexpr bool kFp8 = false;
};
template <>
struct KvElement<Fp8> {
  using Half = __half;
  using Four = uint32_t;
  static constexpr bool kFp8 = true;
};

/* The scales of a layer. */
template <typename Cache>
struct KvScales {
  static constexpr float key = 1.0f, value = 1.0f;
  __device__ __forceinline__ KvScales(float, float) {}
};
template <>
struct KvScales<Fp8> {
  float key, value;
  __device__ __forceinline__ KvScales(float of_keys, float of_values) : key(of_keys), value(of_values) {}
};

constexpr float kLargestFloat16 = 65504.0f;

__device__ __forceinline__ float within_float16(float x) {
  return fminf(fmaxf(x, -kLargestFloat16), kLargestFloat16);
}

/* 8 numbers of a query, in the type in which keys of `Cache` are multiplied. */
template <typename Cache, typename Half>
__device__ __forceinline__ void store_query8(Half* to, float (&x)[8]) {
  static_assert(sizeof(Half) == sizeof(typename KvElement<Cache>::Half), "they lie where halves do");
  if (KvElement<Cache>::kFp8)
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = within_float16(x[i]);
  store8(reinterpret_cast<typename KvElement<Cache>::Half*>(to), x);
}

/* 8 numbers of a key or a value into the cache; `scale` of a cache of halves is 1. */
template <typename Half>
__device__ __forceinline__ void store_cached8(Half* to, const float (&x)[8], float) {
  store8(to, x);
}
__device__ __forceinline__ uint2 to_e4m3s(const float (&x)[8], float scale) {
  const float by = 1.0f / scale;
  const uint32_t low = to_e4m3(x[0] * by, x[1] * by, x[2] * by, x[3] * by);
  return {low, to_e4m3(x[4] * by, x[5] * by, x[6] * by, x[7] * by)};
}
__device__ __forceinline__ void store_cached8(Fp8* to, const float (&x)[8], float scale) {
  *reinterpret_cast<uint2*>(to) = to_e4m3s(x, scale);
}

/* Likewise, and into `beside` what the cache then holds of them, as attention multiplies it: what a cache of halves
 * holds is not wanted there. */
template <typename Half>
__device__ __forceinline__ void store_cached8(Half* to, Half*, const float (&x)[8], float) {
  store8(to, x);
}
template <typename Half>
__device__ __forceinline__ void store_cached8(Fp8* to, Half* beside, const float (&x)[8], float scale) {
  const uint2 words = to_e4m3s(x, scale);
  *reinterpret_cast<uint2*>(to) = words;
  uint4 halves;
  to_float16s(words.x, halves.x, halves.y), to_float16s(words.y, halves.z, halves.w);
  *reinterpret_cast<uint4*>(beside) = halves;
}

/* 16 bytes of fp8 as float16. */
__device__ __forceinline__ void to_float16s(const uint4& x, uint4& low, uint4& high) {
  to_float16s(x.x, low.x, low.y), to_float16s(x.y, low.z, low.w);
  to_float16s(x.z, high.x, high.y), to_float16s(x.w, high.z, high.w);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_KV_ELEMENT_H */
