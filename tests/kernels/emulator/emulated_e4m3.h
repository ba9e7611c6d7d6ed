/* fp8 (e4m3) for the emulator: 4 bits of exponent, 3 of mantissa, no infinity; 0x7f is no number. */
namespace blink {

inline std::vector<float> e4m3_values() {
  std::vector<float> values(256, NAN);
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    values[code] = exponent ? ldexpf(float(8 + mantissa), exponent - 10) : ldexpf(float(mantissa), -9);
    values[code | 0x80] = -values[code];
  }
  return values;
}
inline float from_e4m3(uint8_t code) {
  static const std::vector<float> values = e4m3_values();
  return values[code];
}

inline uint8_t to_e4m3(float x) {
  if (x != x) return 0x7f;
  const float size = std::min(fabsf(x), 448.0f);
  /* Steps between neighbours, which are those of the subnormals below 2^-6; rounding up may reach the next exponent. */
  const int exponent = size < ldexpf(1, -6) ? -6 : ilogbf(size);
  const int steps = int(std::nearbyint(ldexpf(size, 3 - exponent)));
  const int code = steps < 8 ? steps : steps + (exponent + 6) * 8;
  return uint8_t((std::signbit(x) ? 0x80 : 0) | code);
}
inline uint32_t to_e4m3(float a, float b, float c, float d) {
  return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | uint32_t(to_e4m3(d)) << 24;
}
inline void to_float16s(uint32_t word, uint32_t& first, uint32_t& second) {
  first = pack_halves(from_e4m3(uint8_t(word)), from_e4m3(uint8_t(word >> 8)), __half());
  second = pack_halves(from_e4m3(uint8_t(word >> 16)), from_e4m3(uint8_t(word >> 24)), __half());
}

}  // namespace blink
