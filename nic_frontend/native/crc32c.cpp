#include "nic_frontend/native/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace blink {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // reflected

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) uint32_t crc32c_instruction(uint32_t crc, const void* data, size_t bytes) {
  auto at = static_cast<const uint8_t*>(data);
  uint64_t state = ~crc;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = _mm_crc32_u64(state, word);
  }
  for (; bytes; ++at, --bytes) state = _mm_crc32_u8(uint32_t(state), *at);
  return ~uint32_t(state);
}
bool has_instruction() {
  uint32_t eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_SSE4_2);
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) uint32_t crc32c_instruction(uint32_t crc, const void* data, size_t bytes) {
  auto at = static_cast<const uint8_t*>(data);
  uint32_t state = ~crc;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = __crc32cd(state, word);
  }
  for (; bytes; ++at, --bytes) state = __crc32cb(state, *at);
  return ~state;
}
bool has_instruction() {
  return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#else
uint32_t crc32c_instruction(uint32_t crc, const void* data, size_t bytes) {
  return crc32c_table(crc, data, bytes);
}
bool has_instruction() {
  return false;
}
#endif

}  // namespace

uint32_t crc32c_table(uint32_t crc, const void* data, size_t bytes) {
  auto at = static_cast<const uint8_t*>(data);
  uint32_t state = ~crc;
  for (; bytes; ++at, --bytes) state = state >> 8 ^ kTable[(state ^ *at) & 0xff];
  return ~state;
}

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
  static const auto chosen = has_instruction() ? crc32c_instruction : crc32c_table;
  return chosen(crc, data, bytes);
}

}  // namespace blink
