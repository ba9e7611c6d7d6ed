/* Preemption: a sequence leaves the batch and waits again, when pages run out or when one that waits is more urgent, or
 * its client has more places in the batch than one and another client none (S7).
 */
#ifndef BLINK_SCHEDULER_PREEMPTION_H
#define BLINK_SCHEDULER_PREEMPTION_H

#include "../../ringbuffer/words.h"
#include "admission.h"
#include "arrivals.h"
#include "clients.h"
#include "pages.h"
#include "prefix.h"
#include "requests.h"
#include "sequences.h"
#include "turns.h"

namespace blink {

template <class P>
class Preemption : private Sequences {
 public:
  BLINK_FN Preemption(P& platform, const blink_scheduler_config& config, Clients<P>& clients, PagePool<P>& pool,
                      PrefixCache<P>& prefix, Requests<P>& requests, Turns<P>& turns, Admission<P>& admission)
      : Sequences(config),
        p_(platform),
        clients_(clients),
        pool_(pool),
        prefix_(prefix),
        requests_(requests),
        turns_(turns),
        admission_(admission) {}

  // Preempts sequences until the pages that are free or about to be are enough for every sequence's next token (S7).
  // The pages of a sequence whose last token is on its way come back with that token.
  BLINK_CALLED void make_room() {
    for (;;) {
      uint64_t sums = 0;  // pages needed in the low half, pages about to be free in the high half
      BLINK_ROLLED
      for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
        const blink_sequence& sequence = c_.sequences[i];
        if (sequence.use == BLINK_SEQUENCE_ZOMBIE || ending(sequence)) sums += uint64_t(sequence.n_pages) << 32;
        if (decoding(sequence)) sums += wanted_pages(sequence);
      }
      sums = p_.reduce(sums, Sum());
      if (low(sums) <= pool_.available() + high(sums) || !leave(next_to_leave(nullptr))) break;
    }
    if (s_.n_zombies) requests_.reap();
  }

  // Where the batch is full, the next in line is given the place of one that is less urgent; or of one that is as
  // urgent, if its client has no place and the other's client has several. The one that gives way finds what was
  // computed for it in the prefix cache when it comes back; without one, it would begin anew, which costs more than the
  // wait. Nor does anybody give way while the next in line could not join for lack of pages. False: nobody gives way.
  BLINK_FN bool give_place() {
    auto wants_place = [&](uint64_t arrival) {
      if (arrival == kNone) return false;
      if (!clients_.places_of(c_.requests[arrival_slot(arrival)].client)) return true;
      return c_.priorities && who_yields(arrival) != BLINK_NO_SEQUENCE;
    };
    // Where nobody is to give way, nothing is read for it. What cannot run leaves the line, and another is next.
    if (!c_.prefix_cache || !wants_place(turns_.next_in_line({0, 0}, false).arrival)) return false;
    const uint64_t arrival = admission_.next_ready();
    const uint32_t leaving = who_yields(arrival);
    if (leaving == BLINK_NO_SEQUENCE) return false;
    const uint32_t i = c_.requests[arrival_slot(arrival)].sequence_index;
    return admission_.room_for(i, prefix_.match(i), leaving).joins && leave(leaving);
  }

  // The sequence is preempted, if there is one.
  BLINK_FN bool leave(uint32_t sequence) {
    if (sequence == BLINK_NO_SEQUENCE) return false;
    p_.sync();  // all have seen what they decided by
    if (p_.thread() == 0) preempt(sequence);
    p_.sync();
    return true;
  }

  // Of the sequences that need a further step, the least urgent; of these, those of the client that has most places,
  // which has one more by `newcomer`, if one leaves for it; and of these the youngest. Never the first of all, the
  // oldest of the most urgent ones: it goes on whatever the others do, so there is always progress (S7).
  // BLINK_NO_SEQUENCE: there is none.
  BLINK_CALLED uint32_t next_to_leave(const blink_request* newcomer) {
    auto active = [&](uint32_t i) { return c_.sequences[i].use == BLINK_SEQUENCE_ACTIVE; };
    auto request = [&](uint32_t i) -> const blink_request& { return c_.requests[c_.sequences[i].slot]; };
    uint32_t urgent = ~0u, least = 0;
    uint64_t first = kNone, youngest = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (active(i)) urgent = Min()(urgent, priority_order(request(i).priority));
    }
    urgent = p_.reduce(urgent, Min());
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (active(i) && priority_order(request(i).priority) == urgent) first = Min()(first, request(i).arrival);
    }
    first = p_.reduce(first, Min());
    auto may = [&](uint32_t i) { return active(i) && request(i).arrival != first && !ending(c_.sequences[i]); };
    auto claim = [&](uint32_t i) {  // priority:16 | places in the batch:16, of which there is one at least
      const uint32_t client = c_.sequences[i].client;
      const uint32_t places = clients_.places_of(client) + (newcomer && newcomer->client == client);
      return priority_order(request(i).priority) << 16 | places;
    };
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (may(i)) least = Max()(least, claim(i));
    }
    least = p_.reduce(least, Max());
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (may(i) && claim(i) == least) youngest = Max()(youngest, request(i).arrival);
    }
    youngest = p_.reduce(youngest, Max());
    return least ? c_.requests[arrival_slot(youngest)].sequence_index : BLINK_NO_SEQUENCE;
  }

 private:
  // The sequence that gives its place to the request that arrived then, or BLINK_NO_SEQUENCE.
  BLINK_FN uint32_t who_yields(uint64_t arrival) {
    if (arrival == kNone) return BLINK_NO_SEQUENCE;
    const blink_request& r = c_.requests[arrival_slot(arrival)];
    const uint32_t last = next_to_leave(&r);
    if (last == BLINK_NO_SEQUENCE) return BLINK_NO_SEQUENCE;
    const blink_sequence& sequence = c_.sequences[last];
    const int32_t priority = c_.requests[sequence.slot].priority;
    const bool yields = priority == r.priority
                            ? !clients_.places_of(r.client) && clients_.places_of(sequence.client) > 1
                            : priority > r.priority;
    return yields ? last : BLINK_NO_SEQUENCE;
  }

  // What a request had found before its first token was published is told once; what it finds again it has computed.
  BLINK_FN void preempt(uint32_t sequence) {
    const uint32_t slot = c_.sequences[sequence].slot;
    blink_request& r = c_.requests[slot];
    if (!r.generated && !r.restarted) r.restarted = 1, r.cached = c_.sequences[sequence].cached;
    requests_.pause(slot);
  }

  P& p_;
  Clients<P>& clients_;
  PagePool<P>& pool_;
  PrefixCache<P>& prefix_;
  Requests<P>& requests_;
  Turns<P>& turns_;
  Admission<P>& admission_;
};

}  // namespace blink

#endif
