/* Launching: the planned step's graph, and at the end of the launch window this kernel again (S8, S9). */
#ifndef BLINK_SCHEDULER_LAUNCH_H
#define BLINK_SCHEDULER_LAUNCH_H

#include "clock.h"
#include "life.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class Launch : private Tables {
 public:
  BLINK_FN Launch(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock, Life<P>& life)
      : Tables(config), p_(platform), steps_(steps), clock_(clock), life_(life) {}

  BLINK_FN void launch_planned() {
    const uint64_t id = steps_.launched() + 1;
    const blink_step_head& head = *steps_.set_of(id).head;
    int error = 0;
    if (p_.thread() == 0) {
      error = launch_with_retry(head.shape, id % p_.step_sets());
      blink_step_trace& trace = c_.trace[id % BLINK_TRACE_STEPS];
      trace.turn_ns = clock_.now();
      trace.launched_ns = p_.now();
      uint64_t& usual = s_.plan_ns[head.kind != BLINK_STEP_DECODE];  // the longest, slowly forgotten
      // What a launch may take at most: a scheduler that stood still meanwhile has not planned for so long.
      const uint64_t took = Min()(since(clock_.now(), trace.launched_ns), uint64_t(BLINK_LAUNCH_RETRY_NS));
      usual = took > usual ? took : usual - (usual - took) / 16;
    }
    error = static_cast<int>(p_.broadcast(static_cast<uint32_t>(error)));
    if (error) return life_.fail(BLINK_FAULT_LAUNCH, error);
    if (steps_.in_flight() == 0) clock_.step_begins();
    steps_.has_launched(id, head.kind);
  }

  BLINK_FN Exit relaunch() {
    p_.sync();
    int error = 0;
    if (p_.thread() == 0) {
      ++s_.stats.relaunches;
      error = p_.relaunch();
    }
    error = static_cast<int>(p_.broadcast(static_cast<uint32_t>(error)));
    if (error) {
      life_.fail(BLINK_FAULT_RELAUNCH, error);
      return life_.stop();
    }
    life_.save();
    return Exit::kRelaunch;
  }

 private:
  // An executable is refused while the runtime has not retired its last run (S9): rotation makes that rare, retrying
  // makes it harmless. Between two attempts this block may stand still for longer than it may retry, and the second
  // attempt is then as good as the first: a wait counts for no more than a part of what is allowed.
  BLINK_FN int launch_with_retry(uint32_t shape, uint32_t set) {
    uint64_t waited = 0, last = p_.now();
    for (;;) {
      const int error = p_.launch(c_.executables ? c_.executables[shape * BLINK_STEP_SETS + set] : 0, shape, set);
      if (error == 0) {
        p_.add(&s_.stats.launches, uint64_t(1));
        return 0;
      }
      p_.add(&s_.stats.refused_launches, uint64_t(1));
      const uint64_t tried = p_.now();
      waited += Min()(since(last, tried), uint64_t(BLINK_LAUNCH_RETRY_NS / BLINK_LAUNCH_RETRIES));
      if (waited >= BLINK_LAUNCH_RETRY_NS) return error;
      last = tried;
      p_.pause(false);
    }
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  Life<P>& life_;
};

}  // namespace blink

#endif
