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

/* A number format of few bits, but for its sign: `bits` of mantissa, and the exponent of the smallest normal number. */
struct SmallFloat {
  int bits, lowest;

  float value(int code) const {
    const int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
    return exponent ? ldexpf(float((1 << bits) + mantissa), exponent - 1 + lowest - bits)
                    : ldexpf(float(mantissa), lowest - bits);
  }
  /* The nearest code, to even where two are as near. Steps between neighbours, below the smallest normal number those
   * of the subnormals; rounding up may reach the next exponent. */
  int code(float size) const {
    const int exponent = size < ldexpf(1, lowest) ? lowest : ilogbf(size);
    const int steps = int(std::nearbyint(ldexpf(size, bits - exponent)));
    return steps < 1 << bits ? steps : steps + ((exponent - lowest) << bits);
  }
};
constexpr SmallFloat kFloat16 = {10, -14};

inline std::vector<float> float16_values() {
  std::vector<float> values(1 << 16);
  for (int code = 0; code < 1 << 15; ++code) {
    const float value = code < 0x7c00 ? kFloat16.value(code) : code == 0x7c00 ? INFINITY : NAN;
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
  return {uint16_t(sign | kFloat16.code(size))};
}

#endif /* BLINK_EMULATOR_CUDA_BF16_H */
