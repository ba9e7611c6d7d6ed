/* The prefix cache as sequences use it: what is computed once serves every later prompt that begins with the same
 * tokens (S16, S17).
 *
 * A sequence's pages are *linked* in their order, as each becomes full: the prefix cache then knows it, or knows an
 * equal one. Pages of a prompt are linked when the step that fills them is planned. Until that step has completed they
 * are found, but not used: whoever needs one awaits it, instead of computing it again. A page that decoding fills is
 * linked when the step of its last token is concluded, because nobody knows the token before.
 *
 * A match goes as far as pages are there, and never to the last token of what is known: something has to be computed,
 * or there would be nothing to sample from.
 */
#ifndef BLINK_SCHEDULER_PREFIX_H
#define BLINK_SCHEDULER_PREFIX_H

#include "clock.h"
#include "kv_events.h"
#include "pages.h"
#include "prefix_index.h"
#include "sequences.h"
#include "steps.h"

namespace blink {

// What a sequence that has no pages yet is to the prefix cache.
BLINK_FN inline void begin_links(blink_sequence& sequence, uint64_t salt_sum) {
  sequence.prefix_sum = salt_sum;
  sequence.awaits = BLINK_NO_PAGE;
}

template <class P>
class PrefixCache : private Sequences {
 public:
  BLINK_FN PrefixCache(P& platform, const blink_scheduler_config& config, Steps<P>& steps, KvEventQueue<P>& events,
                       PrefixIndex<P>& index, PagePool<P>& pool)
      : Sequences(config), p_(platform), steps_(steps), events_(events), index_(index), pool_(pool) {}

  // The pages that the prefix cache has for sequence `i` behind its linked ones. They go into the block table, but are
  // not the sequence's before `share_prefix`.
  BLINK_CALLED PrefixMatch match(uint32_t i) {
    const blink_sequence& sequence = c_.sequences[i];
    const uint32_t first = sequence.n_linked, end = (sequence.prefill_end - 1) / t_.page_size;
    PrefixMatch match = {0, 0, BLINK_NO_PAGE};
    if (!c_.prefix_cache || first >= end || sequence.scored) return match;  // it has to be computed (S22)
    const uint64_t began = p_.thread() == 0 ? p_.now() : 0;
    uint64_t sum = sequence.prefix_sum;
    for (uint32_t base = first; base < end; base += p_.threads()) {
      const uint32_t depth = base + p_.thread(), page = look_up(i, base, end, sum);
      const bool in = depth < end, found = page != BLINK_NO_PAGE;
      const bool there = found && !in_host(page) && c_.pages[page].ready <= steps_.committed();
      const bool awaited = found && (!in_host(page) || is_worth_copies(sequence, depth));
      const uint64_t missing = p_.reduce(in && !there ? uint64_t(depth) << 1 | !awaited : kNone, Min());
      const uint32_t stop = missing == kNone ? Min()(base + p_.threads(), end) : uint32_t(missing >> 1);
      match.pages = stop - first;
      match.idle += p_.reduce(uint32_t(in && depth < stop && c_.pages[page].users == 0), Sum());
      if (missing != kNone) {
        if (!(missing & 1)) match.awaits = p_.reduce(depth == stop ? page : BLINK_NO_PAGE, Min());
        break;
      }
    }
    if (p_.thread() == 0) {
      ++s_.stats.prefix_lookups;
      s_.stats.prefix_lookup_ns += since(began, p_.now());
    }
    return match;
  }

  // The pages of a match are the sequence's from now on, and what it is fed begins behind them.
  BLINK_FN void share(uint32_t i, const PrefixMatch& match) {
    blink_sequence& sequence = c_.sequences[i];
    if (match.pages) pool_.share(pages(i) + sequence.n_linked, match.pages, match.idle);
    if (p_.thread() == 0) {
      sequence.awaits = match.awaits;
      if (match.pages) has_found(sequence, match.pages, pages(i)[sequence.n_linked + match.pages - 1]);
    }
    p_.sync();
  }

