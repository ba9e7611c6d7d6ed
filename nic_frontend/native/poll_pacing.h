// When the token reader polls next. It polls without a pause while a burst of tokens lasts. Then it sleeps until the
// next burst is due, steps being regular; from then on for an eighth of the time that the burst is overdue, so that
// what arrives waits little compared with what it has already waited. A first token has no due time: it is expected
// from the moment that its request was submitted, and again from the moment that it was admitted.
#ifndef BLINK_FRONTEND_POLL_PACING_H
#define BLINK_FRONTEND_POLL_PACING_H

#include <algorithm>
#include <cstdint>

namespace blink {

class PollPacing {
 public:
  PollPacing(uint64_t spin_ns, uint64_t min_sleep_ns, uint64_t max_sleep_ns)
      : spin_ns_(spin_ns), min_sleep_ns_(min_sleep_ns), max_sleep_ns_(max_sleep_ns) {}

  // A request was submitted or admitted.
  void expect_first_token(uint64_t now) { expected_since_ = now; }

  // A poll found something new. The period is the shortest recent time between two bursts: it follows a shorter one at
  // once, and longer ones slowly.
  void found(uint64_t now) {
    const uint64_t gap = now - last_found_;
    if (gap > spin_ns_) period_ = std::min(gap, period_ + period_ / 8 + min_sleep_ns_);
    last_found_ = now;
  }

  // How long to sleep now; 0 is not at all. `urgent` and `flowing`: there are slots that wait for their first token,
  // and slots that have had it.
  uint64_t sleep(uint64_t now, bool urgent, bool flowing) const {
    const uint64_t silence = now - last_found_;
    if (silence < spin_ns_) return 0;
    uint64_t wanted = UINT64_MAX;
    if (flowing) {
      const uint64_t due = period_ - period_ / 16;
      wanted = silence < due ? due - silence : (silence - due) / 8;
    }
    if (urgent) wanted = std::min(wanted, (now - expected_since_) / 8);
    return std::clamp(wanted, min_sleep_ns_, max_sleep_ns_);
  }

 private:
  const uint64_t spin_ns_, min_sleep_ns_, max_sleep_ns_;
  uint64_t last_found_ = 0, expected_since_ = 0, period_ = 0;
};

}  // namespace blink

#endif  // BLINK_FRONTEND_POLL_PACING_H
