/* Copies: pages of the prefix cache go to host memory before they are evicted, and come back when a prompt needs them
 * (S19). A copy step moves them (../step.h), one like any other: what it reads was written by steps before it, and what
 * it writes is read by steps behind it.
 *
 * A copy step moves pages in one direction. Bringing back comes first, because a prompt waits for it; writing is done
 * ahead of need, and when it comes too late, what is evicted is lost as it is without host memory.
 */
#ifndef BLINK_SCHEDULER_COPIES_H
#define BLINK_SCHEDULER_COPIES_H

#include "pages.h"
#include "prefix.h"
#include "prefix_index.h"
#include "sequences.h"
#include "steps.h"
#include "turns.h"

namespace blink {

template <class P>
class Copies : private Sequences {
 public:
  BLINK_FN Copies(P& platform, const blink_scheduler_config& config, Steps<P>& steps, PrefixIndex<P>& index,
                  PagePool<P>& pool, PrefixCache<P>& prefix, Turns<P>& turns)
      : Sequences(config), p_(platform), steps_(steps), index_(index), pool_(pool), prefix_(prefix), turns_(turns) {}

  // Plans step `id` as a copy step. False: there is nothing to copy.
  BLINK_FN bool plan(uint64_t id, uint32_t n_decoding) {
    const uint32_t most = c_.shapes[c_.copy_shape].tokens;
    uint32_t n = plan_returns(id, n_decoding, most);
    if (n == 0) n = copy_out(id, most);
    if (n) steps_.describe(id, BLINK_STEP_COPY, c_.copy_shape, 0, false, {n, 0, 0});
    return n != 0;
  }

 private:
  // Has pages brought back that prompts wait for, the oldest prompt's first, at most `most`. Returns how many.
  BLINK_FN uint32_t plan_returns(uint64_t id, uint32_t n_decoding, uint32_t most) {
    uint32_t waits = 0;
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      waits |= prefilling(c_.sequences[i]) && in_host(c_.sequences[i].awaits);
    if (!p_.reduce(waits, Or())) return 0;
    turns_.consider_anew();
    uint32_t n = 0, promised = n_decoding;  // as in plan_prompts
    while (n < most) {
      const uint32_t i = turns_.next_prompt().sequence;
      if (i == BLINK_NO_SEQUENCE) break;
      const blink_sequence& sequence = c_.sequences[i];
      turns_.consider(i);
      if (in_host(sequence.awaits)) {
        const uint32_t there = pool_.available() - Min()(pool_.available(), promised);
        n += bring_back(id, i, n, Min()(most - n, there));
      }
      promised += owed(sequence);
    }
    return n;
  }

  // Takes what is there by now of the pages behind sequence `i`'s, and has those brought back that host memory has, at
  // most `most`. They are its own at once, because it is in no step before. The first is the step's copy number `at`.
  BLINK_FN uint32_t bring_back(uint64_t id, uint32_t i, uint32_t at, uint32_t most) {
    for (uint32_t n = 0;;) {
      prefix_.share(i, prefix_.match(i));
      if (n == most || !in_host(c_.sequences[i].awaits)) return n;
      n += bring_back_side_by_side(id, i, at + n, most - n);
    }
  }

  // The same for one page a thread, all of which host memory has. The first is there.
  BLINK_FN uint32_t bring_back_side_by_side(uint64_t id, uint32_t i, uint32_t at, uint32_t most) {
    const blink_step_set& set = steps_.set_of(id);
    blink_sequence& sequence = c_.sequences[i];
    const uint32_t first = sequence.n_linked, end = Min()((sequence.prefill_end - 1) / t_.page_size, first + most);
    uint64_t sum = sequence.prefix_sum;
    const uint32_t host = prefix_.look_up(i, first, end, sum);
    const uint32_t n = Min()(p_.reduce(in_host(host) ? ~0u : p_.thread(), Min()), p_.threads());
    pool_.reserve(n);
    if (p_.thread() < n) {
      const uint32_t page = pool_.claim(p_.thread());
      index_.describe_as(page, host);
      c_.pages[page].ready = id;
      pool_.pair(page, host);
      pages(i)[first + p_.thread()] = page;
      set.token_sequence[at + p_.thread()] = host;
      set.token_position[at + p_.thread()] = page;
    }
    pool_.took(n);
    if (p_.thread() == 0) {
      prefix_.has_found(sequence, n, pages(i)[first + n - 1]);
      sequence.last_step = id;
      s_.brought_back += n;
    }
    p_.sync();
    return n;
  }

  // Has pages written to host memory that will be evicted next, if there are too few that need not be. Returns how
  // many.
  BLINK_FN uint32_t copy_out(uint64_t id, uint32_t most) {
    const uint32_t enough = c_.total_pages / BLINK_ROOM_SHARE, few = Max()(c_.total_pages / BLINK_COPIED_SHARE, 1u);
    most = Min()(most, c_.host_pages);
    if (pool_.room() + Min()(most, few) > enough) return 0;
    return pool_.copy_out(steps_.set_of(id).token_sequence, steps_.set_of(id).token_position,
                          Min()(most, enough - pool_.room()));
  }

  P& p_;
  Steps<P>& steps_;
  PrefixIndex<P>& index_;
  PagePool<P>& pool_;
  PrefixCache<P>& prefix_;
  Turns<P>& turns_;
};

}  // namespace blink

#endif
