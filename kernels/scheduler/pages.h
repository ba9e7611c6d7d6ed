/* Pages: who has which KV page, and the only code that takes pages or has them back.
 *
 * S1: every page is either free, or idle, or used as often as block tables of sequences that are not FREE name it. An
 * idle page is in nobody's use, but the prefix cache can find it (prefix_index.h); it makes room when a page is needed
 * and none is free. Callers put what they take into a sequence's block table and give back a table's entries, all of
 * them at once; what a page's state is beyond that is known here alone.
 *
 * The free pages are a stack in device memory. The idle ones stand in a line, in the order in which they became idle, a
 * sequence's last page first (S16): an entry counts while its page is idle and has not queued up again since. So a page
 * that is used again leaves a dead entry behind, and when these fill the line, the living move up.
 *
 * With pages in host memory, an idle page may have a copy there. The two are a pair, of which the prefix cache finds
 * the device's; when that is evicted, it finds the host's, and nothing is lost (S19). A host page is empty, or one of a
 * pair, or is found itself. They are written in turns, so what has been there for longest makes room.
 *
 * All threads of the block call each function together and move a share of the pages each. Each function ends with a
 * barrier, unless it says otherwise.
 */
#ifndef BLINK_SCHEDULER_PAGES_H
#define BLINK_SCHEDULER_PAGES_H

#include "prefix_index.h"

namespace blink {

// What can be seen of them, by whoever has the configuration.
class PageCounts {
 public:
  BLINK_FN explicit PageCounts(const blink_scheduler_config& config) : c_(config), s_(*config.state) {}

  // Pages in nobody's use.
  BLINK_FN uint32_t available() const { return s_.n_free_pages + s_.n_idle_pages; }
  BLINK_FN uint32_t idle() const { return s_.n_idle_pages; }
  BLINK_FN uint32_t free() const { return s_.n_free_pages; }
  // The free page that is taken as the `n`-th from now on, n < free().
  BLINK_FN uint32_t nth(uint32_t n) const { return c_.free_pages[s_.n_free_pages - 1 - n]; }

 protected:
  const blink_scheduler_config& c_;
  blink_scheduler_state& s_;
};

template <class P>
class PagePool : public PageCounts {
 public:
  BLINK_FN PagePool(P& platform, const blink_scheduler_config& config, PrefixIndex<P>& index)
      : PageCounts(config), p_(platform), index_(index) {}

  // Before the first: all pages are free, and page 0 is taken first.
  BLINK_FN void fill() {
    for (uint32_t i = p_.thread(); i < c_.total_pages + c_.host_pages; i += p_.threads()) {
      if (i < c_.total_pages) c_.free_pages[i] = c_.total_pages - 1 - i;
      c_.pages[i].entry = c_.pages[i].copy = BLINK_NO_PAGE;
    }
    set_counts(c_.total_pages, 0);
  }

  // Makes the next `n` pages free, at most available(): nth(0) to nth(n - 1) exist then.
  BLINK_FN void reserve(uint32_t n) {
    if (n > free()) evict(n - free());
  }
  // The page nth(n), for an entry of a block table; `took` must follow.
  BLINK_FN uint32_t claim(uint32_t n) {
    const uint32_t page = nth(n);
    c_.pages[page].users = 1;
    return page;
  }
  BLINK_FN void took(uint32_t n) { set_counts(free() - n, idle()); }

  // Takes `n` pages, at most available(), into a sequence's block table from `to` on.
  BLINK_CALLED void take(uint32_t* to, uint32_t n) {
    reserve(n);
    for (uint32_t i = p_.thread(); i < n; i += p_.threads()) to[i] = claim(i);
    took(n);
  }
  // The `n` pages that a sequence's block table has from `from` on, all found by the prefix cache and `were_idle` of
  // them idle, are now used by this sequence too.
  BLINK_CALLED void share(const uint32_t* from, uint32_t n, uint32_t were_idle) {
    for (uint32_t i = p_.thread(); i < n; i += p_.threads()) ++c_.pages[from[i]].users;
    set_counts(free(), idle() - were_idle);
  }

