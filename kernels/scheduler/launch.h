/* Launching: the planned step's graph, and at the end of the launch window this kernel again (S8, S9). */
#ifndef BLINK_SCHEDULER_LAUNCH_H
#define BLINK_SCHEDULER_LAUNCH_H

namespace blink {

template <class P>
BLINK_FN void Scheduler<P>::launch_planned() {
  const uint64_t id = launched + 1;
  const blink_step_head& head = *set_of(id).head;
  int error = 0;
  if (tid == 0) {
    error = launch_with_retry(head.shape, id % p.step_sets());
    blink_step_trace& trace = c.trace[id % BLINK_TRACE_STEPS];
    trace.turn_ns = now;
    trace.launched_ns = p.now();
    uint64_t& usual = s.plan_ns[head.kind != BLINK_STEP_DECODE];  // the longest, slowly forgotten
    // What a launch may take at most: a scheduler that stood still meanwhile has not planned for so long.
    const uint64_t took = Min()(since(now, trace.launched_ns), uint64_t(BLINK_LAUNCH_RETRY_NS));
    usual = took > usual ? took : usual - (usual - took) / 16;
  }
  error = static_cast<int>(broadcast(static_cast<uint32_t>(error)));
  if (error) return fail(BLINK_FAULT_LAUNCH, error);
  if (in_flight() == 0) running_since = now;
  last_kind = head.kind;
  launched = id;
  planned = false;
  ++window;
}

// An executable is refused while the runtime has not retired its last run (S9): rotation makes that rare, retrying
// makes it harmless. Between two attempts this block may stand still for longer than it may retry, and the second
// attempt is then as good as the first: a wait counts for no more than a part of what is allowed.
template <class P>
BLINK_FN int Scheduler<P>::launch_with_retry(uint32_t shape, uint32_t set) {
  uint64_t waited = 0, last = p.now();
  for (;;) {
    const int error = p.launch(c.executables ? c.executables[shape * BLINK_STEP_SETS + set] : 0, shape, set);
    if (error == 0) {
      p.add(&s.stats.launches, uint64_t(1));
      return 0;
    }
    p.add(&s.stats.refused_launches, uint64_t(1));
    const uint64_t tried = p.now();
    waited += Min()(since(last, tried), uint64_t(BLINK_LAUNCH_RETRY_NS / BLINK_LAUNCH_RETRIES));
    if (waited >= BLINK_LAUNCH_RETRY_NS) return error;
    last = tried;
    p.pause(false);
  }
}

template <class P>
BLINK_FN Exit Scheduler<P>::relaunch() {
  p.sync();
  int error = 0;
  if (tid == 0) {
    ++s.stats.relaunches;
    error = p.relaunch();
  }
  error = static_cast<int>(broadcast(static_cast<uint32_t>(error)));
  if (error) {
    fail(BLINK_FAULT_RELAUNCH, error);
    return stop();
  }
  save();
  return Exit::kRelaunch;
}

}  // namespace blink

#endif
