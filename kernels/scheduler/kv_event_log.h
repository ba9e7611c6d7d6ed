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

namespace blink {

// Who reads, and how far it is. A count that it cannot have read changes nothing.
template <class P>
BLINK_FN void Scheduler<P>::observe_event_reader() {
  if (last_event_scan && now - last_event_scan < BLINK_KV_EVENT_SCAN_NS) return;
  last_event_scan = now;
  const uint64_t word = broadcast(tid == 0 ? p.acquire(&c.kv_events->reader) : 0);
  if (tid == 0) {
    blink_kv_event_state& e = s.kv_events;
    const uint64_t count = event_count(word);
    if (event_attachment(word) != e.attachment) {
      e.attachment = event_attachment(word);
      e.following = 0;
      e.written = e.read = 0;
      p.release(&c.kv_events->written, event_word(e.attachment, 0));
    } else if (count > e.read && count <= e.written) {
      e.read = count;
    }
  }
  p.sync();
}

template <class P>
BLINK_FN void Scheduler<P>::tell_events() {
  const blink_kv_event_state& e = s.kv_events;
  const bool overflowed = e.tail - e.head > c.n_kv_event_queue;
  const bool begins = !e.following && e.attachment && e.read == e.written;
  if (overflowed) {
    p.sync();
    if (tid == 0) s.kv_events.following = 0, s.kv_events.head = e.tail;
    p.sync();
    return;
  }
  if (begins) begin_round();
  if (!e.following) return;
  for (uint32_t done = 0; done < BLINK_SCHEDULER_THREADS; done += threads) {
    sweep_pages();
    if (!write_events()) break;
  }
}

template <class P>
BLINK_FN void Scheduler<P>::begin_round() {
  p.sync();
  if (tid == 0) {
    blink_kv_event_state& e = s.kv_events;
    e.following = 1;
    e.swept = 0;
    ++e.round;
    e.head = e.tail;
    events.put(e.tail++, {BLINK_KV_EVENT_CLEARED, 0, 0});
  }
  p.sync();
}

// Queues up the next pages that could be found before the round began: what came after is queued up already.
template <class P>
BLINK_FN void Scheduler<P>::sweep_pages() {
  blink_kv_event_state& e = s.kv_events;
  if (e.swept >= c.total_pages || e.tail - e.head > c.n_kv_event_queue / 2) return;
  const uint64_t tail = e.tail;
  const uint32_t page = e.swept + tid;
  const bool tells = page < c.total_pages && c.pages[page].entry != BLINK_NO_PAGE && !events.told(page);
  uint32_t n;
  const uint32_t nth = p.rank(tells, &n);
  if (tells) events.stored(page, tail + nth);
  p.sync();
  if (tid == 0) {
    events.grow(n);
    e.swept += threads;
    if (e.swept >= c.total_pages) events.put(e.tail++, {BLINK_KV_EVENT_COMPLETE, 0, 0});
  }
  p.sync();
}

// Writes what is queued up until a page that is not there yet, as far as there is room. False: that is nothing.
template <class P>
BLINK_FN bool Scheduler<P>::write_events() {
  blink_kv_event_state& e = s.kv_events;
  const uint64_t head = e.head, written = e.written;
  const uint32_t room = c.kv_event_capacity - uint32_t(written - e.read);
  const uint32_t n = Min()(Min()(e.tail - head, uint64_t(threads)), uint64_t(room));
  if (n == 0) return false;
  QueuedKvEvent event = {0, 0, 0};
  if (tid < n) event = QueuedKvEvent::unpack(c.kv_event_queue[(head + tid) & (c.n_kv_event_queue - 1)]);
  const bool stores = event.kind == BLINK_KV_EVENT_STORED;
  const bool stale = stores && uint32_t(c.pages[event.page].content) != event.name;
  const bool coming = stores && !stale && c.pages[event.page].ready > committed;
  const uint32_t end = p.reduce(coming ? tid : n, Min());
  uint32_t n_written;
  const bool writes = tid < end && !stale;
  const uint32_t nth = p.rank(writes, &n_written);
  if (writes) write_event(written + nth, event);
  p.sync();
  if (tid == 0) {
    e.head = head + end;
    e.written = written + n_written;
    if (n_written) p.release(&c.kv_events->written, event_word(e.attachment, e.written));
  }
  p.sync();
  return end > 0;
}

template <class P>
BLINK_FN void Scheduler<P>::write_event(uint64_t number, QueuedKvEvent event) {
  uint8_t* records = reinterpret_cast<uint8_t*>(c.kv_events + 1);
  uint64_t* to = reinterpret_cast<uint64_t*>(records + number % c.kv_event_capacity * c.kv_event_bytes);
  const bool stores = event.kind == BLINK_KV_EVENT_STORED;
  const blink_page& page = c.pages[event.page];
  // The newest content with such a name: the queue does not reach back to the one before.
  const uint64_t content = s.contents - uint32_t(uint32_t(s.contents) - event.name);
  const blink_kv_event record = {event_word(s.kv_events.attachment, number),
                                 event.kind,
                                 content,
                                 stores && page.parent ? page.parent : BLINK_NO_BLOCK,
                                 {stores ? page.salt[0] : 0, stores ? page.salt[1] : 0}};
  constexpr uint32_t kWords = sizeof(blink_kv_event) / sizeof(uint64_t);
  for (uint32_t i = 0; i < kWords; ++i) p.store(to + i, reinterpret_cast<const uint64_t*>(&record)[i]);
  if (!stores) return;
  const uint32_t size = t.page_size;
  const uint32_t* tokens = c.page_tokens + uint64_t(event.page) * size;
  for (uint32_t i = 0; i < size; i += 2)  // the record has room for a pair
    p.store(to + kWords + i / 2, pair_word(tokens[i], i + 1 < size ? tokens[i + 1] : 0));
}

}  // namespace blink

#endif
