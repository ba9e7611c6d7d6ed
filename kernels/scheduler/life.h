/* The scheduler's life: how it begins, goes on in the next execution of its kernel (S8), fails (S10) and ends.
 */
#ifndef BLINK_SCHEDULER_LIFE_H
#define BLINK_SCHEDULER_LIFE_H

namespace blink {

template <class P>
BLINK_FN bool Scheduler<P>::finished() const {
  if (phase == BLINK_PHASE_FAILED) return true;
  return phase == BLINK_PHASE_DRAINING && s.n_active == 0 && s.n_waiting == 0 && in_flight() == 0 && !planned;
}

template <class P>
BLINK_FN Exit Scheduler<P>::stop() {
  if (phase != BLINK_PHASE_FAILED) phase = BLINK_PHASE_STOPPED;
  publish_stats();
  save();
  return Exit::kStopped;
}

// The engine cannot go on: every open request is told so, nothing more is launched, and the phase says why (S10). It
// is the last phase, whatever the control word says, and the first fault is the one that is told.
template <class P>
BLINK_FN void Scheduler<P>::fail(blink_fault fault, uint64_t detail) {
  if (phase == BLINK_PHASE_FAILED) return;
  phase = BLINK_PHASE_FAILED;
  if (tid == 0) {
    s.fault = fault;
    s.fault_detail = detail;
    p.release(&header.fault_detail, detail);
    p.release(&header.fault, uint64_t(fault));
  }
  finish_all(BLINK_REASON_ENGINE_FAULT);
}

template <class P>
BLINK_FN void Scheduler<P>::restore() {
  now = s.turn_ns;
  read_clock();
  running_since = settled_at = now;
  launched = s.launched;
  committed = s.committed;
  phase = s.phase == BLINK_PHASE_STARTING ? uint32_t(BLINK_PHASE_SERVING) : s.phase;
  last_kind = s.last_kind;
  planned = s.planned;
  if (s.phase == BLINK_PHASE_STARTING) {
    forget_requests();
    pool.fill();
  }
  p.sync();
}

template <class P>
BLINK_FN void Scheduler<P>::save() {
  p.sync();
  if (tid == 0) {
    s.turn_ns = now;
    s.launched = launched;
    s.committed = committed;
    s.phase = phase;
    s.last_kind = last_kind;
    s.planned = planned;
  }
  p.sync();
}

template <class P>
BLINK_FN void Scheduler<P>::publish_stats() {
  p.sync();
  if (tid == 0) {
    s.stats.running = s.n_active;
    s.stats.waiting = s.n_waiting;
    s.stats.free_pages = pool.available();
    s.stats.cached_pages = pool.idle();
  }
  p.sync();
  const uint64_t* from = reinterpret_cast<const uint64_t*>(&s.stats);
  uint64_t* to = reinterpret_cast<uint64_t*>(&header.stats);
  for (uint32_t i = tid; i < sizeof(blink_stats) / sizeof(uint64_t); i += threads) p.store(to + i, from[i]);
  if (tid == 0) {
    p.store(&header.heartbeat, now);
    p.release(&header.phase, uint64_t(phase));
  }
  p.sync();  // what is counted next was not yet told
}

}  // namespace blink

#endif
