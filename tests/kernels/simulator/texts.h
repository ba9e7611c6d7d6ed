/* What the scripts of prompts and of prefixes share: texts, and waiting for answers. */
#pragma once

#include "scripted.h"

namespace simulator {

using Tokens = std::vector<uint32_t>;
constexpr uint32_t kPage = 16;

inline Tokens text(uint32_t seed, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(mix(uint64_t(seed) << 32 | i) % kVocab);
  return tokens;
}

// Waits for the answers of these slots, each of which ends by its length.
inline void finish(ScriptedSimulation& w, uint32_t first, uint32_t last) {
  const bool done = w.until([&] {
    for (uint32_t slot = first; slot <= last; ++slot) {
      if (!w.completed(slot)) return false;
    }
    return true;
  });
  w.expect(done, "a request waits for ever");
  for (uint32_t slot = first; slot <= last; ++slot)
    w.expect(w.status(slot).reason == BLINK_REASON_LENGTH, "a request failed");
}

}  // namespace simulator
