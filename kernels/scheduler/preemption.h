/* Preemption: a sequence leaves the batch and waits again, when pages run out or when its client has more places in the
 * batch than one and another client none (S7).
 */
#ifndef BLINK_SCHEDULER_PREEMPTION_H
#define BLINK_SCHEDULER_PREEMPTION_H

namespace blink {

// Preempts sequences until the pages that are free or about to be are enough for every sequence's next token (S7). The
// pages of a sequence whose last token is on its way come back with that token.
template <class P>
BLINK_FN void Scheduler<P>::make_room() {
  for (;;) {
    uint64_t sums = 0;  // pages needed in the low half, pages about to be free in the high half
    for (uint32_t i = tid; i < t.n_sequences; i += threads) {
      const blink_sequence& sequence = c.sequences[i];
      if (sequence.use == BLINK_SEQUENCE_ZOMBIE || ending(sequence)) sums += uint64_t(sequence.n_pages) << 32;
      if (decoding(sequence) && needs_page(sequence)) ++sums;
    }
    sums = p.reduce(sums, Sum());
    if (low(sums) <= pool.available() + high(sums) || !preempt_one(1)) break;
  }
  if (s.n_zombies) reap();
}

// Where the batch is full, the next in line is given a place if its client has none and another client has several. The
// one that gives way finds what was computed for it in the prefix cache when it comes back; without one, it would begin
// anew, which costs more than the wait. False: nobody gives way.
template <class P>
BLINK_FN bool Scheduler<P>::give_place() {
  auto has_no_place = [&](uint64_t arrival) {
    return arrival != kNone && !places_of(c.requests[arrival_slot(arrival)].client);
  };
  // Where nobody is to give way, nothing is read for it. What cannot run leaves the line, and another is next.
  if (!c.prefix_cache || !has_no_place(next_in_line({0, 0}, false).arrival)) return false;
  return has_no_place(next_ready()) && preempt_one(2);
}

// Of the client that has most places, at least `least_places`, the youngest that needs a further step, but never the
// oldest of all (S7). False: there is none.
template <class P>
BLINK_FN bool Scheduler<P>::preempt_one(uint32_t least_places) {
  uint64_t oldest = kNone, youngest = 0;
  uint32_t most = 0;
  auto arrival = [&](uint32_t i) {
    return c.sequences[i].use == BLINK_SEQUENCE_ACTIVE ? c.requests[c.sequences[i].slot].arrival : kNone;
  };
  for (uint32_t i = tid; i < t.n_sequences; i += threads) oldest = Min()(oldest, arrival(i));
  oldest = p.reduce(oldest, Min());
  auto may = [&](uint32_t i) { return arrival(i) != kNone && arrival(i) != oldest && !ending(c.sequences[i]); };
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (may(i)) most = Max()(most, places_of(c.sequences[i].client));
  }
  most = p.reduce(most, Max());
  if (most < least_places) return false;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (may(i) && places_of(c.sequences[i].client) == most) youngest = Max()(youngest, arrival(i));
  }
  youngest = p.reduce(youngest, Max());
  if (tid == 0) preempt(c.requests[arrival_slot(youngest)].sequence_index);
  p.sync();
  return true;
}

// The request keeps its arrival, so of its client it is the first to come back, and its published tokens, so nothing is
// lost.
template <class P>
BLINK_FN void Scheduler<P>::preempt(uint32_t sequence) {
  const uint32_t slot = c.sequences[sequence].slot;
  blink_request& r = c.requests[slot];
  if (!r.generated && !r.restarted) r.restarted = 1, r.cached = c.sequences[sequence].cached;
  detach(sequence);
  r.sequence_index = BLINK_NO_SEQUENCE;
  r.state = BLINK_STATE_DECODE_PAUSED;
  p.add(&s.n_waiting, 1u);
  ++s.stats.preempted;
  publish(slot);
}

}  // namespace blink

#endif
