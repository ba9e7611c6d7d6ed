/* The index of the prefix cache: where a page is found by what it holds.
 *
 * A page can be found under the tokens from a sequence's beginning to the page's end. It stores its own tokens, its
 * depth, for the first page the salt, and for the others the name of the content before it. A content's name is given
 * once and goes with it wherever it is copied. Whoever looks for a page compares all of these, so by induction two
 * sequences meet in a page only if all their tokens up to its end are equal, and their salts (S17). The hash of these
 * tokens only says where to look. It is a sum over tokens and positions, so that threads can sum up pages side by side.
 *
 * The index is a table of page numbers with linear probing, at most a quarter full, so that probing ends. Many threads
 * may insert at once. Removing has a phase of its own: a place that became empty in the midst of a run (places in use
 * without an empty one between them) would end the probing of a page behind it. So what follows in the run moves up,
 * and no mark of what was removed outlives the phase: where marks stay, they use up the empty places in time, and then
 * probing for what is absent never ends.
 */
#ifndef BLINK_SCHEDULER_PREFIX_INDEX_H
#define BLINK_SCHEDULER_PREFIX_INDEX_H

#include "kv_events.h"
#include "mixing.h"

/* Bits of the hash that count. Tests compile with few, so that collisions are the rule. */
#ifndef BLINK_PREFIX_HASH_BITS
#define BLINK_PREFIX_HASH_BITS 64
#endif

namespace blink {

BLINK_FN inline uint64_t prefix_hash(uint64_t sum) {
  return sum & (~0ull >> (64 - BLINK_PREFIX_HASH_BITS));
}

template <class P>
class PrefixIndex {
 public:
  BLINK_FN PrefixIndex(P& platform, const blink_scheduler_config& config, KvEventQueue<P>& events)
      : p_(platform), c_(config), events_(events) {}

  // What a salt, or the tokens of page `depth` of a history, add to the sum whose hash a page is found under.
  BLINK_FN uint64_t salt_sum(const uint64_t* salt) const {
    return mix_bits(c_.hash_key ^ salt[0]) + 3 * mix_bits(c_.hash_key ^ salt[1]);
  }
  BLINK_FN uint64_t page_sum(const uint32_t* history, uint32_t depth) const {
    const uint32_t size = c_.tables.page_size, first = depth * size;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < size; ++i)
      sum += mix_bits(c_.hash_key ^ (uint64_t(first + i + 1) << 32 | history[first + i]));
    return sum;
  }

  // The page with this sum that holds page `depth` of a history; for the first page, with this salt. The caller has to
  // compare the parent, or gives another page here that has the same. BLINK_NO_PAGE if there is none.
  BLINK_FN uint32_t find(uint64_t sum, uint32_t depth, const uint32_t* history, const uint64_t* salt,
                         const blink_page* sibling = nullptr) const {
    for (uint32_t at = place(sum);; at = next(at)) {
      const uint32_t entry = p_.load(c_.page_index + at);
      if (entry == kEmpty) return BLINK_NO_PAGE;
      const uint32_t page = entry - kFirstPage;
      const blink_page& found = c_.pages[page];
      if (prefix_hash(found.sum) != prefix_hash(sum) || found.depth != depth ||
          !holds(page, history + uint64_t(depth) * c_.tables.page_size))
        continue;
      if (depth == 0 && (found.salt[0] != salt[0] || found.salt[1] != salt[1])) continue;
      if (!sibling || found.parent == sibling->parent) return page;
    }
  }

  BLINK_FN void store_tokens(uint32_t page, const uint32_t* from) {
    for (uint32_t i = 0; i < c_.tables.page_size; ++i) tokens(page)[i] = from[i];
  }
  // Describes page `to` as what `page` holds. It is not findable by that.
  BLINK_FN void describe_as(uint32_t to, uint32_t page) {
    const blink_page& from = c_.pages[page];
    blink_page& d = c_.pages[to];
    d.sum = from.sum;
    d.salt[0] = from.salt[0];
    d.salt[1] = from.salt[1];
    d.content = from.content;
    d.parent = from.parent;
    d.depth = from.depth;
    store_tokens(to, tokens(page));
  }
  // Makes a page findable whose description and tokens were stored before the last barrier.
  BLINK_FN void insert(uint32_t page) {
    uint32_t at = place(c_.pages[page].sum);
    while (p_.load(c_.page_index + at) != kEmpty ||
           !p_.exchange_if(c_.page_index + at, uint32_t(kEmpty), page + kFirstPage))
      at = next(at);
    c_.pages[page].entry = at;
  }

  // Makes a page that is findable unfindable. `close_gaps` must follow, before anybody looks for a page or inserts one.
  BLINK_FN void remove(uint32_t page) {
    p_.store(c_.page_index + c_.pages[page].entry, uint32_t(kRemoved));
    events_.removed(page);
  }
  // After pages were removed, by all threads together: each names the page that it removed, or BLINK_NO_PAGE. Of a
  // run's removed pages the first one's thread has the run to itself, since an empty place separates it from the next
  // run.
  BLINK_FN void close_gaps(uint32_t page) {
    p_.sync();
    const uint32_t gap = page == BLINK_NO_PAGE ? 0 : c_.pages[page].entry;
    const bool is_first = page != BLINK_NO_PAGE && is_first_gap(gap);
    p_.sync();
    if (page != BLINK_NO_PAGE) c_.pages[page].entry = BLINK_NO_PAGE;
    if (is_first) place_anew(gap);
    p_.sync();
  }
  // Page `to`, which has the same content, is found from now on where `page` was.
  BLINK_FN void replace(uint32_t page, uint32_t to) {
    p_.store(c_.page_index + c_.pages[page].entry, to + kFirstPage);
    c_.pages[to].entry = c_.pages[page].entry;
    c_.pages[page].entry = BLINK_NO_PAGE;
  }

 private:
  enum : uint32_t { kEmpty = 0, kRemoved = 1, kFirstPage = 2 };

  BLINK_FN uint32_t place(uint64_t sum) const { return uint32_t(mix_bits(prefix_hash(sum))) & (c_.n_index - 1); }
  BLINK_FN uint32_t next(uint32_t at) const { return (at + 1) & (c_.n_index - 1); }
  BLINK_FN uint32_t before(uint32_t at) const { return (at - 1) & (c_.n_index - 1); }
  BLINK_FN bool is_first_gap(uint32_t at) const {
    uint32_t entry;
    do {
      at = before(at);
      entry = p_.load(c_.page_index + at);
    } while (entry >= kFirstPage);
    return entry == kEmpty;
  }
  // What stands in a run from a gap on is taken out and put where probing for it ends.
  BLINK_FN void place_anew(uint32_t gap) {
    uint32_t entry;
    for (uint32_t at = gap; (entry = p_.load(c_.page_index + at)) != kEmpty; at = next(at)) {
      p_.store(c_.page_index + at, uint32_t(kEmpty));
      if (entry >= kFirstPage) insert(entry - kFirstPage);
    }
  }
  BLINK_FN uint32_t* tokens(uint32_t page) const { return c_.page_tokens + uint64_t(page) * c_.tables.page_size; }
  BLINK_FN bool holds(uint32_t page, const uint32_t* wanted) const {
    uint32_t different = 0;
    for (uint32_t i = 0; i < c_.tables.page_size; ++i) different |= tokens(page)[i] ^ wanted[i];
    return different == 0;
  }

  P& p_;
  const blink_scheduler_config& c_;
  KvEventQueue<P>& events_;
};

}  // namespace blink

#endif
