#ifndef BLINK_FRONTEND_CLOCK_H
#define BLINK_FRONTEND_CLOCK_H

#include <chrono>
#include <cstdint>

namespace blink {

inline uint64_t monotonic_ns() {
  return uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace blink

#endif  // BLINK_FRONTEND_CLOCK_H