  // Has the `n` pages back that a sequence's block table holds from `from` on.
  BLINK_CALLED void give_back(const uint32_t* from, uint32_t n) {
    if (s_.idle_tail - s_.idle_head + n > c_.n_idle) move_up();
    uint32_t n_free = free(), n_idle = idle();
    uint64_t tail = s_.idle_tail;
    for (uint32_t base = 0; base < n; base += p_.threads()) {
      const uint32_t i = base + p_.thread(), page = i < n ? from[n - 1 - i] : BLINK_NO_PAGE;
      const bool unused = i < n && --c_.pages[page].users == 0;
      const bool idles = unused && c_.pages[page].entry != BLINK_NO_PAGE;
      uint32_t more_idle, more_free;
      const uint32_t behind = p_.rank(idles, &more_idle), above = p_.rank(unused && !idles, &more_free);
      if (idles) queue_up(page, tail + behind);
      if (unused && !idles) c_.free_pages[n_free + above] = page;
      n_free += more_free, n_idle += more_idle, tail += more_idle;
    }
    set_counts(n_free, n_idle, s_.idle_head, tail);
  }

  // Nobody finds the `n` pages any more that a sequence's block table holds from `from` on; others may still use them.
  BLINK_CALLED void forget(const uint32_t* from, uint32_t n) {
    for (uint32_t base = 0; base < n; base += p_.threads()) {
      const uint32_t i = base + p_.thread();
      const bool findable = i < n && c_.pages[from[i]].entry != BLINK_NO_PAGE;
      if (findable) index_.remove(from[i]), part(from[i]);
      index_.close_gaps(findable ? from[i] : BLINK_NO_PAGE);
    }
  }

  // A page of the device has the same content as a host page that is found, and is found in its place from now on. Of
  // several pages at a time, one becomes the host page's. For one thread, without a barrier.
  BLINK_FN void pair(uint32_t page, uint32_t host) {
    if (!p_.exchange_if(&c_.pages[host].copy, uint32_t(BLINK_NO_PAGE), page)) return;
    c_.pages[page].content = c_.pages[host].content;
    c_.pages[page].copy = host;
    index_.replace(host, page);
  }

  // Of the pages that will be evicted next, those without a copy in host memory, at most `most`: `from` gets them, and
  // `to` the host pages that they are to be copied to, whose contents are forgotten. Returns how many.
  BLINK_FN uint32_t copy_out(uint32_t* from, uint32_t* to, uint32_t most) {
    uint64_t at = Max()(s_.written, s_.idle_head);
    const uint64_t tail = s_.idle_tail, end = Min()(tail, at + kLookedAt * p_.threads());
    uint32_t n = 0;
    while (n < most && at < end) {
      const uint64_t mine = at + p_.thread();
      const uint32_t page = mine < end ? c_.idle_pages[mine & (c_.n_idle - 1)] : BLINK_NO_PAGE;
      const bool wanted = page != BLINK_NO_PAGE && idles_at(page, mine) && c_.pages[page].copy == BLINK_NO_PAGE;
      uint32_t found;
      const uint32_t nth = n + p_.rank(wanted, &found);
      if (wanted && nth < most) from[nth] = page;
      at = n + found < most ? at + p_.threads() : p_.reduce(wanted && nth + 1 == most ? mine + 1 : 0, Max());
      n = Min()(n + found, most);
    }
    for (uint32_t base = 0; base < n; base += p_.threads()) {
      const uint32_t i = base + p_.thread();
      const uint32_t host = i < n ? next_host_page(i) : BLINK_NO_PAGE;
      const bool is_found = i < n && c_.pages[host].entry != BLINK_NO_PAGE;
      if (is_found) index_.remove(host);
      if (i < n) part(host);
      index_.close_gaps(is_found ? host : BLINK_NO_PAGE);
    }
    for (uint32_t i = p_.thread(); i < n; i += p_.threads()) {
      to[i] = next_host_page(i);
      index_.describe_as(to[i], from[i]);
      c_.pages[to[i]].copy = from[i];
      c_.pages[from[i]].copy = to[i];
    }
    p_.sync();
    if (p_.thread() == 0) {
      s_.written = Min()(at, tail);
      s_.host_copies += n;
    }
    p_.sync();
    return n;
  }
  // Pages that are free, or will be without a loss.
  BLINK_FN uint32_t room() const {
    return free() + (s_.written > s_.idle_head ? uint32_t(s_.written - s_.idle_head) : 0);
  }

