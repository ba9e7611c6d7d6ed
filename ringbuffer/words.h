/* The packed words of ring.h, put together and taken apart: C++ and CUDA, for both planes. */
#ifndef BLINK_RING_WORDS_H
#define BLINK_RING_WORDS_H

#include "ring.h"

#ifdef __CUDACC__
#define BLINK_WORD __host__ __device__ inline
#else
#define BLINK_WORD inline
#endif

namespace blink {

BLINK_WORD uint32_t low(uint64_t word) {
  return uint32_t(word);
}
BLINK_WORD uint32_t high(uint64_t word) {
  return uint32_t(word >> 32);
}

// lease word {epoch, beat}, lease ack {epoch, state}
BLINK_WORD uint64_t pair_word(uint32_t first, uint32_t second) {
  return first | uint64_t(second) << 32;
}

// request word: sequence:32 | command:8 | epoch:24
BLINK_WORD uint64_t request_word(uint32_t sequence, uint32_t command, uint32_t epoch) {
  return sequence | uint64_t(command) << 32 | uint64_t(epoch & BLINK_EPOCH_MASK) << 40;
}
BLINK_WORD uint32_t request_command(uint64_t word) {
  return high(word) & 0xff;
}
BLINK_WORD uint32_t request_epoch(uint64_t word) {
  return high(word) >> 8;
}

// status word: sequence:32 | state:4 | reason:8 | count:20
struct Status {
  uint32_t sequence, state, reason, count;
};
BLINK_WORD uint64_t status_word(Status s) {
  return s.sequence | uint64_t(s.state | s.reason << 4 | s.count << 12) << 32;
}
BLINK_WORD Status unpack_status(uint64_t word) {
  return {low(word), high(word) & 0xf, high(word) >> 4 & 0xff, high(word) >> 12};
}

// output record: token:32 | position:20 | sequence:12
BLINK_WORD uint64_t output_record(uint32_t token, uint32_t position, uint32_t sequence) {
  return token | uint64_t((position & BLINK_MAX_COUNT) | sequence << 20) << 32;
}
// event word: attachment:16 | count:48
BLINK_WORD uint64_t event_word(uint32_t attachment, uint64_t count) {
  return (attachment & 0xffff) | count << 16;
}
BLINK_WORD uint32_t event_attachment(uint64_t word) {
  return low(word) & 0xffff;
}
BLINK_WORD uint64_t event_count(uint64_t word) {
  return word >> 16;
}

// A record belongs to (position, sequence), or it is stale or torn (R8).
BLINK_WORD bool record_is(uint64_t record, uint32_t position, uint32_t sequence) {
  return record == output_record(low(record), position, sequence);
}

}  // namespace blink

#endif /* BLINK_RING_WORDS_H */
