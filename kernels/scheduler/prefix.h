/* The prefix cache as sequences use it: what is computed once serves every later prompt that begins with the same
 * tokens (S16, S17).
 *
 * A sequence's pages are *linked* in their order, as each becomes full: the prefix cache then knows it, or knows an
 * equal one. Pages of a prompt are linked when the step that fills them is planned. Until that step has completed they
 * are found, but not used: whoever needs one awaits it, instead of computing it again. A page that decoding fills is
 * linked when its last token is committed, because nobody knows the token before.
 *
 * A match goes as far as pages are there, and never to the last token of what is known: something has to be computed,
 * or there would be nothing to sample from.
 */
#ifndef BLINK_SCHEDULER_PREFIX_H
#define BLINK_SCHEDULER_PREFIX_H

namespace blink {

// What a sequence that has no pages yet is to the prefix cache.
BLINK_FN inline void begin_links(blink_sequence& sequence, uint64_t salt_sum) {
  sequence.prefix_sum = salt_sum;
  sequence.awaits = BLINK_NO_PAGE;
}

// The page that is found at depth `base + tid` of sequence `i`, below `end`, and follows the one that is found before
// it; for the first, what is linked. `sum` is that of the tokens before `base`, and afterwards of all that were looked
// at. The block table gets the pages of the device.
template <class P>
BLINK_FN uint32_t Scheduler<P>::look_up(uint32_t i, uint32_t base, uint32_t end, uint64_t& sum) {
  const blink_sequence& sequence = c.sequences[i];
  const uint32_t depth = base + tid;
  const bool in = depth < end;
  uint64_t all;
  const uint64_t own = in ? index.page_sum(history(i), depth) : 0, before = p.sum_below(own, &all);
  const uint32_t page = in ? index.find(sum + before + own, depth, history(i), t.params[i].salt) : BLINK_NO_PAGE;
  sum += all;
  if (in) pages(i)[depth] = page == BLINK_NO_PAGE ? 0 : page;  // the next page's thread wants to know
  p.sync();
  bool found = page != BLINK_NO_PAGE;
  if (found) {
    const uint64_t parent = depth == sequence.n_linked ? sequence.link : c.pages[pages(i)[depth - 1]].content;
    found = c.pages[page].parent == parent;
  }
  if (c.host_pages) {  // which a block table never names: the engine has no such pages
    p.sync();
    if (in && in_host(page)) pages(i)[depth] = 0;
  }
  return found ? page : BLINK_NO_PAGE;
}

// The pages that the prefix cache has for sequence `i` behind its linked ones. They go into the block table, but are
// not the sequence's before `share_prefix`.
template <class P>
BLINK_FN PrefixMatch Scheduler<P>::match_prefix(uint32_t i) {
  const blink_sequence& sequence = c.sequences[i];
  const uint32_t first = sequence.n_linked, end = (sequence.prefill_end - 1) / t.page_size;
  PrefixMatch match = {0, 0, BLINK_NO_PAGE};
  if (!c.prefix_cache || first >= end || sequence.scored) return match;  // it has to be computed (S22)
  const uint64_t began = tid == 0 ? p.now() : 0;
  uint64_t sum = sequence.prefix_sum;
  for (uint32_t base = first; base < end; base += threads) {
    const uint32_t depth = base + tid, page = look_up(i, base, end, sum);
    const bool in = depth < end, found = page != BLINK_NO_PAGE;
    const bool there = found && !in_host(page) && c.pages[page].ready <= committed;
    const bool awaited = found && (!in_host(page) || is_worth_copies(sequence, depth));
    const uint64_t missing = p.reduce(in && !there ? uint64_t(depth) << 1 | !awaited : kNone, Min());
    const uint32_t stop = missing == kNone ? Min()(base + threads, end) : uint32_t(missing >> 1);
    match.pages = stop - first;
    match.idle += p.reduce(uint32_t(in && depth < stop && c.pages[page].users == 0), Sum());
    if (missing != kNone) {
      if (!(missing & 1)) match.awaits = p.reduce(depth == stop ? page : BLINK_NO_PAGE, Min());
      break;
    }
  }
  if (tid == 0) {
    ++s.stats.prefix_lookups;
    s.stats.prefix_lookup_ns += since(began, p.now());
  }
  return match;
}

// Whether sequence `i` has to wait for a page that an earlier one computes, or that a copy step brings back (copies.h).
// When the page is there, takes it and what else is there by then.
template <class P>
BLINK_FN bool Scheduler<P>::awaiting(uint32_t i) {
  const uint32_t page = c.sequences[i].awaits;
  if (page == BLINK_NO_PAGE) return false;
  if (in_host(page) || c.pages[page].ready > committed) return true;
  share_prefix(i, match_prefix(i));
  return c.sequences[i].awaits != BLINK_NO_PAGE;
}

// The pages of a match are the sequence's from now on, and what it is fed begins behind them.
template <class P>
BLINK_FN void Scheduler<P>::share_prefix(uint32_t i, const PrefixMatch& match) {
  blink_sequence& sequence = c.sequences[i];
  if (match.pages) pool.share(pages(i) + sequence.n_linked, match.pages, match.idle);
  if (tid == 0) {
    sequence.awaits = match.awaits;
    if (match.pages) has_found(sequence, match.pages, pages(i)[sequence.n_linked + match.pages - 1]);
  }
  p.sync();
}

// A sequence has `n` more pages, up to `last`, whose keys and values need not be computed.
template <class P>
BLINK_FN void Scheduler<P>::has_found(blink_sequence& sequence, uint32_t n, uint32_t last) {
  sequence.n_linked += n;
  sequence.n_pages = sequence.n_linked;
  sequence.fed = sequence.n_linked * t.page_size;
  sequence.cached += n * t.page_size;
  sequence.prefix_sum = c.pages[last].sum;
  sequence.link = c.pages[last].content;
}

// Links the pages of a prompt that step `id` fills.
template <class P>
BLINK_FN void Scheduler<P>::link_prompt(uint32_t i, uint64_t id) {
  blink_sequence& sequence = c.sequences[i];
  const uint32_t end = sequence.fed / t.page_size;
  if (!c.prefix_cache || sequence.n_linked >= end) return;
  const uint64_t began = tid == 0 ? p.now() : 0;
  while (sequence.n_linked < end) {
    const uint32_t first = sequence.n_linked, depth = first + tid;
    const bool in = depth < end;
    uint64_t all;
    const uint64_t own = in ? index.page_sum(history(i), depth) : 0, before = p.sum_below(own, &all);
    const uint32_t page = in ? pages(i)[depth] : BLINK_NO_PAGE;
    const uint64_t place = events.tail();
    const uint64_t content = s.contents + 1 + tid;
    if (in)
      describe(page, i, depth, sequence.prefix_sum + before + own, id, content, tid ? content - 1 : sequence.link);
    p.sync();
    if (tid == 0) s.contents += threads;
    const uint32_t equal =
        in ? index.find(c.pages[page].sum, depth, history(i), t.params[i].salt, c.pages + page) : BLINK_NO_PAGE;
    // A page that is known already takes this one's place in the chain, and what follows is linked to it.
    const uint32_t known = p.reduce(equal != BLINK_NO_PAGE ? depth : ~0u, Min());
    const uint32_t last = Min()(Min()(first + threads, end) - 1, known);
    if (in && depth <= last && depth != known) {
      index.insert(page);
      events.stored(page, place + tid);
    }
    p.sync();
    if (depth == last) {
      sequence.n_linked = last + 1;
      sequence.prefix_sum = c.pages[page].sum;
      sequence.link = c.pages[equal == BLINK_NO_PAGE ? page : equal].content;
      if (in_host(equal)) pool.pair(page, equal);
      const uint32_t n = last + 1 - first - (depth == known);
      s.stats.prefix_insertions += n;
      events.grow(n);
    }
    p.sync();
  }
  if (tid == 0) s.stats.prefix_insertion_ns += since(began, p.now());
}

// Links the page that the last token of each sequence marked as `filled` has filled, in the step that is committed.
template <class P>
BLINK_FN void Scheduler<P>::link_filled(const blink_step_set& set) {
  const uint64_t began = tid == 0 ? p.now() : 0;
  const blink_step_head& head = *set.head;
  for (uint32_t base = 0; base < head.n_decode; base += threads) {
    const uint32_t i = base + tid < head.n_decode ? set.batch_sequence[base + tid] : BLINK_NO_SEQUENCE;
    const bool in = i != BLINK_NO_SEQUENCE && c.sequences[i].filled == head.id;
    blink_sequence& sequence = c.sequences[in ? i : 0];
    const uint32_t depth = sequence.n_linked, page = in ? pages(i)[depth] : BLINK_NO_PAGE;
    auto equal = [&] { return index.find(c.pages[page].sum, depth, history(i), t.params[i].salt, c.pages + page); };
    const uint64_t sum = in ? sequence.prefix_sum + index.page_sum(history(i), depth) : 0;
    if (in) describe(page, i, depth, sum, head.id, s.contents + 1 + tid, sequence.link);
    p.sync();
    if (tid == 0) s.contents += threads;
    uint32_t known = in ? equal() : BLINK_NO_PAGE;
    const bool inserts = in && known == BLINK_NO_PAGE;
    p.sync();
    if (inserts) index.insert(page);
    p.sync();
    // Of equal pages that were inserted side by side, the one that is found first stays.
    if (inserts) known = equal();
    const bool leaves = inserts && known != page;
    if (p.reduce(leaves ? 1u : 0u, Or())) {
      if (leaves) index.remove(page);
      index.close_gaps(leaves ? page : BLINK_NO_PAGE);
    }
    if (in) {
      sequence.n_linked = depth + 1;
      sequence.prefix_sum = sum;
      sequence.link = c.pages[known].content;
      if (in_host(known)) pool.pair(page, known);
      if (known == page) {
        p.add(&s.stats.prefix_insertions, uint64_t(1));
        events.stored(page);
      }
    }
    p.sync();
  }
  if (tid == 0) s.stats.prefix_insertion_ns += since(began, p.now());
}

// What a page of sequence `i` holds, which it has to itself. It is not findable yet.
template <class P>
BLINK_FN void Scheduler<P>::describe(uint32_t page, uint32_t i, uint32_t depth, uint64_t sum, uint64_t ready,
                                     uint64_t content, uint64_t parent) {
  blink_page& d = c.pages[page];
  d.sum = sum;
  d.salt[0] = t.params[i].salt[0];
  d.salt[1] = t.params[i].salt[1];
  d.ready = ready;
  d.depth = depth;
  d.content = content;
  d.parent = parent;
  index.store_tokens(page, history(i) + uint64_t(depth) * t.page_size);
}

// Whether a prompt waits for copies rather than be computed from page `depth` on. A rest that a mixed step takes in for
// next to nothing, because it waits for its weights, is computed: its copies would take a step of their own.
template <class P>
BLINK_FN bool Scheduler<P>::is_worth_copies(const blink_sequence& sequence, uint32_t depth) const {
  return sequence.prefill_end - depth * t.page_size > c.mixed_share;
}

}  // namespace blink

#endif
