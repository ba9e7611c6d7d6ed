/* Whose turn it is: clients take turns in the line, and again where prompts share a step (S2).
 *
 * More urgent requests come before all others. Among requests of one priority, which all have unless the backend goes
 * by priorities, the client with the fewest places in the batch is next, and of those with as many the one that has had
 * no turn since it came to the line, or for longest. A client's own requests come in the order of their arrival. So
 * among them, whoever has nothing in the batch waits for those alone that have nothing either and came before, however
 * many requests another client has; and nobody waits for ever, for whoever arrives later comes behind.
 */
#ifndef BLINK_SCHEDULER_TURNS_H
#define BLINK_SCHEDULER_TURNS_H

#include "arrivals.h"
#include "clients.h"
#include "clock.h"
#include "requests.h"
#include "sequences.h"
#include "terms.h"

namespace blink {

// A priority among those of others: from 0, the most urgent, to 255.
BLINK_FN inline uint32_t priority_order(int32_t priority) {
  return uint32_t(priority + 128);
}

// A prompt's place in a plan: priority:16 | prompts of its client that the plan has considered:16.
BLINK_FN inline uint32_t prompt_rank(int32_t priority, uint32_t considered) {
  return priority_order(priority) << 16 | considered;
}

template <class P>
class Turns : private Sequences {
 public:
  BLINK_FN Turns(P& platform, const blink_scheduler_config& config, Clock<P>& clock, Clients<P>& clients,
                 Requests<P>& requests)
      : Sequences(config), p_(platform), clock_(clock), clients_(clients), requests_(requests) {}

  // The place of the next that waits behind `after`, those aside whose payload was found torn just now; also those that
  // are staged, or only others.
  BLINK_CALLED Place next_in_line(Place after, bool unstaged) {
    Place mine = {kNone, kNone};  // of this thread's slots
    for (uint32_t slot = p_.thread(); s_.n_waiting && slot < c_.n_slots; slot += p_.threads()) {
      const blink_request& r = c_.requests[slot];
      if (!waiting(r) || clock_.torn(r) || (unstaged && r.sequence_index != BLINK_NO_SEQUENCE)) continue;
      const Place place = {claim_of(r), r.arrival};
      if (place.is_before(mine) && after.is_before(place)) mine = place;
    }
    const uint64_t claim = p_.reduce(mine.claim, Min());
    if (claim == kNone) return {kNone, kNone};
    return {claim, p_.reduce(mine.claim == claim ? mine.arrival : kNone, Min())};
  }

  // The line changes with each turn that a client has: those who were staged early may be its last by now, and have all
  // sequences that are free. The last behind `place` gives its own back, and is read again later. False: there is none.
  BLINK_FN bool unstage_behind(Place place) {
    Place mine = {0, 0};  // of this thread's slots
    for (uint32_t slot = p_.thread(); slot < c_.n_slots; slot += p_.threads()) {
      const blink_request& r = c_.requests[slot];
      if (!waiting(r) || r.sequence_index == BLINK_NO_SEQUENCE) continue;
      const Place one = {claim_of(r), r.arrival};
      if (mine.is_before(one)) mine = one;
    }
    const uint64_t claim = p_.reduce(mine.claim, Max());
    const Place last = {claim, p_.reduce(mine.claim == claim ? mine.arrival : 0, Max())};
    if (!place.is_before(last)) return false;
    if (p_.thread() == 0) requests_.unstage(c_.requests[arrival_slot(last.arrival)]);
    p_.sync();
    return true;
  }

  // Forgets which prompts were considered.
  BLINK_FN void consider_anew() {
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      c_.sequences[i].considered = c_.sequences[i].behind = 0;
  }

  BLINK_FN void consider(uint32_t considered) {
    const uint32_t client = c_.sequences[considered].client;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (c_.sequences[i].client == client) ++c_.sequences[i].behind;
    }
    if (p_.thread() == 0) c_.sequences[considered].considered = 1;
    p_.sync();
  }

  // Prompts of a client that the plan has considered.
  BLINK_FN uint32_t considered_of(uint32_t client) {
    uint32_t n = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      n += prefilling(c_.sequences[i]) && c_.sequences[i].considered && c_.sequences[i].client == client;
    return p_.reduce(n, Sum());
  }

  // Whether the request that is next in line has its turn before a prompt of this rank. Before ~0u, where there is no
  // prompt, whoever waits has.
  BLINK_FN bool line_is_before(uint32_t rank) {
    if (!c_.priorities && rank == prompt_rank(0, 0)) return false;
    if (rank == ~0u) return true;
    const uint64_t arrival = next_in_line({0, 0}, false).arrival;
    return arrival != kNone && is_before(arrival, rank);
  }

  // Whether the request that arrived then has.
  BLINK_FN bool is_before(uint64_t arrival, uint32_t rank) {
    const blink_request& r = c_.requests[arrival_slot(arrival)];
    return prompt_rank(r.priority, considered_of(r.client)) < rank;
  }

  // Of the prompts under way that were not considered yet, the most urgent, of these those whose clients have had the
  // fewest considered, and of these the oldest.
  BLINK_CALLED NextPrompt next_prompt() {
    auto rank_of = [&](const blink_sequence& q) { return prompt_rank(c_.requests[q.slot].priority, q.behind); };
    uint32_t n = 0, rank = ~0u;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      const blink_sequence& sequence = c_.sequences[i];
      if (!prefilling(sequence) || sequence.considered) continue;
      rank = Min()(rank, rank_of(sequence));
      ++n;
    }
    n = p_.reduce(n, Sum());
    if (n == 0) return {BLINK_NO_SEQUENCE, ~0u, 0};
    rank = p_.reduce(rank, Min());
    uint64_t oldest = kNone;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      const blink_sequence& sequence = c_.sequences[i];
      if (prefilling(sequence) && !sequence.considered && rank_of(sequence) == rank)
        oldest = Min()(oldest, c_.requests[sequence.slot].arrival);
    }
    oldest = p_.reduce(oldest, Min());
    return {c_.requests[arrival_slot(oldest)].sequence_index, rank, n - 1};
  }

 private:
  // What decides between clients, before the arrival does: priority:8 | places in the batch:12 | claim of the turn:44.
  BLINK_FN uint64_t claim_of(const blink_request& r) const {
    const uint64_t last = clients_.last_turn(r.client);
    const uint64_t places = Min()(clients_.places_of(r.client), 4095u);
    return uint64_t(priority_order(r.priority)) << 56 | places << 44 | arrival_claim(Max()(r.arrival, last));
  }

  P& p_;
  Clock<P>& clock_;
  Clients<P>& clients_;
  Requests<P>& requests_;
};

}  // namespace blink

#endif
