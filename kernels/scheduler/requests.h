/* A request's life, in the ring's eyes and in the scheduler's: what writes its state, which sequence is its own, what
 * that sequence is used for, and how many there are of each (S3). Nothing else writes these.
 *
 * A request arrives and waits; it is assigned a sequence when it has been read (STAGED), joins the batch with it
 * (ACTIVE), may pause and wait again, and finishes. A sequence that leaves the batch is a ZOMBIE until the last step
 * that was planned with it has completed (S5, S6).
 */
#ifndef BLINK_SCHEDULER_REQUESTS_H
#define BLINK_SCHEDULER_REQUESTS_H

namespace blink {

// Ends a request in the ring's eyes. Its sequence, if it has one, lives on as a zombie until its last step is done (S5,
// S6).
template <class P>
BLINK_FN void Scheduler<P>::finish(uint32_t slot, uint32_t reason) {
  blink_request& r = c.requests[slot];
  if (waiting(r)) {
    p.add(&s.n_waiting, ~0u);
    if (r.sequence_index != BLINK_NO_SEQUENCE) unstage(r);
  } else {
    if (r.generated) {
      p.add(&s.ended_prompts, uint64_t(r.prompt_tokens - r.cached));
      p.add(&s.ended_outputs, uint64_t(r.generated));
    }
    detach(r.sequence_index);
  }
  r.sequence_index = BLINK_NO_SEQUENCE;
  r.state = BLINK_STATE_DECODE_COMPLETED;
  uint64_t& counter = reason >= BLINK_REASON_ERROR_FIRST ? s.stats.failed
                      : reason == BLINK_REASON_CANCELLED ? s.stats.cancelled
                                                         : s.stats.completed;
  p.add(&counter, uint64_t(1));
  publish(slot, reason);
}

template <class P>
BLINK_FN void Scheduler<P>::finish_all(uint32_t reason) {
  p.sync();
  for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
    if (open(c.requests[slot])) finish(slot, reason);
  }
  p.sync();
}

// A waiting request has no sequence any more.
template <class P>
BLINK_FN void Scheduler<P>::unstage(blink_request& r) {
  give_grammar_back(r.sequence_index);
  c.sequences[r.sequence_index].use = BLINK_SEQUENCE_FREE;
  r.sequence_index = BLINK_NO_SEQUENCE;
  p.add(&s.n_staged, ~0u);
}

template <class P>
BLINK_FN void Scheduler<P>::detach(uint32_t sequence) {
  c.sequences[sequence].use = BLINK_SEQUENCE_ZOMBIE;
  p.add(&s.n_active, ~0u);
  count_places(c.sequences[sequence].client, ~0u);
  p.add(&s.n_zombies, 1u);
}

// Returns the pages of zombies whose last step has completed.
template <class P>
BLINK_FN void Scheduler<P>::reap() {
  for (;;) {
    uint32_t dead = BLINK_NO_SEQUENCE;
    for (uint32_t i = tid; i < t.n_sequences; i += threads) {
      if (c.sequences[i].use == BLINK_SEQUENCE_ZOMBIE && c.sequences[i].last_step <= committed) dead = Min()(dead, i);
    }
    dead = p.reduce(dead, Min());
    if (dead == BLINK_NO_SEQUENCE) return;
    pool.give_back(pages(dead), c.sequences[dead].n_pages);
    if (tid == 0) {
      give_grammar_back(dead);
      --s.n_zombies;
      c.sequences[dead].use = BLINK_SEQUENCE_FREE;
    }
    p.sync();
  }
}

template <class P>
BLINK_FN void Scheduler<P>::publish(uint32_t slot, uint32_t reason) {
  const blink_request& r = c.requests[slot];
  p.release(&c.progress[slot].status, status_word({r.submission, r.state, reason, r.generated}));
}

// A request's payload or grammar does not match: it is read again, or refused for `reason` when it has been so for too
// long. Called by one thread. Nonzero if it was refused.
template <class P>
BLINK_FN uint32_t Scheduler<P>::tear(uint32_t slot, uint32_t reason) {
  blink_request& r = c.requests[slot];
  p.add(&s.stats.torn_payloads, uint64_t(1));
  r.torn_last_ns = now;
  if (r.torn_since_ns == 0) r.torn_since_ns = now;
  if (now - r.torn_since_ns <= BLINK_TORN_PAYLOAD_TIMEOUT_NS) return 0;
  finish(slot, reason);
  return 1;
}

// Before the first request: none has a sequence.
template <class P>
BLINK_FN void Scheduler<P>::forget_requests() {
  for (uint32_t slot = tid; slot < c.n_slots; slot += threads) c.requests[slot].sequence_index = BLINK_NO_SEQUENCE;
}

// A frontend has submitted a request, which waits from now on. What follows is for one thread to call.
template <class P>
BLINK_FN void Scheduler<P>::arrive(blink_request& r, uint32_t submission, uint32_t epoch) {
  r.submission = submission;
  r.epoch = epoch;
  r.state = BLINK_STATE_PREFILL_PENDING;
  r.sequence_index = BLINK_NO_SEQUENCE;
  r.generated = r.cached = r.restarted = 0;
  r.torn_since_ns = r.torn_last_ns = 0;
  p.add(&s.n_waiting, 1u);
}

// The slot is its frontend's again.
template <class P>
BLINK_FN void Scheduler<P>::vacate(uint32_t slot) {
  blink_request& r = c.requests[slot];
  r.state = BLINK_STATE_EMPTY;
  r.generated = 0;
  publish(slot);
}

// A waiting request has been read into a sequence, which is its own from now on.
template <class P>
BLINK_FN blink_sequence& Scheduler<P>::assign(uint32_t slot, uint32_t sequence) {
  blink_request& r = c.requests[slot];
  blink_sequence& assigned = c.sequences[sequence];
  assigned = {};
  assigned.use = BLINK_SEQUENCE_STAGED;
  assigned.slot = slot;
  assigned.client = r.client;
  assigned.grammar = BLINK_NO_GRAMMAR;
  r.sequence_index = sequence;
  p.add(&s.n_staged, 1u);
  return assigned;
}

// A request that is staged joins the batch. No other thread changes the counts meanwhile.
template <class P>
BLINK_FN void Scheduler<P>::join(uint32_t slot) {
  blink_request& r = c.requests[slot];
  ++s.n_active;
  count_places(r.client, 1);
  --s.n_waiting;
  --s.n_staged;
  ++s.stats.admitted;
  hold_grammar(r.sequence_index);
  c.sequences[r.sequence_index].use = BLINK_SEQUENCE_ACTIVE;
  r.state = BLINK_STATE_PREFILL_PROCESSING;
  publish(slot);
}

// A request that is in the batch has published a token and goes on.
template <class P>
BLINK_FN void Scheduler<P>::go_on(uint32_t slot) {
  c.requests[slot].state = BLINK_STATE_DECODE_PROCESSING;
  publish(slot);
}

// A request leaves the batch and waits again. It keeps its arrival, so of its client's that are as urgent it is the
// first to come back, and its published tokens, so nothing is lost.
template <class P>
BLINK_FN void Scheduler<P>::pause(uint32_t slot) {
  blink_request& r = c.requests[slot];
  detach(r.sequence_index);
  r.sequence_index = BLINK_NO_SEQUENCE;
  r.state = BLINK_STATE_DECODE_PAUSED;
  p.add(&s.n_waiting, 1u);
  ++s.stats.preempted;
  publish(slot);
}

}  // namespace blink

#endif
