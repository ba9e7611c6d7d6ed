/* CRC-32C (Castagnoli, reflected; RFC 3720 appendix B.4) over a message of 32-bit words that many threads share.
 *
 * The checksum is linear over GF(2): the word that has j words behind it adds itself * x^(32 (j + 1)) mod P. Thread t
 * of T takes the words with j = t, t + T, t + 2T, ... (coalesced), folds them from the front with Horner's rule in
 * steps of x^(32 T), and moves its sum to the end of the message: by a factor that does not depend on the message's
 * length. The threads' sums are then combined with exclusive or, in any order. A message may be taken in slices, which
 * follow each other in the same way. Polynomials are bit-reflected: bit 31 is
 * x^0.
 */
#ifndef BLINK_SCHEDULER_CRC32C_H
#define BLINK_SCHEDULER_CRC32C_H

#include "platform.h"

namespace blink {

constexpr uint32_t kCastagnoli = 0x82f63b78u;

BLINK_CALLED constexpr uint32_t crc_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= (a >> bit & 1) ? b : 0;
    b = (b >> 1) ^ ((b & 1) ? kCastagnoli : 0);
  }
  return product;
}

constexpr uint32_t kCrcPowers = 13;  // for shifts below 2^13 words: more than a block has threads, or a slice words

struct CrcPowers {
  uint32_t of[kCrcPowers] = {};  // x^(32 * 2^k) mod P
  BLINK_FN constexpr CrcPowers() {
    of[0] = kCastagnoli;  // x^32
    for (uint32_t k = 1; k < kCrcPowers; ++k) of[k] = crc_multiply(of[k - 1], of[k - 1]);
  }
};

// x^(32 n) mod P, for n < 2^kCrcPowers
BLINK_FN inline uint32_t crc_shift(uint32_t n) {
  constexpr CrcPowers powers;
  uint32_t result = 0;
  for (uint32_t k = 0; n >> k; ++k) {
    if (n >> k & 1) result = result ? crc_multiply(result, powers.of[k]) : powers.of[k];
  }
  return n ? result : 0x80000000u;
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

// ~crc of a message, of which `before` is that of the words in front and `share` that of the `n` words behind them as
// CrcShare gives it.
BLINK_FN inline uint32_t crc_join(uint32_t before, uint32_t n, uint32_t share) {
  return (before ? crc_multiply(before, crc_shift(n)) : 0) ^ share;
}

// One thread's share of a slice of `length` words, in front of which lies the rest of its message unless it `begins`
// there: call `add` for its words `n_words() - 1` to 0, then `share`.
class CrcShare {
 public:
  BLINK_FN CrcShare(uint32_t length, bool begins, unsigned thread, unsigned threads)
      : length_(length), thread_(thread), threads_(threads), step_(crc_shift(threads)), begins_(begins) {}
  BLINK_FN uint32_t n_words() const { return length_ > thread_ ? (length_ - 1 - thread_) / threads_ + 1 : 0; }
  // Where in the slice the thread's word `i` is.
  BLINK_FN uint32_t index(uint32_t i) const { return length_ - 1 - thread_ - i * threads_; }
  BLINK_FN void add(uint32_t i, uint32_t word) {
    if (begins_ && index(i) == 0) word ^= ~0u;
    sum_ = fold(sum_) ^ word;
  }
  // The thread's summand of ~crc.
  BLINK_FN uint32_t share() const { return sum_ ? crc_multiply(sum_, crc_shift(thread_ + 1)) : 0; }

 private:
  BLINK_FN uint32_t fold(uint32_t sum) const {
#ifndef __CUDACC__
    if (threads_ == 1) return kCrcTables.fold(sum);
#endif
    return crc_multiply(sum, step_);
  }

  const uint32_t length_, thread_, threads_, step_;
  const bool begins_;
  uint32_t sum_ = 0;
};

}  // namespace blink

#endif
