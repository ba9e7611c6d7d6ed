/* The queue of KV events: what became of the prefix cache's pages and is to be told to a reader (kv_event_log.h writes
 * it).
 *
 * It lies in device memory, so that neither linking a page nor evicting one waits for the ring, or for the reader.
 * Nothing is queued while nobody follows. A queue that overflows is noticed when it is written: then it is dropped, and
 * everything is told anew (S20).
 */
#ifndef BLINK_SCHEDULER_KV_EVENTS_H
#define BLINK_SCHEDULER_KV_EVENTS_H

#include "platform.h"

namespace blink {

// A place in the queue: page:30 | kind:2 | name:32, the low half of what the page's content is called.
struct QueuedKvEvent {
  uint32_t kind, page, name;  // kind: enum blink_kv_event_kind

  BLINK_FN static QueuedKvEvent unpack(uint64_t word) {
    return {uint32_t(word >> 30 & 3) + BLINK_KV_EVENT_STORED, uint32_t(word) & 0x3fffffff, uint32_t(word >> 32)};
  }
  BLINK_FN uint64_t pack() const { return page | uint64_t(kind - BLINK_KV_EVENT_STORED) << 30 | uint64_t(name) << 32; }
};

template <class P>
class KvEventQueue {
 public:
  BLINK_FN KvEventQueue(P& platform, const blink_scheduler_config& config)
      : p_(platform), c_(config), s_(config.state->kv_events) {}

  BLINK_FN uint64_t tail() const { return s_.tail; }
  BLINK_FN void put(uint64_t place, QueuedKvEvent event) {
    c_.kv_event_queue[place & (c_.n_kv_event_queue - 1)] = event.pack();
  }

  // A page can be found from now on. It is told at this place of the queue, which `grow` must have it reach: pages that
  // threads link side by side come in their order.
  BLINK_FN void stored(uint32_t page, uint64_t place) {
    if (!following()) return;
    c_.kv_event_told[page] = s_.round;
    put(place, {BLINK_KV_EVENT_STORED, page, uint32_t(c_.pages[page].content)});
  }
  BLINK_FN void grow(uint32_t n) {
    if (following()) s_.tail += n;
  }
  // The same in no order among those of other threads.
  BLINK_FN void stored(uint32_t page) {
    if (following()) stored(page, p_.add(&s_.tail, uint64_t(1)));
  }
  // A page is about to cease to be findable. One that nobody was told about goes silently.
  BLINK_FN void removed(uint32_t page) {
    if (!following() || !told(page)) return;
    c_.kv_event_told[page] = 0;
    put(p_.add(&s_.tail, uint64_t(1)), {BLINK_KV_EVENT_REMOVED, page, uint32_t(c_.pages[page].content)});
  }
  BLINK_FN bool told(uint32_t page) const { return c_.kv_event_told[page] == s_.round; }

 private:
  BLINK_FN bool following() const { return c_.kv_event_capacity && s_.following; }

  P& p_;
  const blink_scheduler_config& c_;
  blink_kv_event_state& s_;
};

}  // namespace blink

#endif
