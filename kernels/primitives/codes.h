/* Weights in codes of four bits: their order in memory, their scales, and how they become halves in registers.
 *
 * Of each 32 consecutive columns of a row, which are 16 bytes, word w holds the columns 8 p + 2 w and 8 p + 2 w + 1,
 * p = 0 to 3, in its nibbles p and p + 4. So a shift by 4 p and a mask leave a pair of neighbouring columns in the two
 * halves of a register, and the tensor cores take a pair p and the next from one thread (`mma` in ptx.h).
 *
 * Of each unit of neighbouring columns of a row memory has one scale. What it is depends on the form:
 *
 *   kInt4ByGroup  a unit is a group of 32 or more columns. A word: the scale in halves, and above it what is added to
 *                 the pattern of a code to make it code - zero: -(zero + kBase), in halves, both exact
 *   kFp4By32      32 columns. A byte: the exponent of a power of two, as e8m0 and bfloat16 have it
 *   kFp4By16      32 columns. A word: the scales of 16 columns and of the next 16, in halves
 *
 * A weight is the half that is nearest to (code - zero) * scale, or to number * scale, which is exact with kFp4By32:
 * every kernel multiplies the same values.
 */
#ifndef BLINK_PRIMITIVES_CODES_H
#define BLINK_PRIMITIVES_CODES_H

#include "scale_form.h"

#ifdef __CUDACC__

namespace blink {

/* A matrix of codes. */
struct CodeMatrix {
  const uint8_t* codes;
  const void* scales; /* [rows][columns >> shift], words or bytes */
  uint32_t shift;     /* of a column to its unit */
};

constexpr uint32_t kCodeGroup = 32; /* columns whose order is their own */

/* Where codes lie; counts and differences are even numbers of codes. */
struct CodePointer {
  const uint8_t* at;

  __device__ __forceinline__ CodePointer operator+(uint64_t n) const { return {at + n / 2}; }
  __device__ __forceinline__ CodePointer& operator+=(int64_t n) {
    at += n / 2;
    return *this;
  }
  __device__ __forceinline__ operator const void*() const { return at; }
};

/* The scale of the unit of a row that column k lies in, as it lies in memory. `first`: the row's first unit. */
template <ScaleForm Form>
__device__ __forceinline__ void load_unit(const CodeMatrix& w, uint64_t first, uint32_t k, bool wanted, uint32_t& raw) {
  const uint64_t unit = first + (k >> w.shift);
  if constexpr (Form == kFp4By32)
    load_byte(static_cast<const uint8_t*>(w.scales) + unit, wanted, raw);
  else
    load_word(static_cast<const uint32_t*>(w.scales) + unit, wanted, raw);
}

/* The pattern of a code in the low bits of a number's: as bfloat16 128 + code, as float16 1024 + code. */
__device__ __forceinline__ constexpr uint32_t code_pattern(__nv_bfloat16) {
  return 0x43004300;
}
__device__ __forceinline__ constexpr uint32_t code_pattern(__half) {
  return 0x64006400;
}

/* A pair of e2m1, where a shift has put it: sign, exponent and mantissa are moved to where halves have them, and all
 * that differs is the exponents' bias, also of the subnormal 0.5, which the multiplication mends without loss. */
__device__ __forceinline__ uint32_t number_pair(uint32_t pair, __nv_bfloat16 half) {
  constexpr uint32_t k2To126 = 0x7e807e80;
  return multiply_pairs((pair << 6 & 0x01c001c0) | (pair << 12 & 0x80008000), k2To126, half);
}
__device__ __forceinline__ uint32_t number_pair(uint32_t pair, __half half) {
  constexpr uint32_t k2To14 = 0x74007400;
  return multiply_pairs((pair << 9 & 0x0e000e00) | (pair << 12 & 0x80008000), k2To14, half);
}

/* A power of two, of an exponent with bfloat16's bias. The host refuses those that float16 has no place for. */
__device__ __forceinline__ uint32_t power_pair(uint32_t exponent, __nv_bfloat16) {
  return exponent << 7 | exponent << 23;
}
__device__ __forceinline__ uint32_t power_pair(uint32_t exponent, __half) {
  constexpr uint32_t kBias = 127 - 15;
  const uint32_t own = exponent > kBias ? exponent - kBias : 0;
  return own << 10 | own << 26;
}

/* How codes of 32 columns become halves, by what memory has of their scales. */
template <typename Half, ScaleForm Form>
struct CodeFactors {
  uint32_t first, second; /* pairs: kFp4By16: both scales. kInt4ByGroup: the scale, and what is added */

  __device__ __forceinline__ explicit CodeFactors(uint32_t raw) {
    if constexpr (Form == kFp4By32)
      first = second = power_pair(raw, Half());
    else
      first = permute_bytes(raw, 0x1010), second = permute_bytes(raw, 0x3232);
  }
  /* The values of pair p of a word. */
  __device__ __forceinline__ uint32_t pair(uint32_t word, uint32_t p) const {
    constexpr uint32_t kNibbles = 0x000f000f;
    const uint32_t codes = word >> 4 * p & kNibbles;
    if constexpr (Form == kInt4ByGroup)
      return multiply_pairs(add_pairs(codes | code_pattern(Half()), second, Half()), first, Half());
    else
      return multiply_pairs(number_pair(codes, Half()), p < 2 ? first : second, Half());
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_CODES_H */
