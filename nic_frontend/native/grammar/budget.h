// What a compilation may use: time, memory and depth of all its stages together.
#ifndef BLINK_GRAMMAR_BUDGET_H
#define BLINK_GRAMMAR_BUDGET_H

#include <cstddef>
#include <cstdint>

#include "nic_frontend/native/grammar/compiler.h"

namespace blink::grammar {

constexpr uint32_t kNone = 0xffffffffu;

// Ends the compilation: why, and the rule at fault.
struct Refused {
  blink_grammar_status status;
  uint32_t rule = kNone;
};

// Everything that may take long, may need much memory or calls itself asks it. Every method throws Refused.
class Budget {
 public:
  explicit Budget(const blink_grammar_limits& limits);

  // About so many steps of a few nanoseconds each.
  void spend(uint64_t steps = 1) {
    spent_ += steps;
    if (spent_ >= look_at_) look_at_clock();
  }
  void check_moves(size_t n) const;
  void check_nodes(size_t n);
  // So many sets of n vertices, which are kept until an automaton is complete.
  void hold(size_t sets, size_t n);

  // For one attempt more at the same compilation, which has the time that is left of this one's: all of what else it
  // may use, or the eighth part of that, and of the time at most a quarter.
  Budget again() const;
  Budget part() const;

 private:
  friend class Level;
  void look_at_clock();

  blink_grammar_limits limits_;
  uint64_t end_ns_;  // of this thread's time on a processor: others on the machine do not take from it
  uint64_t spent_ = 0, look_at_ = 0, held_ = 0;
  uint32_t depth_ = 0;
};

// While it lives, a function that calls itself is one level deeper, of whichever kind the levels above are.
class Level {
 public:
  explicit Level(Budget& budget);
  ~Level() { --budget_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Budget& budget_;
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_BUDGET_H
