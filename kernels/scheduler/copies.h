/* Copies: pages of the prefix cache go to host memory before they are evicted, and come back when a prompt needs them
 * (S19). A copy step moves them (../step.h), one like any other: what it reads was written by steps before it, and what
 * it writes is read by steps behind it.
 *
 * A copy step moves pages in one direction. Bringing back comes first, because a prompt waits for it; writing is done
 * ahead of need, and when it comes too late, what is evicted is lost as it is without host memory.
 */
#ifndef BLINK_SCHEDULER_COPIES_H
#define BLINK_SCHEDULER_COPIES_H

namespace blink {

// Plans step `id` as a copy step. False: there is nothing to copy.
template <class P>
BLINK_FN bool Scheduler<P>::plan_copies(uint64_t id, uint32_t n_decoding) {
  const uint32_t most = c.shapes[c.copy_shape].tokens;
  uint32_t n = plan_returns(id, n_decoding, most);
  if (n == 0) n = copy_out(id, most);
  if (n) describe_step(id, BLINK_STEP_COPY, c.copy_shape, 0, {n, 0, 0});
  return n != 0;
}

// Has pages brought back that prompts wait for, the oldest prompt's first, at most `most`. Returns how many.
template <class P>
BLINK_FN uint32_t Scheduler<P>::plan_returns(uint64_t id, uint32_t n_decoding, uint32_t most) {
  uint32_t waits = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads)
    waits |= prefilling(c.sequences[i]) && in_host(c.sequences[i].awaits);
  if (!p.reduce(waits, Or())) return 0;
  consider_anew();
  uint32_t n = 0, promised = n_decoding;  // as in plan_prompts
  while (n < most) {
    const uint32_t i = next_prompt().sequence;
    if (i == BLINK_NO_SEQUENCE) break;
    const blink_sequence& sequence = c.sequences[i];
    consider(i);
    if (in_host(sequence.awaits)) {
      const uint32_t there = pool.available() - Min()(pool.available(), promised);
      n += bring_back(id, i, n, Min()(most - n, there));
    }
    promised += owed(sequence);
  }
  return n;
}

// Takes what is there by now of the pages behind sequence `i`'s, and has those brought back that host memory has, at
// most `most`. They are its own at once, because it is in no step before. The first is the step's copy number `at`.
template <class P>
BLINK_FN uint32_t Scheduler<P>::bring_back(uint64_t id, uint32_t i, uint32_t at, uint32_t most) {
  for (uint32_t n = 0;;) {
    share_prefix(i, match_prefix(i));
    if (n == most || !in_host(c.sequences[i].awaits)) return n;
    n += bring_back_side_by_side(id, i, at + n, most - n);
  }
}

// The same for one page a thread, all of which host memory has. The first is there.
template <class P>
BLINK_FN uint32_t Scheduler<P>::bring_back_side_by_side(uint64_t id, uint32_t i, uint32_t at, uint32_t most) {
  const blink_step_set& set = set_of(id);
  blink_sequence& sequence = c.sequences[i];
  const uint32_t first = sequence.n_linked, end = Min()((sequence.prefill_end - 1) / t.page_size, first + most);
  uint64_t sum = sequence.prefix_sum;
  const uint32_t host = look_up(i, first, end, sum);
  const uint32_t n = Min()(p.reduce(in_host(host) ? ~0u : tid, Min()), threads);
  pool.reserve(n);
  if (tid < n) {
    const uint32_t page = pool.claim(tid);
    index.describe_as(page, host);
    c.pages[page].ready = id;
    pool.pair(page, host);
    pages(i)[first + tid] = page;
    set.token_sequence[at + tid] = host;
    set.token_position[at + tid] = page;
  }
  pool.took(n);
  if (tid == 0) {
    has_found(sequence, n, pages(i)[first + n - 1]);
    sequence.last_step = id;
    s.brought_back += n;
  }
  p.sync();
  return n;
}

// Has pages written to host memory that will be evicted next, if there are too few that need not be. Returns how many.
template <class P>
BLINK_FN uint32_t Scheduler<P>::copy_out(uint64_t id, uint32_t most) {
  const uint32_t enough = c.total_pages / BLINK_ROOM_SHARE, few = Max()(c.total_pages / BLINK_COPIED_SHARE, 1u);
  most = Min()(most, c.host_pages);
  if (pool.room() + Min()(most, few) > enough) return 0;
  return pool.copy_out(set_of(id).token_sequence, set_of(id).token_position, Min()(most, enough - pool.room()));
}

}  // namespace blink

#endif
