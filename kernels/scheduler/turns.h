/* Whose turn it is: clients take turns in the line, and again where prompts share a step (S2).
 *
 * More urgent requests come before all others. Among requests of one priority, which all have unless the backend goes
 * by priorities, the client with the fewest places in the batch is next, and of those with as many the one that has had
 * no turn since it came to the line, or for longest. A client's own requests come in the order of their arrival. So
 * among them, whoever has nothing in the batch waits for those alone that have nothing either and came before, however
 * many requests another client has; and nobody waits for ever, for whoever arrives later comes behind.
 *
 * What a client has and has had is counted in two tables, at places that different bits of its number choose. The
 * smaller count is never too small, and too large only where others share both places.
 */
#ifndef BLINK_SCHEDULER_TURNS_H
#define BLINK_SCHEDULER_TURNS_H

namespace blink {

// A priority among those of others: from 0, the most urgent, to 255.
BLINK_FN inline uint32_t priority_order(int32_t priority) {
  return uint32_t(priority + 128);
}

// A prompt's place in a plan: priority:16 | prompts of its client that the plan has considered:16.
BLINK_FN inline uint32_t prompt_rank(int32_t priority, uint32_t considered) {
  return priority_order(priority) << 16 | considered;
}

// What decides between clients, before the arrival does: priority:8 | places in the batch:12 | claim of the turn:44.
template <class P>
BLINK_FN uint64_t Scheduler<P>::claim_of(const blink_request& r) const {
  const uint64_t last = Min()(count_of(r.client, false).turn, count_of(r.client, true).turn);
  const uint64_t places = Min()(places_of(r.client), 4095u);
  return uint64_t(priority_order(r.priority)) << 56 | places << 44 | arrival_claim(Max()(r.arrival, last));
}

// The place of the next that waits behind `after`, those aside whose payload was found torn just now; also those that
// are staged, or only others.
template <class P>
BLINK_FN Place Scheduler<P>::next_in_line(Place after, bool unstaged) {
  Place mine = {kNone, kNone};  // of this thread's slots
  for (uint32_t slot = tid; s.n_waiting && slot < c.n_slots; slot += threads) {
    const blink_request& r = c.requests[slot];
    if (!waiting(r) || torn(r) || (unstaged && r.sequence_index != BLINK_NO_SEQUENCE)) continue;
    const Place place = {claim_of(r), r.arrival};
    if (place.is_before(mine) && after.is_before(place)) mine = place;
  }
  const uint64_t claim = p.reduce(mine.claim, Min());
  if (claim == kNone) return {kNone, kNone};
  return {claim, p.reduce(mine.claim == claim ? mine.arrival : kNone, Min())};
}

// The line changes with each turn that a client has: those who were staged early may be its last by now, and have all
// sequences that are free. The last behind `place` gives its own back, and is read again later. False: there is none.
template <class P>
BLINK_FN bool Scheduler<P>::unstage_behind(Place place) {
  Place mine = {0, 0};  // of this thread's slots
  for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
    const blink_request& r = c.requests[slot];
    if (!waiting(r) || r.sequence_index == BLINK_NO_SEQUENCE) continue;
    const Place one = {claim_of(r), r.arrival};
    if (mine.is_before(one)) mine = one;
  }
  const uint64_t claim = p.reduce(mine.claim, Max());
  const Place last = {claim, p.reduce(mine.claim == claim ? mine.arrival : 0, Max())};
  if (!place.is_before(last)) return false;
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

// Whether the request that is next in line has its turn before a prompt of this rank. Before ~0u, where there is no
// prompt, whoever waits has.
template <class P>
BLINK_FN bool Scheduler<P>::line_is_before(uint32_t rank) {
  if (!c.priorities && rank == prompt_rank(0, 0)) return false;
  if (rank == ~0u) return true;
  const uint64_t arrival = next_in_line({0, 0}, false).arrival;
  return arrival != kNone && is_before(arrival, rank);
}

// Whether the request that arrived then has.
template <class P>
BLINK_FN bool Scheduler<P>::is_before(uint64_t arrival, uint32_t rank) {
  const blink_request& r = c.requests[arrival_slot(arrival)];
  return prompt_rank(r.priority, considered_of(r.client)) < rank;
}

// Prompts of a client that the plan has considered.
template <class P>
BLINK_FN uint32_t Scheduler<P>::considered_of(uint32_t client) {
  uint32_t n = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads)
    n += prefilling(c.sequences[i]) && c.sequences[i].considered && c.sequences[i].client == client;
  return p.reduce(n, Sum());
}

// Of the prompts under way that were not considered yet, the most urgent, of these those whose clients have had the
// fewest considered, and of these the oldest.
template <class P>
BLINK_FN NextPrompt Scheduler<P>::next_prompt() {
  auto rank_of = [&](const blink_sequence& q) { return prompt_rank(c.requests[q.slot].priority, q.behind); };
  uint32_t n = 0, rank = ~0u;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    const blink_sequence& sequence = c.sequences[i];
    if (!prefilling(sequence) || sequence.considered) continue;
    rank = Min()(rank, rank_of(sequence));
    ++n;
  }
  n = p.reduce(n, Sum());
  if (n == 0) return {BLINK_NO_SEQUENCE, ~0u, 0};
  rank = p.reduce(rank, Min());
  uint64_t oldest = kNone;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    const blink_sequence& sequence = c.sequences[i];
    if (prefilling(sequence) && !sequence.considered && rank_of(sequence) == rank)
      oldest = Min()(oldest, c.requests[sequence.slot].arrival);
  }
  oldest = p.reduce(oldest, Min());
  return {c.requests[arrival_slot(oldest)].sequence_index, rank, n - 1};
}

}  // namespace blink

#endif
