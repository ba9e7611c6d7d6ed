#include "nic_frontend/native/grammar/budget.h"

#include <time.h>

#include <algorithm>

namespace blink::grammar {

namespace {

constexpr uint32_t kMaxDepth = 2000;         // levels: a stack of 8 MiB has room for four times as many
constexpr uint64_t kBetweenLooks = 1 << 14;  // steps: some 50 us
constexpr uint64_t kHeldPerMove = 8;         // words of memory for each move that there may be
constexpr uint64_t kWordsPerSet = 16;        // that a set takes beside its vertices
constexpr uint32_t kParts = 8, kPartsOfTime = 4;

uint64_t thread_time_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

}  // namespace

Budget::Budget(const blink_grammar_limits& limits)
    : limits_(limits), end_ns_(thread_time_ns() + limits.time_ms * 1'000'000ull) {}

void Budget::look_at_clock() {
  look_at_ = spent_ + kBetweenLooks;
  if (thread_time_ns() > end_ns_) throw Refused{BLINK_GRAMMAR_TOO_SLOW};
}

void Budget::check_moves(size_t n) const {
  if (n > limits_.moves) throw Refused{BLINK_GRAMMAR_TOO_MANY_STATES};
}

void Budget::check_nodes(size_t n) {
  if (n > limits_.nodes) throw Refused{BLINK_GRAMMAR_TOO_MANY_STATES};
  spend();
}

void Budget::hold(size_t sets, size_t n) {
  held_ += sets * (kWordsPerSet + n);
  if (held_ > kHeldPerMove * limits_.moves) throw Refused{BLINK_GRAMMAR_TOO_MANY_STATES};
  spend(sets * n);
}

Budget Budget::again() const {
  Budget found = *this;
  found.held_ = 0;
  return found;
}

Budget Budget::part() const {
  Budget found = again();
  found.limits_ = {limits_.moves / kParts, limits_.nodes / kParts, limits_.time_ms / kPartsOfTime};
  found.end_ns_ = std::min(end_ns_, thread_time_ns() + found.limits_.time_ms * uint64_t{1'000'000});
  return found;
}

Level::Level(Budget& budget) : budget_(budget) {
  if (budget_.depth_ >= kMaxDepth) throw Refused{BLINK_GRAMMAR_TOO_DEEP};
  ++budget_.depth_;
}

}  // namespace blink::grammar
