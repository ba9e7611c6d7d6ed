// The words of ring.h, packed and unpacked.
#ifndef BLINK_FRONTEND_WORDS_H
#define BLINK_FRONTEND_WORDS_H

#include "ringbuffer/ring.h"

namespace blink {

inline uint64_t request_word(uint32_t sequence, uint32_t command, uint32_t epoch) {
  return sequence | uint64_t(command) << 32 | uint64_t(epoch & BLINK_EPOCH_MASK) << 40;
}

inline uint64_t pair_word(uint32_t low, uint32_t high) {
  return low | uint64_t(high) << 32;
}
inline uint32_t low_half(uint64_t word) {
  return uint32_t(word);
}
inline uint32_t high_half(uint64_t word) {
  return uint32_t(word >> 32);
}

struct Status {
  uint32_t sequence, state, reason, count;
  explicit Status(uint64_t word)
      : sequence(uint32_t(word)), state(word >> 32 & 0xf), reason(word >> 36 & 0xff), count(word >> 44) {}
};

// A record belongs to (position, sequence) or it is stale or torn (F3).
inline bool record_is(uint64_t record, uint32_t position, uint32_t sequence) {
  return (record >> 32 & BLINK_MAX_COUNT) == position && record >> 52 == (sequence & 0xfff);
}
inline uint32_t record_token(uint64_t record) {
  return uint32_t(record);
}

}  // namespace blink

#endif  // BLINK_FRONTEND_WORDS_H
