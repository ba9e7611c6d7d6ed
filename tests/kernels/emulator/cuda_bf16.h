/* The half-precision types that the kernels convert. The compiler has neither. */
#ifndef BLINK_EMULATOR_CUDA_BF16_H
#define BLINK_EMULATOR_CUDA_BF16_H

#include "cuda.h"

#include <vector>

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

inline std::vector<float> float16_values() {
  std::vector<float> values(1 << 16);
  for (uint32_t code = 0; code < 1 << 15; ++code) {
    const int exponent = int(code >> 10), mantissa = int(code & 1023);
    float value = exponent ? ldexpf(float(1024 + mantissa), exponent - 25) : ldexpf(float(mantissa), -24);
    if (exponent == 31) value = mantissa ? NAN : INFINITY;
    values[code] = value, values[code | 1 << 15] = -value;
  }
  return values;
}
inline float __half2float(__half x) {
  static const std::vector<float> values = float16_values();
  return values[x.bits];
}
/* Round to nearest even; what would be 65520 or more is infinite. */
inline __half __float2half_rn(float x) {
  if (x != x) return {0x7fff};
  const float size = fabsf(x);
  const uint16_t sign = std::signbit(x) ? 1 << 15 : 0;
  if (size >= 65520.0f) return {uint16_t(sign | 0x7c00)};
  /* Steps between neighbours, below 2^-14 those of the subnormals; rounding up may reach the next exponent. */
  const int exponent = size < ldexpf(1, -14) ? -14 : ilogbf(size);
  const int steps = int(std::nearbyint(ldexpf(size, 10 - exponent)));
  return {uint16_t(sign | (steps < 1024 ? steps : steps + (exponent + 14) * 1024))};
}

#endif /* BLINK_EMULATOR_CUDA_BF16_H */
