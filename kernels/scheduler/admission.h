/* Admission: a staged request gets its pages and joins the batch. Clients take turns (turns.h).
 *
 * What the prefix cache has of it is its own from here on. It joins when there are pages for all of it and for what the
 * others are known to need, and takes them at once, or sequences that decode would take them before it comes to them.
 * Where no other prompt is under way, there need be only enough to begin, and the rest comes chunk by chunk
 * (planner.h): the oldest prompt may hold pages while it waits for more. Without a prefix cache it may not, because it
 * would begin anew when it is preempted. A sequence that awaits pages takes none before it knows how many it needs; nor
 * does any where pages go to host memory, which takes as long as steps do.
 *
 * What takes time, reading a payload across PCIe and checking it, was done by staging (staging.h), while steps ran.
 */
#ifndef BLINK_SCHEDULER_ADMISSION_H
#define BLINK_SCHEDULER_ADMISSION_H

#include "arrivals.h"
#include "clients.h"
#include "clock.h"
#include "grammars.h"
#include "pages.h"
#include "prefix.h"
#include "requests.h"
#include "sequences.h"
#include "staging.h"
#include "turns.h"

namespace blink {

template <class P>
class Admission : private Sequences {
 public:
  BLINK_FN Admission(P& platform, const blink_scheduler_config& config, Clock<P>& clock, Clients<P>& clients,
                     PagePool<P>& pool, PrefixCache<P>& prefix, Requests<P>& requests, Turns<P>& turns,
                     Grammars<P>& grammars, Staging<P>& staging)
      : Sequences(config),
        p_(platform),
        clock_(clock),
        clients_(clients),
        pool_(pool),
        prefix_(prefix),
        requests_(requests),
        turns_(turns),
        grammars_(grammars),
        staging_(staging) {}

  // The next in line, staged and with its grammar; what of that is missing is read as far as this turn may. kNone:
  // nobody waits, or the next in line is not ready.
  BLINK_CALLED uint64_t next_ready() {
    uint64_t arrival;
    while ((arrival = turns_.next_in_line({0, 0}, false).arrival) != kNone) {
      blink_request& r = c_.requests[arrival_slot(arrival)];
      if (r.sequence_index != BLINK_NO_SEQUENCE) {
        if (!grammars_.is_missing(r.sequence_index)) return arrival;
        if (!grammars_.provide(r.sequence_index, true))
          return kNone;  // no room yet, or this turn has read enough (S18)
        continue;
      }
      if (!staging_.stage(1) && !clock_.torn(r))
        return kNone;  // no sequence is free yet, or this turn has read enough (S18)
    }
    return kNone;
  }

  // The room for sequence i once `leaving` has left the batch (BLINK_NO_SEQUENCE: as it is).
  BLINK_FN Room room_for(uint32_t i, const PrefixMatch& match, uint32_t leaving) {
    const uint32_t all =
        c_.sequences[i].prefill_end / t_.page_size + 1 - match.pages;     // the first answer's token included
    if (s_.n_active == 0 && s_.n_zombies == 0) return {all, true, true};  // else they will give pages back
    const bool leaves = leaving != BLINK_NO_SEQUENCE;
    const uint32_t there = pool_.available() - match.idle + (leaves ? c_.sequences[leaving].n_pages : 0);
    uint32_t owe = 0;
    for (uint32_t k = p_.thread(); k < t_.n_sequences; k += p_.threads())
      owe += k == leaving ? 0 : owed(c_.sequences[k]);
    owe = p_.reduce(owe, Sum());
    const uint32_t promised = owe + s_.n_active - leaves, begins = Min()(all, c_.max_prefill_tokens / t_.page_size);
    const bool whole = all + promised <= there;
    return {all, whole || (owe == 0 && c_.prefix_cache && begins + promised <= there), whole};
  }

  // False: the pages are not there yet.
  BLINK_FN bool admit(uint32_t slot) {
    blink_request& r = c_.requests[slot];
    const uint32_t i = r.sequence_index;
    const PrefixMatch match = prefix_.match(i);
    const Room room = room_for(i, match, BLINK_NO_SEQUENCE);
    if (!room.joins) return false;
    prefix_.share(i, match);
    const uint32_t behind = turns_.considered_of(r.client);
    if (room.whole && match.awaits == BLINK_NO_PAGE && !c_.host_pages) take_pages(i, room.all);
    if (p_.thread() == 0) {
      c_.sequences[i].behind = behind;
      if (r.state == BLINK_STATE_PREFILL_PENDING) accept(slot, t_.params[i]);
      requests_.join(slot);
    }
    p_.sync();
    clients_.had_turn(r.client);
    return true;
  }

 private:
  // How far a request reaches is decided once: what its frontend writes later, while it is paused, changes no range.
  BLINK_FN void accept(uint32_t slot, const blink_descriptor& d) {
    blink_request& r = c_.requests[slot];
    const uint32_t left = Min()(uint32_t(longest_context()) - d.prompt_tokens, d.output_room);
    r.prompt_tokens = d.prompt_tokens;
    r.crc32c = d.crc32c;
    r.max_outputs = Min()(d.max_tokens, left);
    r.output_at = uint64_t(lease_of(slot)) * c_.output_heap + d.output_offset;
    r.output_room = d.output_room;
    r.logprob_words = d.logprob_words;
    r.prompt_logprob_words = d.prompt_logprob_words;
  }

  BLINK_FN void take_pages(uint32_t i, uint32_t n) {
    pool_.take(pages(i) + c_.sequences[i].n_pages, n);
    if (p_.thread() == 0) c_.sequences[i].n_pages += n;
    p_.sync();
  }

  P& p_;
  Clock<P>& clock_;
  Clients<P>& clients_;
  PagePool<P>& pool_;
  PrefixCache<P>& prefix_;
  Requests<P>& requests_;
  Turns<P>& turns_;
  Grammars<P>& grammars_;
  Staging<P>& staging_;
};

}  // namespace blink

#endif
