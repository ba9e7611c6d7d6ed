/* Weights in codes of four bits: their order in memory, their scales, and how they become halves in registers.
 *
 * Of each 32 consecutive columns of a row, which are 16 bytes, word w holds the columns 8 p + 2 w and 8 p + 2 w + 1,
 * p = 0 to 3, one in each half of the word. So a shift and a mask leave a pair of neighbouring columns in the two
 * halves of a register, and the tensor cores take a pair p and the next from one thread (`mma` in ptx.h). Which bits of
 * its half of the word a code has depends on the form:
 *
 *   integers   bits 4 p to 4 p + 3
 *   numbers    of e2m1, so that few instructions bring them to where halves have sign, exponent and mantissa: size in
 *              bits 6 to 8, 3 to 5, 0 to 2 and 9 to 11 for p = 0 to 3, and sign in bit 15, 12, 14 and 13. Shifts to the
 *              left are cheap: the units of multiplication do them, while masks and other shifts have one unit at half
 *              its rate, of which a matmul of few rows needs most
 *
 * Of each unit of neighbouring columns of a row memory has one scale. What it is depends on the form:
 *
 *   kInt4ByGroup  a unit is a group of 32 or more columns. A word: the scale in halves, and above it what is added to
 *                 the pattern of a code to make it code - zero: -(zero + kBase), in halves, both exact
 *   kFp4By32      32 columns. A byte: the exponent of the factor, a power of two, as bfloat16 has it
 *   kFp4By16      32 columns. A word: the factors of 16 columns and of the next 16, in halves
 *
 * A factor of numbers is their scale times 2^126, beside bfloat16, or 2^14, beside float16: e2m1 where halves have
 * their exponent is too small by that, also its subnormal 0.5. So one multiplication does both, and a scale is less
 * than 4.
 *
 * A weight is the half that is nearest to (code - zero) * scale, or to number * scale, which is exact with kFp4By32:
 * every kernel multiplies the same values, but for the GEMV of integers (kernels/ops/gemm/code_gemv_sm90.h), which
 * multiplies the sums of a group by its scale, and rounds no weight.
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

/* How memory has the scale of a unit. */
template <ScaleForm Form>
struct CodeUnit {
  using Type = uint32_t;
};
template <>
struct CodeUnit<kFp4By32> {
  using Type = uint8_t;
};

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

/* Where the scales of a lane's columns lie, from its first chunk of a row on: a chunk's are a whole number of words
 * further on than those of the chunk before. Of kFp4By32, where a scale is a byte and rows begin at any, it is the word
 * around it. */
template <ScaleForm Form>
struct ScalePlace {
  const uint32_t* word;
  uint32_t byte;

  /* `unit`: the first scale's number in the matrix. */
  __device__ __forceinline__ ScalePlace(const CodeMatrix& w, uint64_t unit)
      : word(static_cast<const uint32_t*>(w.scales) + (Form == kFp4By32 ? unit / 4 : unit)),
        byte(Form == kFp4By32 ? unit % 4 : 0) {}
  /* The scale, from its word. */
  __device__ __forceinline__ uint32_t of(uint32_t raw) const {
    return Form == kFp4By32 ? permute_bytes(raw, 0, byte | 0x4440) : raw;
  }
};

/* The pattern of a code in the low bits of a number's: as bfloat16 128 + code, as float16 1024 + code. */
__device__ __forceinline__ constexpr uint32_t code_pattern(__nv_bfloat16) {
  return 0x43004300;
}
__device__ __forceinline__ constexpr uint32_t code_pattern(__half) {
  return 0x64006400;
}

/* Where halves have the bits of e2m1: the sign, and the lowest two bits of the exponent with the highest one of the
 * mantissa. */
constexpr uint32_t kNumberSign = 0x80008000;
__device__ __forceinline__ constexpr uint32_t number_size(__nv_bfloat16) {
  return 0x01c001c0;
}
__device__ __forceinline__ constexpr uint32_t number_size(__half) {
  return 0x0e000e00;
}

/* Pair p of a word of e2m1, where halves have them. */
template <typename Half>
__device__ __forceinline__ uint32_t number_pair(uint32_t word, uint32_t p, Half half) {
  constexpr uint32_t kSigns[4] = {0, 3, 1, 2}, kSizes[4] = {6, 3, 0, 9}; /* to the left by; from bit */
  const uint32_t size = number_size(half), to = size == number_size(__half()) ? 9 : 6;
  const uint32_t left = to >= kSizes[p] ? to - kSizes[p] : 0, right = kSizes[p] > to ? kSizes[p] - to : 0;
  if (left == kSigns[p] && !right) return word << left & (size | kNumberSign);
  return keep_bits(word << kSigns[p], kNumberSign, (right ? word >> right : word << left) & size);
}

/* A factor of kFp4By32 in both halves. The host refuses those that float16 has no place for; a lane that has loaded
 * none has zero in its place, and multiplies zeros. */
__device__ __forceinline__ uint32_t power_pair(uint32_t exponent, __nv_bfloat16) {
  return exponent * 0x00800080;
}
__device__ __forceinline__ uint32_t power_pair(uint32_t exponent, __half) {
  constexpr uint32_t kBias = (127 + 126) - (15 + 14); /* what it is more than float16's, whose factor is 2^14 */
  return (max(exponent, kBias) - kBias) * 0x04000400;
}

/* The patterns of pair p of a word of integers. */
template <typename Half>
__device__ __forceinline__ uint32_t code_pair(uint32_t word, uint32_t p, Half half) {
  return keep_bits(word >> 4 * p, 0x000f000f, code_pattern(half));
}

/* How codes of 32 columns become halves, by what memory has of their scales. */
template <typename Half, ScaleForm Form>
struct CodeFactors {
  uint32_t first, second; /* pairs: of numbers, those of 16 columns; of integers the scale, and what is added */

  __device__ __forceinline__ explicit CodeFactors(uint32_t raw) {
    if constexpr (Form == kFp4By32)
      first = second = power_pair(raw, Half());
    else
      first = permute_bytes(raw, 0x1010), second = permute_bytes(raw, 0x3232);
  }
  /* The values of pair p of a word. */
  __device__ __forceinline__ uint32_t pair(uint32_t word, uint32_t p) const {
    if constexpr (Form == kInt4ByGroup) {
      return multiply_pairs(add_pairs(code_pair(word, p, Half()), second, Half()), first, Half());
    } else {
      return multiply_pairs(number_pair(word, p, Half()), p < 2 ? first : second, Half());
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_CODES_H */
