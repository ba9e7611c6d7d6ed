/* A request's life, from its arrival to its end. This part alone writes a request's state, which sequence is its own,
 * what that sequence is used for, and how many requests wait and sequences are staged, active and zombies (S3).
 *
 * A request arrives and waits; it is assigned a sequence when it has been read (STAGED), joins the batch with it
 * (ACTIVE), may pause and wait again, and finishes. A sequence that leaves the batch is a ZOMBIE until the last step
 * that was planned with it has completed (S5, S6).
 */
#ifndef BLINK_SCHEDULER_REQUESTS_H
#define BLINK_SCHEDULER_REQUESTS_H

#include "../../ringbuffer/words.h"
#include "clients.h"
#include "clock.h"
#include "grammar_places.h"
#include "pages.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class Requests : private Tables {
 public:
  BLINK_FN Requests(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                    Clients<P>& clients, PagePool<P>& pool, GrammarPlaces<P>& places)
      : Tables(config), p_(platform), steps_(steps), clock_(clock), clients_(clients), pool_(pool), places_(places) {}

  // Before the first request: none has a sequence.
  BLINK_FN void forget_all() {
    for (uint32_t slot = p_.thread(); slot < c_.n_slots; slot += p_.threads())
      c_.requests[slot].sequence_index = BLINK_NO_SEQUENCE;
  }

  BLINK_CALLED void finish_all(uint32_t reason) {
    p_.sync();
    for (uint32_t slot = p_.thread(); slot < c_.n_slots; slot += p_.threads()) {
      if (open(c_.requests[slot])) finish(slot, reason);
    }
    p_.sync();
  }

  // Returns the pages of zombies whose last step has completed.
  BLINK_CALLED void reap() {
    for (;;) {
      uint32_t dead = BLINK_NO_SEQUENCE;
      BLINK_ROLLED
      for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
        if (c_.sequences[i].use == BLINK_SEQUENCE_ZOMBIE && c_.sequences[i].last_step <= steps_.committed())
          dead = Min()(dead, i);
      }
      dead = p_.reduce(dead, Min());
      if (dead == BLINK_NO_SEQUENCE) return;
      pool_.give_back(pages(dead), c_.sequences[dead].n_pages);
      if (p_.thread() == 0) {
        places_.give_back(dead);
        --s_.n_zombies;
        c_.sequences[dead].use = BLINK_SEQUENCE_FREE;
      }
      p_.sync();
    }
  }

  // A frontend has submitted a request, which waits from now on. One thread calls this and what follows.
  BLINK_FN void arrive(blink_request& r, uint32_t submission, uint32_t epoch) {
    r.submission = submission;
    r.epoch = epoch;
    r.state = BLINK_STATE_PREFILL_PENDING;
    r.sequence_index = BLINK_NO_SEQUENCE;
    r.generated = r.cached = r.restarted = 0;
    r.reason = BLINK_REASON_NONE;
    r.torn_since_ns = r.torn_last_ns = 0;
    p_.add(&s_.n_waiting, 1u);
  }

  // The slot is its frontend's again.
  BLINK_FN void vacate(uint32_t slot) {
    blink_request& r = c_.requests[slot];
    r.state = BLINK_STATE_EMPTY;
    r.generated = 0;
    r.reason = BLINK_REASON_NONE;
    publish(slot);
  }

  // A waiting request has been read into a sequence, which is its own from now on.
  BLINK_FN blink_sequence& assign(uint32_t slot, uint32_t sequence) {
    blink_request& r = c_.requests[slot];
    blink_sequence& assigned = c_.sequences[sequence];
    assigned = {};
    assigned.use = BLINK_SEQUENCE_STAGED;
    assigned.slot = slot;
    assigned.client = r.client;
    assigned.grammar = BLINK_NO_GRAMMAR;
    r.sequence_index = sequence;
    p_.add(&s_.n_staged, 1u);
    return assigned;
  }

  // A staged request joins the batch. No other thread changes the counts meanwhile.
  BLINK_FN void join(uint32_t slot) {
    blink_request& r = c_.requests[slot];
    ++s_.n_active;
    clients_.count_places(r.client, 1);
    --s_.n_waiting;
    --s_.n_staged;
    ++s_.stats.admitted;
    places_.hold(r.sequence_index);
    c_.sequences[r.sequence_index].use = BLINK_SEQUENCE_ACTIVE;
    r.state = BLINK_STATE_PREFILL_PROCESSING;
    publish(slot);
  }

  // A request in the batch has more tokens, and is not at its end. Its frontend is shown that later, as with `end`.
  BLINK_FN void go_on(uint32_t slot) { c_.requests[slot].state = BLINK_STATE_DECODE_PROCESSING; }

  // A request leaves the batch and waits again. It keeps its arrival, so of its client's that are as urgent it is the
  // first to come back, and its published tokens, so nothing is lost.
  BLINK_FN void pause(uint32_t slot) {
    blink_request& r = c_.requests[slot];
    detach(r.sequence_index);
    r.sequence_index = BLINK_NO_SEQUENCE;
    r.state = BLINK_STATE_DECODE_PAUSED;
    p_.add(&s_.n_waiting, 1u);
    ++s_.stats.preempted;
    publish(slot);
  }

  BLINK_FN void finish(uint32_t slot, uint32_t reason) {
    end(slot, reason);
    publish(slot);
  }

  // Ends a request. Its sequence, if it has one, lives on as a zombie until its last step is done (S5, S6).
  BLINK_CALLED void end(uint32_t slot, uint32_t reason) {
    blink_request& r = c_.requests[slot];
    if (waiting(r)) {
      p_.add(&s_.n_waiting, ~0u);
      if (r.sequence_index != BLINK_NO_SEQUENCE) unstage(r);
    } else {
      if (r.generated) {
        p_.add(&s_.ended_prompts, uint64_t(r.prompt_tokens - r.cached));
        p_.add(&s_.ended_outputs, uint64_t(r.generated));
      }
      detach(r.sequence_index);
    }
    r.sequence_index = BLINK_NO_SEQUENCE;
    r.state = BLINK_STATE_DECODE_COMPLETED;
    r.reason = reason;
    uint64_t& counter = reason >= BLINK_REASON_ERROR_FIRST ? s_.stats.failed
                        : reason == BLINK_REASON_CANCELLED ? s_.stats.cancelled
                                                           : s_.stats.completed;
    p_.add(&counter, uint64_t(1));
  }

  // A waiting request has no sequence any more.
  BLINK_FN void unstage(blink_request& r) {
    places_.give_back(r.sequence_index);
    c_.sequences[r.sequence_index].use = BLINK_SEQUENCE_FREE;
    r.sequence_index = BLINK_NO_SEQUENCE;
    p_.add(&s_.n_staged, ~0u);
  }

  // A request's payload or grammar does not match: it is read again, or refused for `reason` when it has been so for
  // too long. Nonzero if it was refused.
  BLINK_FN uint32_t tear(uint32_t slot, uint32_t reason) {
    blink_request& r = c_.requests[slot];
    p_.add(&s_.stats.torn_payloads, uint64_t(1));
    r.torn_last_ns = clock_.now();
    if (r.torn_since_ns == 0) r.torn_since_ns = clock_.now();
    if (clock_.now() - r.torn_since_ns <= BLINK_TORN_PAYLOAD_TIMEOUT_NS) return 0;
    finish(slot, reason);
    return 1;
  }

  // Shows the request's state to its frontend.
  BLINK_FN void publish(uint32_t slot) {
    const blink_request& r = c_.requests[slot];
    p_.release(&c_.progress[slot].status, status_word({r.submission, r.state, r.reason, r.generated}));
  }

 private:
  // A sequence leaves the batch.
  BLINK_FN void detach(uint32_t sequence) {
    c_.sequences[sequence].use = BLINK_SEQUENCE_ZOMBIE;
    p_.add(&s_.n_active, ~0u);
    clients_.count_places(c_.sequences[sequence].client, ~0u);
    p_.add(&s_.n_zombies, 1u);
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  Clients<P>& clients_;
  PagePool<P>& pool_;
  GrammarPlaces<P>& places_;
};

}  // namespace blink

#endif
