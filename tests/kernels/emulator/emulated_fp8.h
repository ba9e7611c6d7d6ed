/* kernels/primitives/fp8_sm90.h for the emulator: 4 bits of exponent, 3 of mantissa, no infinity. */
namespace blink {

/* As the bits of a bfloat16, which holds every value. */
inline uint32_t bits_of_fp8(uint32_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent ? ldexpf(float(8 + mantissa), exponent - 10) : ldexpf(float(mantissa), -9);
  return __float2bfloat16_rn(code & 0x80 ? -size : size).bits;
}
template <typename Half>
void to_halves(uint32_t word, uint32_t& front, uint32_t& back, Half) {
  front = bits_of_fp8(word) | bits_of_fp8(word >> 8) << 16;
  back = bits_of_fp8(word >> 16) | bits_of_fp8(word >> 24) << 16;
}

}  // namespace blink
