/* In-band flags, as in NCCL's LL protocol: how blocks that are all resident hand data to each other without a grid
 * barrier. A word says itself whether it has been written: until then it is 0, and what would be 0 is written as the
 * other zero. So the data is its own message: no access needs an order, nothing waits for a store to be acknowledged,
 * and nobody counts arrivals. Under a stream of weights a fence takes 2 us and more, and a load that hits L2 0.4.
 *
 * What is never written is a bug, which ends the kernel and with it the backend (Patience).
 */
#ifndef BLINK_PRIMITIVES_LL_PROTOCOL_H
#define BLINK_PRIMITIVES_LL_PROTOCOL_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

/* A wait for other blocks, which ends. Each turn of it is a load from L2 and takes 0.3 us or more: some ten seconds. It
 * counts, since a clock would take registers from whoever waits. */
class Patience {
 public:
  __device__ __forceinline__ void spend() {
    if (++turns_ == kMostTurns) trap();
  }

 private:
  static constexpr uint32_t kMostTurns = 1u << 25;
  uint32_t turns_ = 0;
};

/* The word, once it has been written. */
__device__ __forceinline__ uint32_t await_word(const uint32_t* p) {
  uint32_t value = load_relaxed32(p);
  for (Patience patience; value == 0; patience.spend()) value = load_relaxed32(p);
  return value;
}
/* Two, whose loads do not wait for each other. */
__device__ __forceinline__ uint2 await_words(const uint32_t* p, const uint32_t* q) {
  uint2 value;
  value.x = load_relaxed32(p), value.y = load_relaxed32(q);
  for (Patience patience; value.x == 0 || value.y == 0; patience.spend()) {
    if (value.x == 0) value.x = load_relaxed32(p);
    if (value.y == 0) value.y = load_relaxed32(q);
  }
  return value;
}

/* Whether one of the words has not been written. */
__device__ __forceinline__ bool is_missing(const uint4& v) {
  return min(min(v.x, v.y), min(v.z, v.w)) == 0;
}

/* The word as it is written. */
__device__ __forceinline__ uint32_t written(uint32_t value) {
  return value ? value : 0x80000000;
}
__device__ __forceinline__ void put_word(uint32_t* p, uint32_t value) {
  store_relaxed32(p, written(value));
}
__device__ __forceinline__ void put_float(float* p, float value) {
  put_word(reinterpret_cast<uint32_t*>(p), __float_as_uint(value));
}
/* Four, at a multiple of 16 bytes. */
__device__ __forceinline__ void put_floats(uint32_t* p, const float (&value)[4]) {
  const auto word = [&](uint32_t i) { return written(__float_as_uint(value[i])); };
  store_relaxed(reinterpret_cast<uint4*>(p), make_uint4(word(0), word(1), word(2), word(3)));
}
__device__ __forceinline__ float4 as_floats(const uint4& v) {
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}
/* Two neighbouring halves, at a multiple of 4 bytes. */
template <typename Half>
__device__ __forceinline__ void put_pair(Half* p, float low, float high) {
  put_word(reinterpret_cast<uint32_t*>(p), pack<Half>(low, high));
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_LL_PROTOCOL_H */