  // Whether sequence `i` has to wait for a page that an earlier one computes, or that a copy step brings back
  // (copies.h). When the page is there, takes it and what else is there by then.
  BLINK_FN bool awaiting(uint32_t i) {
    const uint32_t page = c_.sequences[i].awaits;
    if (page == BLINK_NO_PAGE) return false;
    if (in_host(page) || c_.pages[page].ready > steps_.committed()) return true;
    share(i, match(i));
    return c_.sequences[i].awaits != BLINK_NO_PAGE;
  }

  // The page that is found at depth `base` + the thread of sequence `i`, below `end`, and follows the one that is found
  // before it; for the first, what is linked. `sum` is that of the tokens before `base`, and afterwards of all that
  // were looked at. The block table gets the pages of the device.
  BLINK_FN uint32_t look_up(uint32_t i, uint32_t base, uint32_t end, uint64_t& sum) {
    const blink_sequence& sequence = c_.sequences[i];
    const uint32_t depth = base + p_.thread();
    const bool in = depth < end;
    uint64_t all;
    const uint64_t own = in ? index_.page_sum(history(i), depth) : 0, before = p_.sum_below(own, &all);
    const uint32_t page = in ? index_.find(sum + before + own, depth, history(i), t_.params[i].salt) : BLINK_NO_PAGE;
    sum += all;
    if (in) pages(i)[depth] = page == BLINK_NO_PAGE ? 0 : page;  // the next page's thread wants to know
    p_.sync();
    bool found = page != BLINK_NO_PAGE;
    if (found) {
      const uint64_t parent = depth == sequence.n_linked ? sequence.link : c_.pages[pages(i)[depth - 1]].content;
      found = c_.pages[page].parent == parent;
    }
    if (c_.host_pages) {  // which a block table never names: the engine has no such pages
      p_.sync();
      if (in && in_host(page)) pages(i)[depth] = 0;
    }
    return found ? page : BLINK_NO_PAGE;
  }

  // A sequence has `n` more pages, up to `last`, whose keys and values need not be computed.
  BLINK_FN void has_found(blink_sequence& sequence, uint32_t n, uint32_t last) {
    sequence.n_linked += n;
    sequence.n_pages = sequence.n_linked;
    sequence.fed = sequence.n_linked * t_.page_size;
    sequence.cached += n * t_.page_size;
    sequence.prefix_sum = c_.pages[last].sum;
    sequence.link = c_.pages[last].content;
  }

  // Links the pages of a prompt that step `id` fills.
  BLINK_FN void link_prompt(uint32_t i, uint64_t id) {
    blink_sequence& sequence = c_.sequences[i];
    const uint32_t end = sequence.fed / t_.page_size;
    if (!c_.prefix_cache || sequence.n_linked >= end) return;
    const uint64_t began = p_.thread() == 0 ? p_.now() : 0;
    while (sequence.n_linked < end) {
      const uint32_t first = sequence.n_linked, depth = first + p_.thread();
      const bool in = depth < end;
      uint64_t all;
      const uint64_t own = in ? index_.page_sum(history(i), depth) : 0, before = p_.sum_below(own, &all);
      const uint32_t page = in ? pages(i)[depth] : BLINK_NO_PAGE;
      const uint64_t place = events_.tail();
      const uint64_t content = s_.contents + 1 + p_.thread();
      if (in)
        describe(page, i, depth, sequence.prefix_sum + before + own, id, content,
                 p_.thread() ? content - 1 : sequence.link);
      p_.sync();
      if (p_.thread() == 0) s_.contents += p_.threads();
      const uint32_t equal =
          in ? index_.find(c_.pages[page].sum, depth, history(i), t_.params[i].salt, c_.pages + page) : BLINK_NO_PAGE;
      // A page that is known already takes this one's place in the chain, and what follows is linked to it.
      const uint32_t known = p_.reduce(equal != BLINK_NO_PAGE ? depth : ~0u, Min());
      const uint32_t last = Min()(Min()(first + p_.threads(), end) - 1, known);
      if (in && depth <= last && depth != known) {
        index_.insert(page);
        events_.stored(page, place + p_.thread());
      }
      p_.sync();
      if (depth == last) {
        sequence.n_linked = last + 1;
        sequence.prefix_sum = c_.pages[page].sum;
        sequence.link = c_.pages[equal == BLINK_NO_PAGE ? page : equal].content;
        if (in_host(equal)) pool_.pair(page, equal);
        const uint32_t n = last + 1 - first - (depth == known);
        s_.stats.prefix_insertions += n;
        events_.grow(n);
      }
      p_.sync();
    }
    if (p_.thread() == 0) s_.stats.prefix_insertion_ns += since(began, p_.now());
  }

