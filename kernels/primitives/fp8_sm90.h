/* Exact conversions of four fp8 (e4m3) to two pairs of halves. Included by ptx.h. */
#ifndef BLINK_PRIMITIVES_FP8_SM90_H
#define BLINK_PRIMITIVES_FP8_SM90_H

namespace blink {

/* The upper bytes of a pair, as bfloat16: sign and mantissa find their places, the exponent's bias differs by 120.
 * Subnormals of fp8 are those of bfloat16 first, and exact, too. */
__device__ __forceinline__ uint32_t upper_bytes_to_bfloat16(uint32_t pair) {
  const uint32_t bits = (pair & 0x80008000u) | (pair >> 4 & 0x07f007f0u);
  uint32_t value;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(value) : "r"(bits), "r"(0x7b807b80u)); /* 2^120 */
  return value;
}

/* Of a word's bytes, 0 and 1 to `front`, 2 and 3 to `back`. */
__device__ __forceinline__ void to_halves(uint32_t word, uint32_t& front, uint32_t& back, __nv_bfloat16) {
  front = upper_bytes_to_bfloat16(__byte_perm(word, 0, 0x1404));
  back = upper_bytes_to_bfloat16(__byte_perm(word, 0, 0x3424));
}
__device__ __forceinline__ void to_halves(uint32_t word, uint32_t& front, uint32_t& back, __half) {
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(front), "=r"(back)
      : "r"(word));
}

}  // namespace blink

#endif /* BLINK_PRIMITIVES_FP8_SM90_H */
