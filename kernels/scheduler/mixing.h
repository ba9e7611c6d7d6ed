/* Spreads the bits of a word over all of it: the hash of what the scheduler's parts look up. */
#ifndef BLINK_SCHEDULER_MIXING_H
#define BLINK_SCHEDULER_MIXING_H

#include "platform.h"

namespace blink {

BLINK_FN inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  return x ^ x >> 32;
}

}  // namespace blink

#endif
