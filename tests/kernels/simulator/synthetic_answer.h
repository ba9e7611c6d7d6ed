/* What simulated requests answer: a function of the request, the position and the token before. */
#pragma once
#include <cstdint>

#include "kernels/step.h"

namespace simulator {

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint32_t kVocab = 1000, kEos = 1;

// What a request with this seed answers at output position `index`, after token `previous`. A quarter of all random
// seeds soon come to where there is no token to sample. A third repeat themselves for a while, so that what they answer
// can be guessed.
inline uint32_t answer(uint64_t seed, uint32_t index, uint32_t previous) {
  const uint64_t h = mix(seed * 1000003 + index * 7919 + previous);
  if (seed % 3 == 0 && h % 16 != 0 && h % 16 != 1) return 2 + mix(seed + previous) % 7;
  if (seed >> 62 == 1 && h % 16 == 1) return BLINK_NO_TOKEN;
  return h % 64 == 0 ? kEos : 2 + h % (kVocab - 2);
}

}  // namespace simulator
