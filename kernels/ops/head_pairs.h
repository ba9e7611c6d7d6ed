/* Head pairs: a head of one token in a warp, normed and turned. Maths and CPU twin are those of rope.h. */
#ifndef BLINK_OPS_HEAD_PAIRS_H
#define BLINK_OPS_HEAD_PAIRS_H

#include "exchange.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

/* A head in a warp: a lane has dimensions d, d + 1 and their partners for the rotation. */
template <typename Half, int HeadDim>
struct HeadPairs {
  uint32_t low = 0, high = 0;

  static __device__ __forceinline__ uint32_t d() { return threadIdx.x % 32 * 2; }
  static __device__ __forceinline__ bool used() { return d() < HeadDim / 2; }

  __device__ __forceinline__ void load(const Half* x) {
    if (!used()) return;
    low = *reinterpret_cast<const uint32_t*>(x + d());
    high = *reinterpret_cast<const uint32_t*>(x + d() + HeadDim / 2);
  }
  /* Of what another block writes meanwhile (exchange.h). */
  __device__ __forceinline__ void await(const Half* x) {
    if (!used()) return;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(x + d());
    const uint2 raw = await_words(words, words + HeadDim / 4);
    low = raw.x, high = raw.y;
  }
  __device__ __forceinline__ void store(Half* to) const {
    if (!used()) return;
    *reinterpret_cast<uint32_t*>(to + d()) = low;
    *reinterpret_cast<uint32_t*>(to + d() + HeadDim / 2) = high;
  }
  static __device__ __forceinline__ void unpack(uint32_t raw, float (&x)[2]) {
    const Half* halves = reinterpret_cast<const Half*>(&raw);
    x[0] = to_float(halves[0]), x[1] = to_float(halves[1]);
  }
  /* Normed by `norm` if `normed`, and turned by the (cos, sin) of d and d + 1. */
  __device__ __forceinline__ void rotate(bool normed, const HeadPairs& norm, float eps, const float4& by) {
    float a[2], b[2];
    unpack(low, a), unpack(high, b);
    if (normed) {
      float wa[2], wb[2];
      unpack(norm.low, wa), unpack(norm.high, wb);
      const float sum = warp_sum(a[0] * a[0] + a[1] * a[1] + (b[0] * b[0] + b[1] * b[1]));
      const float scale = 1.0f / sqrtf(sum / float(HeadDim) + eps);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) a[i] *= scale * wa[i], b[i] *= scale * wb[i];
    }
    turn(a[0], b[0], by.x, by.y);
    turn(a[1], b[1], by.z, by.w);
    low = pack<Half>(a[0], a[1]), high = pack<Half>(b[0], b[1]);
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_HEAD_PAIRS_H */