 private:
  static constexpr uint32_t kLookedAt = 8;  // places of the line, times the threads, in one search

  BLINK_FN uint32_t next_host_page(uint32_t n) const { return c_.total_pages + (s_.host_copies + n) % c_.host_pages; }
  // The page is no longer one of a pair.
  BLINK_FN void part(uint32_t page) {
    const uint32_t copy = c_.pages[page].copy;
    if (copy != BLINK_NO_PAGE) c_.pages[copy].copy = c_.pages[page].copy = BLINK_NO_PAGE;
  }
  // Whether the entry at this place of the line is the page's own.
  BLINK_FN bool idles_at(uint32_t page, uint64_t at) const {
    const blink_page& found = c_.pages[page];
    return found.users == 0 && found.entry != BLINK_NO_PAGE && found.queued == at;
  }
  BLINK_FN void queue_up(uint32_t page, uint64_t at) {
    c_.idle_pages[at & (c_.n_idle - 1)] = page;
    c_.pages[page].queued = at;
  }

  // Frees the `n` pages that have been idle for longest, and a few more, so that it need not be done for each page.
  BLINK_FN void evict(uint32_t n) {
    const uint64_t began = p_.thread() == 0 ? p_.now() : 0;
    n = Min()(idle(), Max()(n, Min()(uint32_t(BLINK_EVICTED_TOGETHER), c_.total_pages / 64)));
    uint64_t head = s_.idle_head;
    const uint64_t tail = s_.idle_tail;
    uint32_t top = free();
    for (uint32_t left = n; left && head < tail; head += p_.threads()) {
      const uint64_t at = head + p_.thread();
      const uint32_t page = at < tail ? c_.idle_pages[at & (c_.n_idle - 1)] : BLINK_NO_PAGE;
      const bool idles = page != BLINK_NO_PAGE && idles_at(page, at);
      uint32_t found;
      const uint32_t nth = p_.rank(idles, &found);
      const bool evicted = idles && nth < left;
      const uint32_t copy = evicted ? c_.pages[page].copy : BLINK_NO_PAGE;
      const bool is_lost = evicted && copy == BLINK_NO_PAGE;
      if (is_lost) index_.remove(page);
      if (evicted && !is_lost) index_.replace(page, copy), part(page);
      if (evicted) c_.free_pages[top + nth] = page;
      index_.close_gaps(is_lost ? page : BLINK_NO_PAGE);
      // Behind the last one that was needed the line begins anew.
      if (found >= left) {
        head = p_.reduce(idles && nth + 1 == left ? at + 1 : 0, Max());
        top += left;
        break;
      }
      top += found;
      left -= found;
    }
    p_.sync();
    if (p_.thread() == 0) {
      s_.stats.prefix_evictions += n;
      s_.stats.prefix_eviction_ns += p_.now() - began;
    }
    set_counts(top, idle() - n, Min()(head, tail), tail);
  }

  // Those that are still idle queue up anew, in their order.
  BLINK_FN void move_up() {
    const uint64_t end = s_.idle_tail;
    uint64_t head = s_.idle_head, tail = end;
    for (; head < end; head += p_.threads()) {
      const uint64_t at = head + p_.thread();
      const uint32_t page = at < end ? c_.idle_pages[at & (c_.n_idle - 1)] : BLINK_NO_PAGE;
      const bool idles = page != BLINK_NO_PAGE && idles_at(page, at);
      uint32_t found;
      const uint32_t nth = p_.rank(idles, &found);
      if (idles) queue_up(page, tail + nth);
      tail += found;
      p_.sync();
    }
    if (p_.thread() == 0) s_.written = end;
    set_counts(free(), idle(), end, tail);
  }

  BLINK_FN void set_counts(uint32_t n_free, uint32_t n_idle) { set_counts(n_free, n_idle, s_.idle_head, s_.idle_tail); }
  BLINK_FN void set_counts(uint32_t n_free, uint32_t n_idle, uint64_t head, uint64_t tail) {
    p_.sync();
    if (p_.thread() == 0) {
      s_.n_free_pages = n_free;
      s_.n_idle_pages = n_idle;
      s_.idle_head = head;
      s_.idle_tail = tail;
    }
    p_.sync();
  }

  P& p_;
  PrefixIndex<P>& index_;
};

}  // namespace blink

#endif
