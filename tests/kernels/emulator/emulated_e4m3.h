/* fp8 (e4m3) for the emulator: 4 bits of exponent, 3 of mantissa, no infinity; 0x7f is no number. */
namespace blink {

constexpr SmallFloat kE4m3 = {3, -6};

inline std::vector<float> e4m3_values() {
  std::vector<float> values(256, NAN);
  for (int code = 0; code < 0x7f; ++code) values[code] = kE4m3.value(code), values[code | 0x80] = -values[code];
  return values;
}
inline float from_e4m3(uint8_t code) {
  static const std::vector<float> values = e4m3_values();
  return values[code];
}

inline uint8_t to_e4m3(float x) {
  if (x != x) return 0x7f;
  const float size = std::min(fabsf(x), 448.0f);
  return uint8_t((std::signbit(x) ? 0x80 : 0) | kE4m3.code(size));
}
inline uint32_t to_e4m3(float a, float b, float c, float d) {
  return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | uint32_t(to_e4m3(d)) << 24;
}
inline void to_float16s(uint32_t word, uint32_t& first, uint32_t& second) {
  first = pack_halves(from_e4m3(uint8_t(word)), from_e4m3(uint8_t(word >> 8)), __half());
  second = pack_halves(from_e4m3(uint8_t(word >> 16)), from_e4m3(uint8_t(word >> 24)), __half());
}

}  // namespace blink
