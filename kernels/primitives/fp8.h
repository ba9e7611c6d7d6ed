/* Weights in fp8 (e4m3): the order of their columns in memory, and how elements become halves in registers.
 *
 * Of each 16 consecutive columns of a row, which are 16 bytes, the bytes 4q to 4q + 3 hold the columns 2q, 2q + 1,
 * 2q + 8 and 2q + 9. The tensor cores take these four columns of a 16-bit operand from one thread, in two registers
 * (`mma` in ptx.h): so one 32-bit word as it lies in memory becomes both of them. Activations in fp8 have the same
 * order (kernels/ops/quantize.h), so that products of fp8 with fp8 never notice.
 */
#ifndef BLINK_PRIMITIVES_FP8_H
#define BLINK_PRIMITIVES_FP8_H

#include "scale_form.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kScaleBlock = 128; /* rows, and columns, of a block */
constexpr uint32_t kFp8Group = 16;    /* columns whose order is their own */

/* Two elements as bfloat16; `selector` puts each into a byte, and its sign into the one above. Shifted, sign, exponent
 * and mantissa are where a bfloat16 has them, and all that differs is the exponents' bias, also of subnormals: the
 * multiplication mends it without loss. */
__device__ __forceinline__ uint32_t to_bfloats(uint32_t word, uint32_t selector) {
  constexpr uint32_t kSignExponentMantissa = 0x87f087f0, k2To120 = 0x7b807b80;
  return multiply_pairs(permute_bytes(word, selector) << 4 & kSignExponentMantissa, k2To120, __nv_bfloat16());
}

/* The four elements of a word as two pairs of halves, without loss. The code that is no number becomes one as float16
 * too, but 480 with its sign as bfloat16. */
__device__ __forceinline__ void to_halves(uint32_t word, uint32_t& first, uint32_t& second, __nv_bfloat16) {
  first = to_bfloats(word, 0x9180), second = to_bfloats(word, 0xb3a2);
}
__device__ __forceinline__ void to_halves(uint32_t word, uint32_t& first, uint32_t& second, __half) {
  to_float16s(word, first, second);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_FP8_H */