  // Whether decoding has filled a page of the sequence that is not linked yet.
  BLINK_FN static bool has_filled(const blink_sequence& sequence) {
    const bool has_pages = sequence.use == BLINK_SEQUENCE_ACTIVE || sequence.use == BLINK_SEQUENCE_ZOMBIE;
    return has_pages && sequence.n_linked < sequence.filled;
  }

  // Links the pages that decoding has filled up to the last step that was committed, one of each sequence at a time.
  BLINK_FN void link_filled() {
    const uint64_t began = p_.thread() == 0 ? p_.now() : 0;
    for (uint32_t base = 0; base < t_.n_sequences;) {
      const uint32_t i = base + p_.thread();
      const bool in = i < t_.n_sequences && has_filled(c_.sequences[i]);
      if (!p_.reduce(uint32_t(in), Or())) {
        base += p_.threads();
        continue;
      }
      blink_sequence& sequence = c_.sequences[in ? i : 0];
      const uint32_t depth = sequence.n_linked, page = in ? pages(i)[depth] : BLINK_NO_PAGE;
      auto equal = [&] {
        return index_.find(c_.pages[page].sum, depth, history(i), t_.params[i].salt, c_.pages + page);
      };
      const uint64_t sum = in ? sequence.prefix_sum + index_.page_sum(history(i), depth) : 0;
      if (in) describe(page, i, depth, sum, steps_.committed(), s_.contents + 1 + p_.thread(), sequence.link);
      p_.sync();
      if (p_.thread() == 0) s_.contents += p_.threads();
      uint32_t known = in ? equal() : BLINK_NO_PAGE;
      const bool inserts = in && known == BLINK_NO_PAGE;
      p_.sync();
      if (inserts) index_.insert(page);
      p_.sync();
      // Of equal pages that were inserted side by side, the one that is found first stays.
      if (inserts) known = equal();
      const bool leaves = inserts && known != page;
      if (p_.reduce(leaves ? 1u : 0u, Or())) {
        if (leaves) index_.remove(page);
        index_.close_gaps(leaves ? page : BLINK_NO_PAGE);
      }
      if (in) {
        sequence.n_linked = depth + 1;
        sequence.prefix_sum = sum;
        sequence.link = c_.pages[known].content;
        if (in_host(known)) pool_.pair(page, known);
        if (known == page) {
          p_.add(&s_.stats.prefix_insertions, uint64_t(1));
          events_.stored(page);
        }
      }
      p_.sync();
    }
    if (p_.thread() == 0) s_.stats.prefix_insertion_ns += since(began, p_.now());
  }

 private:
  // What a page of sequence `i` holds, which it has to itself. It is not findable yet.
  BLINK_FN void describe(uint32_t page, uint32_t i, uint32_t depth, uint64_t sum, uint64_t ready, uint64_t content,
                         uint64_t parent) {
    blink_page& d = c_.pages[page];
    d.sum = sum;
    d.salt[0] = t_.params[i].salt[0];
    d.salt[1] = t_.params[i].salt[1];
    d.ready = ready;
    d.depth = depth;
    d.content = content;
    d.parent = parent;
    index_.store_tokens(page, history(i) + uint64_t(depth) * t_.page_size);
  }

  // Whether a prompt waits for copies rather than be computed from page `depth` on. A rest that a mixed step takes in
  // for next to nothing, because it waits for its weights, is computed: its copies would take a step of their own.
  BLINK_FN bool is_worth_copies(const blink_sequence& sequence, uint32_t depth) const {
    return sequence.prefill_end - depth * t_.page_size > c_.mixed_share;
  }

  P& p_;
  Steps<P>& steps_;
  KvEventQueue<P>& events_;
  PrefixIndex<P>& index_;
  PagePool<P>& pool_;
};

}  // namespace blink

#endif
