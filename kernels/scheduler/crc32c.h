/* CRC-32C (Castagnoli, reflected; RFC 3720 appendix B.4) over a message of 32-bit words that many threads share.
 *
 * The checksum is linear over GF(2): word i of n adds w_i * x^(32 (n - i)) mod P. Thread t takes words t, t + T, t +
 * 2T, ... (coalesced), folds them with Horner's rule in steps of x^(32 T), and moves its sum to the end of the message;
 * the threads' sums are then combined with exclusive or, in any order. Polynomials are bit-reflected: bit 31 is x^0.
 */
#ifndef BLINK_SCHEDULER_CRC32C_H
#define BLINK_SCHEDULER_CRC32C_H

#include "platform.h"

namespace blink {

constexpr uint32_t kCastagnoli = 0x82f63b78u;

BLINK_FN inline uint32_t crc_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= (a >> bit & 1) ? b : 0;
    b = (b >> 1) ^ ((b & 1) ? kCastagnoli : 0);
  }
  return product;
}

// x^(32 n) mod P
BLINK_FN inline uint32_t crc_shift(uint32_t n) {
  uint32_t square = 0x80000000u >> 31;                        // x^31
  square = (square >> 1) ^ ((square & 1) ? kCastagnoli : 0);  // x^32
  uint32_t result = 0x80000000u;
  for (; n; n >>= 1) {
    if (n & 1) result = crc_multiply(result, square);
    square = crc_multiply(square, square);
  }
  return result;
}

#ifndef __CUDACC__
// a * x^32 mod P by tables of what each byte becomes: on a host, one thread folds whole messages.
class CrcTables {
 public:
  CrcTables() {
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t byte = 0; byte < 256; ++byte) byte_[i][byte] = crc_multiply(byte << 8 * i, crc_shift(1));
    }
  }
  uint32_t fold(uint32_t a) const {
    return byte_[0][a & 255] ^ byte_[1][a >> 8 & 255] ^ byte_[2][a >> 16 & 255] ^ byte_[3][a >> 24];
  }

 private:
  uint32_t byte_[4][256];
};
inline const CrcTables kCrcTables;
#endif

// One thread's share of a message of `length` words: call `add` for each of its words in order, then `share`.
struct CrcShare {
  uint32_t length, stride, step, sum = 0, next;
  BLINK_FN CrcShare(uint32_t length, unsigned thread, unsigned threads)
      : length(length), stride(threads), step(crc_shift(threads)), next(thread) {}
  BLINK_FN void add(uint32_t word) {
    if (next == 0) word ^= ~0u;
    sum = fold(sum) ^ word;
    next += stride;
  }
  BLINK_FN uint32_t fold(uint32_t sum) const {
#ifndef __CUDACC__
    if (stride == 1) return kCrcTables.fold(sum);
#endif
    return crc_multiply(sum, step);
  }
  // The thread's summand of ~crc.
  BLINK_FN uint32_t share() const { return sum ? crc_multiply(sum, crc_shift(length + stride - next)) : 0; }
};

}  // namespace blink

#endif
