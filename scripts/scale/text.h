// What prompts and answers consist of: the token at each position of a system prompt or a conversation, such that a
// page tells whose it is.
#pragma once
#include <cstdint>

#include "tests/kernels/simulator/synthetic_engine.h"

namespace scale {

constexpr uint32_t kPage = 16, kVocabulary = 1u << 19, kReserved = 2, kLow = 18;

inline uint32_t token(uint32_t label, uint32_t position) {
  const uint32_t mask = (1u << kLow) - 1;
  switch (position % kPage) {
    case 0:
      return kReserved + (label & mask);
    case 1:
      return kReserved + (label >> kLow);
    case 2:
      return kReserved + position / kPage;
    default:
      return kReserved + (simulator::mix(uint64_t(label) << 32 | position) & mask);
  }
}

// Of a page's first tokens.
inline uint32_t label_of(const uint32_t* tokens) {
  return (tokens[0] - kReserved) | (tokens[1] - kReserved) << kLow;
}
inline uint32_t block_of(const uint32_t* tokens) {
  return tokens[2] - kReserved;
}

}  // namespace scale
