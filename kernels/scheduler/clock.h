/* The scheduler's clock: what time it is, whether the loop itself stood still, and when the next step is due.
 */
#ifndef BLINK_SCHEDULER_CLOCK_H
#define BLINK_SCHEDULER_CLOCK_H

#include "steps.h"
#include "tables.h"

namespace blink {

BLINK_FN inline uint64_t since(uint64_t then, uint64_t at) {
  return at > then ? at - then : 0;
}

template <class P>
class Clock : private Tables {
 public:
  BLINK_FN Clock(P& platform, const blink_scheduler_config& config, Steps<P>& steps)
      : Tables(config), p_(platform), steps_(steps) {}

  // The time at which this turn of the loop began.
  BLINK_FN uint64_t now() const { return now_; }

  // What the step that was launched last is expected to take.
  BLINK_FN uint64_t expected_ns() const {
    return c_.shape_times[steps_.set_of(steps_.launched()).head->shape].expected_ns;
  }

  // The next step is planned when nothing runs, or when the running step is about to end: it can then be launched at
  // once, armed, because its gate holds it back (E2).
  BLINK_FN bool plan_is_due() const {
    if (steps_.in_flight() > 1) return false;
    if (steps_.in_flight() == 0) return true;
    if (c_.arm_margin_ns == 0) return false;
    const uint64_t expected = expected_ns();
    return now_ + margin(expected) >= running_since_ + expected;
  }

  // Whether the last step began so lately that the next one, which has no prompts, waits for company (S25). One behind
  // a copy step has waited before that.
  BLINK_FN bool waits_for_company() const {
    if (c_.min_itl_ns == 0 || steps_.last_kind() == BLINK_STEP_COPY) return false;
    return running_for() + (steps_.in_flight() ? margin(expected_ns()) : 0) < c_.min_itl_ns;
  }

  // The clock, which never goes back here: that of another execution may be a little behind, and then stands still
  // until it has caught up. Times are saved at the end of an execution, so the next one notices a stall between them.
  BLINK_FN void read() {
    const uint64_t before = now_;
    now_ = p_.broadcast(p_.thread() == 0 ? p_.now() : 0);
    if (since(before, now_) > BLINK_STALL_NS || since(now_, before) > BLINK_STATS_INTERVAL_NS) return begin_anew();
    now_ = Max()(now_, before);
  }

  // Remembers how long the longest turn took (S18), but for one in which the loop stood still. If other threads take
  // longer than this one, the next turn has the rest: it begins before they meet.
  BLINK_FN void time_turn() {
    if (p_.thread() != 0) return;
    const uint64_t took = since(now_, p_.now());
    if (took <= BLINK_STALL_NS) s_.stats.longest_turn_ns = Max()(s_.stats.longest_turn_ns, took);
  }

  // It waits for its payload to be whole, and is passed by meanwhile: reading it over and over crosses PCIe (R4).
  BLINK_FN bool torn(const blink_request& r) const {
    if (r.sequence_index != BLINK_NO_SEQUENCE || r.torn_since_ns == 0) return false;
    return now_ - r.torn_last_ns < BLINK_TORN_RETRY_NS + (r.torn_last_ns - r.torn_since_ns) / 2;
  }

  // A step begins to run, and with it the time that it may take.
  BLINK_FN void step_begins() { running_since_ = now_; }
  // How long the running step has been running, or how long ago the last one began.
  BLINK_FN uint64_t running_for() const { return since(running_since_, now_); }

  BLINK_FN void restore() {
    now_ = s_.turn_ns;
    running_since_ = s_.running_since_ns;
    read();
  }
  // One thread calls this.
  BLINK_FN void save() const {
    s_.turn_ns = now_;
    s_.running_since_ns = running_since_;
  }

 private:
  // How long before the running step's expected end the next one is planned. Steps of one shape vary by a percent or
  // so.
  BLINK_FN uint64_t margin(uint64_t expected) const {
    const bool prompts = s_.n_waiting || steps_.last_kind() != BLINK_STEP_DECODE;
    return c_.arm_margin_ns + expected / 64 + s_.plan_ns[prompts];
  }

  // This loop stood still: its process was stopped, or its machine suspended. Or its clock was set back. What others
  // are given time for begins anew, because they may have stood still with it, and because what they did meanwhile is
  // only seen now (S10).
  BLINK_FN void begin_anew() {
    step_begins();
    for (uint32_t i = p_.thread(); i < c_.n_leases; i += p_.threads()) s_.leases[i].changed_ns = now_;
    for (uint32_t slot = p_.thread(); slot < c_.n_slots; slot += p_.threads()) {
      blink_request& r = c_.requests[slot];
      if (r.torn_since_ns) r.torn_since_ns = r.torn_last_ns = now_;
    }
    p_.sync();
  }

  P& p_;
  Steps<P>& steps_;
  // These are the same in every thread, and saved in the state across a relaunch.
  uint64_t now_ = 0;
  uint64_t running_since_ = 0;  // when the running step began, or the last one
};

}  // namespace blink

#endif
