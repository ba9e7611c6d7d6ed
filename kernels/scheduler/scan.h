/* The look at all request words of the ring that every turn of the scheduler's loop begins with. */
#ifndef BLINK_SCHEDULER_SCAN_H
#define BLINK_SCHEDULER_SCAN_H

#include "platform.h"

namespace blink {

// Calls `changed` with each slot of this thread's whose word is not the one that was `seen`. Loads are relaxed, and of
// two words each, so that several are under way at once: whoever needs what the word announces acquires it.
template <class P, class F>
BLINK_FN void scan_words(const P& p, const uint64_t* words, const uint64_t* seen, uint32_t n_slots, F changed) {
  for (uint32_t i = 2 * p.thread(); i < n_slots; i += 2 * p.threads()) {
    const Pair pair = p.load_pair(words + i);
    for (uint32_t k = 0; k < 2; ++k) {
      if ((k ? pair.second : pair.first) != seen[i + k]) changed(i + k);
    }
  }
}

}  // namespace blink

#endif
