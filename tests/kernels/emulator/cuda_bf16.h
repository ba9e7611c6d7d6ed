/* The half-precision types that the kernels convert. Both hold bfloat16: the maths is the same, and the
 * compiler has no float16. */
#ifndef BLINK_EMULATOR_CUDA_BF16_H
#define BLINK_EMULATOR_CUDA_BF16_H

#include "cuda.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/* Round to nearest even. */
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half x) {
  return __bfloat162float({x.bits});
}
inline __half __float2half_rn(float x) {
  return {__float2bfloat16_rn(x).bits};
}

#endif /* BLINK_EMULATOR_CUDA_BF16_H */
