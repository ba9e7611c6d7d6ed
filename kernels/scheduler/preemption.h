/* Preemption: a sequence leaves the batch and waits again, when pages run out or when one that waits is more urgent, or
 * its client has more places in the batch than one and another client none (S7).
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
    if (low(sums) <= pool.available() + high(sums) || !leave(next_to_leave(nullptr))) break;
  }
  if (s.n_zombies) reap();
}

// Where the batch is full, the next in line is given the place of one that is less urgent; or of one that is as urgent,
// if its client has no place and the other's client has several. The one that gives way finds what was computed for it
// in the prefix cache when it comes back; without one, it would begin anew, which costs more than the wait. Nor does
// anybody give way while the next in line could not join for lack of pages. False: nobody gives way.
template <class P>
BLINK_FN bool Scheduler<P>::give_place() {
  auto wants_place = [&](uint64_t arrival) {
    if (arrival == kNone) return false;
    if (!places_of(c.requests[arrival_slot(arrival)].client)) return true;
    return c.priorities && who_yields(arrival) != BLINK_NO_SEQUENCE;
  };
  // Where nobody is to give way, nothing is read for it. What cannot run leaves the line, and another is next.
  if (!c.prefix_cache || !wants_place(next_in_line({0, 0}, false).arrival)) return false;
  const uint64_t arrival = next_ready();
  const uint32_t leaving = who_yields(arrival);
  if (leaving == BLINK_NO_SEQUENCE) return false;
  const uint32_t i = c.requests[arrival_slot(arrival)].sequence_index;
  return room_for(i, match_prefix(i), leaving).joins && leave(leaving);
}

// The sequence that gives its place to the request that arrived then, or BLINK_NO_SEQUENCE.
template <class P>
BLINK_FN uint32_t Scheduler<P>::who_yields(uint64_t arrival) {
  if (arrival == kNone) return BLINK_NO_SEQUENCE;
  const blink_request& r = c.requests[arrival_slot(arrival)];
  const uint32_t last = next_to_leave(&r);
  if (last == BLINK_NO_SEQUENCE) return BLINK_NO_SEQUENCE;
  const blink_sequence& sequence = c.sequences[last];
  const int32_t priority = c.requests[sequence.slot].priority;
  const bool yields =
      priority == r.priority ? !places_of(r.client) && places_of(sequence.client) > 1 : priority > r.priority;
  return yields ? last : BLINK_NO_SEQUENCE;
}

// Of the sequences that need a further step, the least urgent; of these, those of the client that has most places,
// which has one more by `newcomer`, if one leaves for it; and of these the youngest. Never the first of all, the oldest
// of the most urgent ones: it goes on whatever the others do, so there is always progress (S7). BLINK_NO_SEQUENCE:
// there is none.
template <class P>
BLINK_FN uint32_t Scheduler<P>::next_to_leave(const blink_request* newcomer) {
  auto active = [&](uint32_t i) { return c.sequences[i].use == BLINK_SEQUENCE_ACTIVE; };
  auto request = [&](uint32_t i) -> const blink_request& { return c.requests[c.sequences[i].slot]; };
  uint32_t urgent = ~0u, least = 0;
  uint64_t first = kNone, youngest = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (active(i)) urgent = Min()(urgent, priority_order(request(i).priority));
  }
  urgent = p.reduce(urgent, Min());
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (active(i) && priority_order(request(i).priority) == urgent) first = Min()(first, request(i).arrival);
  }
  first = p.reduce(first, Min());
  auto may = [&](uint32_t i) { return active(i) && request(i).arrival != first && !ending(c.sequences[i]); };
  auto claim = [&](uint32_t i) {  // priority:16 | places in the batch:16, of which there is one at least
    const uint32_t client = c.sequences[i].client;
    const uint32_t places = places_of(client) + (newcomer && newcomer->client == client);
    return priority_order(request(i).priority) << 16 | places;
  };
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (may(i)) least = Max()(least, claim(i));
  }
  least = p.reduce(least, Max());
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (may(i) && claim(i) == least) youngest = Max()(youngest, request(i).arrival);
  }
  youngest = p.reduce(youngest, Max());
  return least ? c.requests[arrival_slot(youngest)].sequence_index : BLINK_NO_SEQUENCE;
}

// The sequence is preempted, if there is one.
template <class P>
BLINK_FN bool Scheduler<P>::leave(uint32_t sequence) {
  if (sequence == BLINK_NO_SEQUENCE) return false;
  p.sync();  // all have seen what they decided by
  if (tid == 0) preempt(sequence);
  p.sync();
  return true;
}

// What a request had found before its first token was published is told once; what it finds again it has computed.
template <class P>
BLINK_FN void Scheduler<P>::preempt(uint32_t sequence) {
  const uint32_t slot = c.sequences[sequence].slot;
  blink_request& r = c.requests[slot];
  if (!r.generated && !r.restarted) r.restarted = 1, r.cached = c.sequences[sequence].cached;
  pause(slot);
}

}  // namespace blink

#endif
