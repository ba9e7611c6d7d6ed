/* Where a slot's request and a sequence have what is theirs: in the ring, and in the scheduler's tables.
 */
#ifndef BLINK_SCHEDULER_TABLES_H
#define BLINK_SCHEDULER_TABLES_H

namespace blink {

template <class P>
BLINK_FN uint32_t Scheduler<P>::lease_of(uint32_t slot) const {
  return slot / (c.n_slots / c.n_leases);
}

template <class P>
BLINK_FN const uint32_t* Scheduler<P>::prompt(uint32_t slot, const blink_descriptor& d) const {
  return c.prompts + uint64_t(lease_of(slot)) * c.prompt_heap + d.prompt_offset;
}

// Of a request that was admitted.
template <class P>
BLINK_FN uint64_t* Scheduler<P>::outputs(uint32_t slot) const {
  return c.outputs + uint64_t(lease_of(slot)) * c.output_heap + c.requests[slot].output_offset;
}

// Behind the records of a request that was admitted: what is told of its answer's tokens, and of its prompt's.
template <class P>
BLINK_FN uint64_t* Scheduler<P>::logprobs(uint32_t slot) const {
  return outputs(slot) + c.requests[slot].output_room;
}

template <class P>
BLINK_FN uint64_t* Scheduler<P>::prompt_logprobs(uint32_t slot) const {
  return logprobs(slot) + uint64_t(c.requests[slot].output_room) * c.requests[slot].logprob_words;
}

template <class P>
BLINK_FN uint32_t* Scheduler<P>::controls(uint32_t sequence) const {
  return t.controls + uint64_t(sequence) * t.control_words;
}

template <class P>
BLINK_FN uint32_t* Scheduler<P>::history(uint32_t sequence) const {
  return t.history + uint64_t(sequence) * t.max_context;
}

template <class P>
BLINK_FN uint32_t* Scheduler<P>::pages(uint32_t sequence) const {
  return t.block_table + uint64_t(sequence) * t.pages_per_sequence;
}

// Tokens of a sequence: what a sequence and the KV cache hold.
template <class P>
BLINK_FN uint64_t Scheduler<P>::longest_context() const {
  return Min()(uint64_t(t.max_context), uint64_t(c.total_pages) * t.page_size);
}

template <class P>
BLINK_FN bool Scheduler<P>::open(const blink_request& r) {
  return r.state != BLINK_STATE_EMPTY && r.state != BLINK_STATE_DECODE_COMPLETED;
}

template <class P>
BLINK_FN bool Scheduler<P>::waiting(const blink_request& r) {
  return r.state == BLINK_STATE_PREFILL_PENDING || r.state == BLINK_STATE_DECODE_PAUSED;
}

}  // namespace blink

#endif
