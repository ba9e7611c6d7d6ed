/* The log of KV events: the queue of kv_events.h goes into the ring, as far as the reader has made room, and no
 * further.
 *
 * A page is told as stored when the step that computes it has completed, and not at all if it has been removed by then.
 * Whoever attaches, or has fallen so far behind that the queue overflowed, is told everything anew: `cleared`, then all
 * pages that can be found, in the order of their numbers and amid what happens meanwhile, then `complete` (S20). Such a
 * round begins when the reader has read all that was written, so a reader that is too slow costs one round at a time,
 * and one that is gone costs nothing.
 *
 * It is written only in turns of the loop that launch nothing, at most BLINK_SCHEDULER_THREADS records in each.
 */
#ifndef BLINK_SCHEDULER_KV_EVENT_LOG_H
#define BLINK_SCHEDULER_KV_EVENT_LOG_H

#include "../../ringbuffer/words.h"
#include "clock.h"
#include "kv_events.h"
#include "steps.h"
#include "tables.h"

namespace blink {

template <class P>
class KvEventLog : private Tables {
 public:
  BLINK_FN KvEventLog(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                      KvEventQueue<P>& events)
      : Tables(config), p_(platform), steps_(steps), clock_(clock), events_(events) {}

  // Who reads, and how far it is. A count that it cannot have read changes nothing.
  BLINK_FN void observe_reader() {
    if (last_event_scan_ && clock_.now() - last_event_scan_ < BLINK_KV_EVENT_SCAN_NS) return;
    last_event_scan_ = clock_.now();
    const uint64_t word = p_.broadcast(p_.thread() == 0 ? p_.acquire(&c_.kv_events->reader) : 0);
    if (p_.thread() == 0) {
      blink_kv_event_state& e = s_.kv_events;
      const uint64_t count = event_count(word);
      if (event_attachment(word) != e.attachment) {
        e.attachment = event_attachment(word);
        e.following = 0;
        e.written = e.read = 0;
        p_.release(&c_.kv_events->written, event_word(e.attachment, 0));
      } else if (count > e.read && count <= e.written) {
        e.read = count;
      }
    }
    p_.sync();
  }

  BLINK_FN void tell() {
    const blink_kv_event_state& e = s_.kv_events;
    const bool overflowed = e.tail - e.head > c_.n_kv_event_queue;
    const bool begins = !e.following && e.attachment && e.read == e.written;
    if (overflowed) {
      p_.sync();
      if (p_.thread() == 0) s_.kv_events.following = 0, s_.kv_events.head = e.tail;
      p_.sync();
      return;
    }
    if (begins) begin_round();
    if (!e.following) return;
    for (uint32_t done = 0; done < BLINK_SCHEDULER_THREADS; done += p_.threads()) {
      sweep_pages();
      if (!write_events()) break;
    }
  }

 private:
  BLINK_FN void begin_round() {
    p_.sync();
    if (p_.thread() == 0) {
      blink_kv_event_state& e = s_.kv_events;
      e.following = 1;
      e.swept = 0;
      ++e.round;
      e.head = e.tail;
      events_.put(e.tail++, {BLINK_KV_EVENT_CLEARED, 0, 0});
    }
    p_.sync();
  }

  // Queues up the next pages that could be found before the round began: what came after is queued up already.
  BLINK_FN void sweep_pages() {
    blink_kv_event_state& e = s_.kv_events;
    if (e.swept >= c_.total_pages || e.tail - e.head > c_.n_kv_event_queue / 2) return;
    const uint64_t tail = e.tail;
    const uint32_t page = e.swept + p_.thread();
    const bool tells = page < c_.total_pages && c_.pages[page].entry != BLINK_NO_PAGE && !events_.told(page);
    uint32_t n;
    const uint32_t nth = p_.rank(tells, &n);
    if (tells) events_.stored(page, tail + nth);
    p_.sync();
    if (p_.thread() == 0) {
      events_.grow(n);
      e.swept += p_.threads();
      if (e.swept >= c_.total_pages) events_.put(e.tail++, {BLINK_KV_EVENT_COMPLETE, 0, 0});
    }
    p_.sync();
  }

  // Writes what is queued up until a page that is not there yet, as far as there is room. False: that is nothing.
  BLINK_FN bool write_events() {
    blink_kv_event_state& e = s_.kv_events;
    const uint64_t head = e.head, written = e.written;
    const uint32_t room = c_.kv_event_capacity - uint32_t(written - e.read);
    const uint32_t n = Min()(Min()(e.tail - head, uint64_t(p_.threads())), uint64_t(room));
    if (n == 0) return false;
    QueuedKvEvent event = {0, 0, 0};
    if (p_.thread() < n)
      event = QueuedKvEvent::unpack(c_.kv_event_queue[(head + p_.thread()) & (c_.n_kv_event_queue - 1)]);
    const bool stores = event.kind == BLINK_KV_EVENT_STORED;
    const bool stale = stores && uint32_t(c_.pages[event.page].content) != event.name;
    const bool coming = stores && !stale && c_.pages[event.page].ready > steps_.committed();
    const uint32_t end = p_.reduce(coming ? p_.thread() : n, Min());
    uint32_t n_written;
    const bool writes = p_.thread() < end && !stale;
    const uint32_t nth = p_.rank(writes, &n_written);
    if (writes) write_event(written + nth, event);
    p_.sync();
    if (p_.thread() == 0) {
      e.head = head + end;
      e.written = written + n_written;
      if (n_written) p_.release(&c_.kv_events->written, event_word(e.attachment, e.written));
    }
    p_.sync();
    return end > 0;
  }

  BLINK_FN void write_event(uint64_t number, QueuedKvEvent event) {
    uint8_t* records = reinterpret_cast<uint8_t*>(c_.kv_events + 1);
    uint64_t* to = reinterpret_cast<uint64_t*>(records + number % c_.kv_event_capacity * c_.kv_event_bytes);
    const bool stores = event.kind == BLINK_KV_EVENT_STORED;
    const blink_page& page = c_.pages[event.page];
    // The newest content with such a name: the queue does not reach back to the one before.
    const uint64_t content = s_.contents - uint32_t(uint32_t(s_.contents) - event.name);
    const blink_kv_event record = {event_word(s_.kv_events.attachment, number),
                                   event.kind,
                                   content,
                                   stores && page.parent ? page.parent : BLINK_NO_BLOCK,
                                   {stores ? page.salt[0] : 0, stores ? page.salt[1] : 0}};
    constexpr uint32_t kWords = sizeof(blink_kv_event) / sizeof(uint64_t);
    for (uint32_t i = 0; i < kWords; ++i) p_.store(to + i, reinterpret_cast<const uint64_t*>(&record)[i]);
    if (!stores) return;
    const uint32_t size = t_.page_size;
    const uint32_t* tokens = c_.page_tokens + uint64_t(event.page) * size;
    for (uint32_t i = 0; i < size; i += 2)  // the record has room for a pair
      p_.store(to + kWords + i / 2, pair_word(tokens[i], i + 1 < size ? tokens[i + 1] : 0));
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  KvEventQueue<P>& events_;
  uint64_t last_event_scan_ = 0;
};

}  // namespace blink

#endif
