/* The scheduler's clock: what time it is, whether the loop itself stood still, and when the next step is due.
 */
#ifndef BLINK_SCHEDULER_CLOCK_H
#define BLINK_SCHEDULER_CLOCK_H

namespace blink {

// The next step is planned when nothing runs, or when the running step is about to end: it can then be launched at
// once, armed, because its gate holds it back (E2).
template <class P>
BLINK_FN bool Scheduler<P>::plan_is_due() const {
  if (phase == BLINK_PHASE_FAILED || in_flight() > 1) return false;
  if (in_flight() == 0) return true;
  if (c.arm_margin_ns == 0) return false;
  const uint64_t expected = c.shape_times[set_of(launched).head->shape].expected_ns;
  const bool prompts = s.n_waiting || last_kind != BLINK_STEP_DECODE;
  // Steps of one shape vary by a percent or so.
  const uint64_t margin = c.arm_margin_ns + expected / 64 + s.plan_ns[prompts];
  return now + margin >= running_since + expected;
}

// The clock, which never goes back here: that of another execution may be a little behind, and then stands still
// until it has caught up. Times are saved at the end of an execution, so the next one notices a stall between them.
template <class P>
BLINK_FN void Scheduler<P>::read_clock() {
  const uint64_t before = now;
  now = broadcast(tid == 0 ? p.now() : 0);
  if (since(before, now) > BLINK_STALL_NS || since(now, before) > BLINK_STATS_INTERVAL_NS) return start_clocks_anew();
  now = Max()(now, before);
}

// Remembers how long the longest turn took (S18), but for one in which the loop stood still. If other threads take
// longer than this one, the next turn has the rest: it begins before they meet.
template <class P>
BLINK_FN void Scheduler<P>::time_turn() {
  if (tid != 0) return;
  const uint64_t took = since(now, p.now());
  if (took <= BLINK_STALL_NS) s.stats.longest_turn_ns = Max()(s.stats.longest_turn_ns, took);
}

// This loop stood still: its process was stopped, or its machine suspended. Or its clock was set back. What others
// are given time for begins anew, because they may have stood still with it, and because what they did meanwhile is
// only seen now (S10).
template <class P>
BLINK_FN void Scheduler<P>::start_clocks_anew() {
  running_since = now;
  for (uint32_t i = tid; i < c.n_leases; i += threads) s.leases[i].changed_ns = now;
  for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
    blink_request& r = c.requests[slot];
    if (r.torn_since_ns) r.torn_since_ns = r.torn_last_ns = now;
  }
  p.sync();
}

// A pause that comes later is as old as the request, and torn by nobody.
template <class P>
BLINK_FN void Scheduler<P>::not_torn(blink_request& r) const {
  r.torn_since_ns = r.torn_last_ns = 0;
}

// It waits for its payload to be whole, and is passed by meanwhile: reading it over and over crosses PCIe (R4).
template <class P>
BLINK_FN bool Scheduler<P>::torn(const blink_request& r) const {
  if (r.sequence_index != BLINK_NO_SEQUENCE || r.torn_since_ns == 0) return false;
  return now - r.torn_last_ns < BLINK_TORN_RETRY_NS + (r.torn_last_ns - r.torn_since_ns) / 2;
}

}  // namespace blink

#endif
