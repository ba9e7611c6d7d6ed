/* The addresses of each slot's and each sequence's data, in the ring and in the scheduler's tables, and what a
 * request's record says of it.
 */
#ifndef BLINK_SCHEDULER_TABLES_H
#define BLINK_SCHEDULER_TABLES_H

#include "platform.h"

namespace blink {

constexpr uint32_t kAhead = 8;  // a thread's loads in flight: each crosses PCIe when the ring is in host memory

// Most parts of the scheduler derive from it: the configuration is all that it takes to find everything.
class Tables {
 protected:
  BLINK_FN explicit Tables(const blink_scheduler_config& config) : c_(config), s_(*config.state), t_(config.tables) {}

  BLINK_FN uint32_t lease_of(uint32_t slot) const { return slot / (c_.n_slots / c_.n_leases); }
  BLINK_FN const uint32_t* prompt(uint32_t slot, const blink_descriptor& d) const {
    return c_.prompts + uint64_t(lease_of(slot)) * c_.prompt_heap + d.prompt_offset;
  }
  // The answer of a request that was admitted.
  BLINK_FN uint64_t* outputs(uint32_t slot) const { return c_.outputs + c_.requests[slot].output_at; }
  // The log-probabilities of its answer's tokens, which lie behind the answer, and those of its prompt's.
  BLINK_FN uint64_t* logprobs(uint32_t slot) const { return outputs(slot) + c_.requests[slot].output_room; }
  BLINK_FN uint64_t* prompt_logprobs(uint32_t slot) const {
    return logprobs(slot) + uint64_t(c_.requests[slot].output_room) * c_.requests[slot].logprob_words;
  }

  BLINK_FN uint32_t* controls(uint32_t sequence) const { return t_.controls + uint64_t(sequence) * t_.control_words; }
  BLINK_FN uint32_t* history(uint32_t sequence) const { return t_.history + uint64_t(sequence) * t_.max_context; }
  BLINK_FN uint32_t* pages(uint32_t sequence) const {
    return t_.block_table + uint64_t(sequence) * t_.pages_per_sequence;
  }
  // The number of tokens that a sequence may have: a sequence and the KV cache hold so many.
  BLINK_FN uint64_t longest_context() const {
    return Min()(uint64_t(t_.max_context), uint64_t(c_.total_pages) * t_.page_size);
  }

  BLINK_FN static bool open(const blink_request& r) {
    return r.state != BLINK_STATE_EMPTY && r.state != BLINK_STATE_DECODE_COMPLETED;
  }
  BLINK_FN static bool waiting(const blink_request& r) {
    return r.state == BLINK_STATE_PREFILL_PENDING || r.state == BLINK_STATE_DECODE_PAUSED;
  }
  // A pause that comes later is as old as the request, and torn by nobody.
  BLINK_FN static void not_torn(blink_request& r) { r.torn_since_ns = r.torn_last_ns = 0; }

  const blink_scheduler_config& c_;
  blink_scheduler_state& s_;
  const blink_tables& t_;
};

}  // namespace blink

#endif
