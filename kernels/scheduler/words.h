/* The packed words of ring.h, taken apart and put together. */
#ifndef BLINK_SCHEDULER_WORDS_H
#define BLINK_SCHEDULER_WORDS_H

#include "platform.h"

namespace blink {

BLINK_FN inline uint32_t low(uint64_t word) {
  return static_cast<uint32_t>(word);
}
BLINK_FN inline uint32_t high(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

// request word: sequence:32 | command:8 | epoch:24
BLINK_FN inline uint32_t request_command(uint64_t word) {
  return high(word) & 0xff;
}
BLINK_FN inline uint32_t request_epoch(uint64_t word) {
  return high(word) >> 8;
}

// status word: sequence:32 | state:4 | reason:8 | count:20
BLINK_FN inline uint64_t status_word(uint32_t sequence, uint32_t state, uint32_t reason, uint32_t count) {
  return sequence | (static_cast<uint64_t>(state | reason << 4 | count << 12) << 32);
}

// output record: token:32 | position:20 | sequence:12
BLINK_FN inline uint64_t output_record(uint32_t token, uint32_t position, uint32_t sequence) {
  return token | (static_cast<uint64_t>((position & BLINK_MAX_COUNT) | sequence << 20) << 32);
}

// lease word {epoch, beat} and lease ack {epoch, state}
BLINK_FN inline uint64_t pair_word(uint32_t first, uint32_t second) {
  return first | (static_cast<uint64_t>(second) << 32);
}

// arrival: claim:39 | order within the claim:13 | slot:12
BLINK_FN inline uint64_t make_arrival(uint64_t claim, uint32_t order, uint32_t slot) {
  return claim << 25 | static_cast<uint64_t>(order) << 12 | slot;
}
BLINK_FN inline uint32_t arrival_slot(uint64_t arrival) {
  return arrival & (BLINK_MAX_SLOTS - 1);
}

}  // namespace blink

#endif
