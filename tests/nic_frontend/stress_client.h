// What a client knows of its requests in the stress ring, and the check of every event that the reader gives it.
#ifndef BLINK_TESTS_STRESS_CLIENT_H
#define BLINK_TESTS_STRESS_CLIENT_H

#include "tests/nic_frontend/stress_ring.h"

struct Client {
  explicit Client(blink_reader* reader) : reader(reader) {}

  blink_reader* const reader;
  struct Open {
    bool busy = false, open = false; /* the slot is taken; its request is wanted, and has not ended */
    uint32_t sequence = 0, next = 0, limit = 0, request = 0;
  } slots[kSlots];
  uint32_t freed = 0;
  std::vector<uint32_t> lost; /* requests */

  void cancel(uint32_t slot) {
    if (!slots[slot].open) return;
    blink_reader_cancel(reader, slot, slots[slot].sequence);
    slots[slot].open = false;
  }

  void drain() {
    const uint32_t n =
        blink_reader_drain(reader, events_.data(), uint32_t(events_.size()), tokens_.data(), uint32_t(tokens_.size()));
    const uint32_t* token = tokens_.data();
    for (uint32_t i = 0; i < n; token += events_[i].n_tokens, ++i) take(events_[i], token);
  }

 private:
  void take(const blink_event& event, const uint32_t* token) {
    Open& slot = slots[event.slot];
    if (!slot.busy || slot.sequence != event.sequence) fail("another request's event", event.slot, event.sequence);
    const bool first = event.n_tokens && slot.next == 0;
    if (event.cached_tokens != (first ? expected_cached(event.slot, event.sequence) : 0))
      fail("a wrong number of cached tokens", event.slot, event.sequence);
    for (uint32_t t = 0; t < event.n_tokens; ++t, ++slot.next) {
      if (token[t] != expected_token(event.slot, event.sequence, slot.next))
        fail("a wrong token", event.slot, event.sequence);
    }
    if (event.kind == BLINK_EVENT_FREED) {
      if (slot.open) fail("freed while open", event.slot, event.sequence);
      slot.busy = false;
      ++freed;
    } else if (event.kind == BLINK_EVENT_LOST || event.kind == BLINK_EVENT_FINISHED) {
      if (event.kind == BLINK_EVENT_LOST)
        lost.push_back(slot.request);
      else if (slot.next != slot.limit)
        fail("tokens are missing", event.slot, event.sequence);
      slot.open = false;
    }
  }

  std::vector<blink_event> events_ = std::vector<blink_event>(256);
  std::vector<uint32_t> tokens_ = std::vector<uint32_t>(1024);
};

#endif  // BLINK_TESTS_STRESS_CLIENT_H
