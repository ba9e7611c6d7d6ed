/* Whose turn it is: clients take turns in the line, and again where prompts share a step (S2).
 *
 * The client with the fewest places in the batch is next, and of those with as many the one that has had no turn since
 * it came to the line, or for longest. A client's own requests come in the order of their arrival. So whoever has
 * nothing in the batch waits for those alone that have nothing either and came before, however many requests another
 * client has; and nobody waits for ever, for whoever arrives later comes behind.
 *
 * What a client has and has had is counted in two tables, at places that different bits of its number choose. The
 * smaller count is never too small, and too large only where others share both places.
 */
#ifndef BLINK_SCHEDULER_TURNS_H
#define BLINK_SCHEDULER_TURNS_H

namespace blink {

// What decides between clients: places in the batch:12 | claim and order of the turn:52.
template <class P>
BLINK_FN uint64_t Scheduler<P>::claim_of(const blink_request& r) const {
  const uint64_t last = Min()(count_of(r.client, false).turn, count_of(r.client, true).turn);
  return uint64_t(Min()(places_of(r.client), 4095u)) << 52 | Max()(r.arrival, last) >> 12;
}

// The place of the next that waits behind `after`, those aside whose payload was found torn just now; also those that
// are staged, or only others.
template <class P>
BLINK_FN Place Scheduler<P>::next_in_line(Place after, bool unstaged) {
  Place next = {kNone, kNone};
  for (uint32_t pass = 0; pass < 2; ++pass) {  // first the client, then of its requests the oldest
    uint64_t least = kNone;
    for (uint32_t slot = tid; s.n_waiting && slot < c.n_slots; slot += threads) {
      const blink_request& r = c.requests[slot];
      if (!waiting(r) || torn(r) || (unstaged && r.sequence_index != BLINK_NO_SEQUENCE)) continue;
      const uint64_t claim = claim_of(r);
      if (claim < after.client || (claim == after.client && r.arrival <= after.arrival)) continue;
      if (pass == 0 || claim == next.client) least = Min()(least, pass ? r.arrival : claim);
    }
    (pass ? next.arrival : next.client) = p.reduce(least, Min());
    if (next.client == kNone) break;
  }
  return next;
}

// The line changes with each turn that a client has: those who were staged early may be its last by now, and have all
// sequences that are free. The last behind `place` gives its own back, and is read again later. False: there is none.
template <class P>
BLINK_FN bool Scheduler<P>::unstage_behind(Place place) {
  Place last = place;
  for (uint32_t pass = 0; pass < 2; ++pass) {
    uint64_t most = 0;
    for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
      const blink_request& r = c.requests[slot];
      if (!waiting(r) || r.sequence_index == BLINK_NO_SEQUENCE) continue;
      const uint64_t claim = claim_of(r);
      if (pass == 0 || claim == last.client) most = Max()(most, pass ? r.arrival : claim);
    }
    (pass ? last.arrival : last.client) = p.reduce(most, Max());
  }
  if (last.client < place.client || (last.client == place.client && last.arrival <= place.arrival)) return false;
  if (tid == 0) unstage(c.requests[arrival_slot(last.arrival)]);
  p.sync();
  return true;
}

// A request of the client was admitted: what else of it waits comes behind all who wait now.
template <class P>
BLINK_FN void Scheduler<P>::had_turn(uint32_t client) {
  if (tid == 0) {
    ++s.claims;
    for (uint32_t second = 0; second < 2; ++second) count_of(client, second).turn = make_turn(s.claims);
  }
  p.sync();
}

// Forgets which prompts were considered.
template <class P>
BLINK_FN void Scheduler<P>::consider_anew() {
  for (uint32_t i = tid; i < t.n_sequences; i += threads) c.sequences[i].considered = c.sequences[i].behind = 0;
}

template <class P>
BLINK_FN void Scheduler<P>::consider(uint32_t considered) {
  const uint32_t client = c.sequences[considered].client;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (c.sequences[i].client == client) ++c.sequences[i].behind;
  }
  if (tid == 0) c.sequences[considered].considered = 1;
  p.sync();
}

// Whether the request that is next in line has its turn before a prompt with so many of its client's `behind` it.
template <class P>
BLINK_FN bool Scheduler<P>::line_is_before(uint32_t behind) {
  if (behind == 0) return false;
  const uint64_t arrival = next_in_line({0, 0}, false).arrival;
  return arrival != kNone && considered_of(c.requests[arrival_slot(arrival)].client) < behind;
}

// Prompts of a client that the plan has considered.
template <class P>
BLINK_FN uint32_t Scheduler<P>::considered_of(uint32_t client) {
  uint32_t n = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads)
    n += prefilling(c.sequences[i]) && c.sequences[i].considered && c.sequences[i].client == client;
  return p.reduce(n, Sum());
}

// Of the prompts under way that were not considered yet, the oldest of those whose clients have had the fewest
// considered.
template <class P>
BLINK_FN NextPrompt Scheduler<P>::next_prompt() {
  uint32_t n = 0, behind = ~0u;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    const blink_sequence& sequence = c.sequences[i];
    if (!prefilling(sequence) || sequence.considered) continue;
    behind = Min()(behind, sequence.behind);
    ++n;
  }
  n = p.reduce(n, Sum());
  if (n == 0) return {BLINK_NO_SEQUENCE, 0, 0};
  behind = p.reduce(behind, Min());
  uint64_t oldest = kNone;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    const blink_sequence& sequence = c.sequences[i];
    if (prefilling(sequence) && !sequence.considered && sequence.behind == behind)
      oldest = Min()(oldest, c.requests[sequence.slot].arrival);
  }
  oldest = p.reduce(oldest, Min());
  return {c.requests[arrival_slot(oldest)].sequence_index, behind, n - 1};
}

}  // namespace blink

#endif
