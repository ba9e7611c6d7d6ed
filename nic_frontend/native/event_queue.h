// The bounded queue from the token reader to the event loop: one producer, one consumer, no locks. When it is
// full the reader leaves records in the ring, which is the real buffer, so nothing is lost (F5).
#ifndef BLINK_FRONTEND_EVENT_QUEUE_H
#define BLINK_FRONTEND_EVENT_QUEUE_H

#include <atomic>
#include <memory>

#include "nic_frontend/native/frontend.h"

namespace blink {

class EventQueue {
 public:
  static constexpr uint32_t kEvents = 1u << 13, kTokens = 1u << 16;

  // Producer. The number of tokens an event may carry now; 0 with `full` when not even an empty event fits.
  uint32_t room(bool* full) const {
    *full = event_head_ - event_tail_.load(std::memory_order_acquire) == kEvents;
    return *full ? 0 : kTokens - (token_head_ - token_tail_.load(std::memory_order_acquire));
  }

  // Producer. Whether so many events, with so many tokens in all, have room now.
  bool holds(uint32_t events, uint32_t tokens) const {
    return kEvents - (event_head_ - event_tail_.load(std::memory_order_acquire)) >= events &&
           kTokens - (token_head_ - token_tail_.load(std::memory_order_acquire)) >= tokens;
  }

  // Producer, within `room`.
  void push(const blink_event& event, const uint32_t* tokens) {
    for (uint32_t i = 0; i < event.n_tokens; ++i) tokens_[token_head_++ % kTokens] = tokens[i];
    events_[event_head_ % kEvents] = event;
    published_.store(++event_head_, std::memory_order_release);
  }

  // Consumer. See blink_reader_drain.
  uint32_t pop(blink_event* events, uint32_t max_events, uint32_t* tokens, uint32_t max_tokens) {
    uint32_t tail = event_tail_.load(std::memory_order_relaxed);
    uint32_t token_tail = token_tail_.load(std::memory_order_relaxed);
    const uint32_t head = published_.load(std::memory_order_acquire);
    uint32_t n = 0, n_tokens = 0;
    for (; n < max_events && tail != head; ++n, ++tail) {
      const blink_event& event = events_[tail % kEvents];
      if (n_tokens + event.n_tokens > max_tokens) break;
      for (uint32_t i = 0; i < event.n_tokens; ++i) tokens[n_tokens++] = tokens_[token_tail++ % kTokens];
      events[n] = event;
    }
    token_tail_.store(token_tail, std::memory_order_release);
    event_tail_.store(tail, std::memory_order_release);
    return n;
  }

  bool empty() const {
    return published_.load(std::memory_order_acquire) == event_tail_.load(std::memory_order_relaxed);
  }

 private:
  // Counters run free and wrap; an index is the counter modulo its power of two.
  uint32_t event_head_ = 0, token_head_ = 0;  // producer's
  alignas(128) std::atomic<uint32_t> published_{0};
  alignas(128) std::atomic<uint32_t> event_tail_{0};
  std::atomic<uint32_t> token_tail_{0};
  std::unique_ptr<blink_event[]> events_{new blink_event[kEvents]};
  std::unique_ptr<uint32_t[]> tokens_{new uint32_t[kTokens]};
};

}  // namespace blink

#endif  // BLINK_FRONTEND_EVENT_QUEUE_H
