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

namespace blink {

// The next in line, staged and with its grammar; what of that is missing is read as far as this turn may. kNone: nobody
// waits, or the next in line is not ready.
template <class P>
BLINK_FN uint64_t Scheduler<P>::next_ready() {
  uint64_t arrival;
  while ((arrival = next_in_line({0, 0}, false).arrival) != kNone) {
    blink_request& r = c.requests[arrival_slot(arrival)];
    if (r.sequence_index != BLINK_NO_SEQUENCE) {
      if (!lacks_grammar(r.sequence_index)) return arrival;
      if (!provide_grammar(r.sequence_index, true)) return kNone;  // no room yet, or this turn has read enough (S18)
      continue;
    }
    if (!stage(1) && !torn(r)) return kNone;  // no sequence is free yet, or this turn has read enough (S18)
  }
  return kNone;
}

// How far a request reaches is decided once: what its frontend writes later, while it is paused, changes no range.
template <class P>
BLINK_FN void Scheduler<P>::accept(blink_request& r, const blink_descriptor& d) {
  const uint32_t left = Min()(uint32_t(longest_context()) - d.prompt_tokens, d.output_room);
  r.prompt_tokens = d.prompt_tokens;
  r.crc32c = d.crc32c;
  r.max_outputs = Min()(d.max_tokens, left);
  r.output_offset = d.output_offset;
  r.output_room = d.output_room;
  r.logprob_words = d.logprob_words;
  r.prompt_logprob_words = d.prompt_logprob_words;
}

template <class P>
BLINK_FN void Scheduler<P>::take_pages(uint32_t i, uint32_t n) {
  pool.take(pages(i) + c.sequences[i].n_pages, n);
  if (tid == 0) c.sequences[i].n_pages += n;
  p.sync();
}

// The room for sequence i once `leaving` has left the batch (BLINK_NO_SEQUENCE: as it is).
template <class P>
BLINK_FN Room Scheduler<P>::room_for(uint32_t i, const PrefixMatch& match, uint32_t leaving) {
  const uint32_t all = c.sequences[i].prefill_end / t.page_size + 1 - match.pages;  // the first answer's token included
  if (s.n_active == 0 && s.n_zombies == 0) return {all, true, true};                // else they will give pages back
  const bool leaves = leaving != BLINK_NO_SEQUENCE;
  const uint32_t there = pool.available() - match.idle + (leaves ? c.sequences[leaving].n_pages : 0);
  uint32_t owe = 0;
  for (uint32_t k = tid; k < t.n_sequences; k += threads) owe += k == leaving ? 0 : owed(c.sequences[k]);
  owe = p.reduce(owe, Sum());
  const uint32_t promised = owe + s.n_active - leaves, begins = Min()(all, c.max_prefill_tokens / t.page_size);
  const bool whole = all + promised <= there;
  return {all, whole || (owe == 0 && c.prefix_cache && begins + promised <= there), whole};
}

// False: the pages are not there yet.
template <class P>
BLINK_FN bool Scheduler<P>::admit(uint32_t slot) {
  blink_request& r = c.requests[slot];
  const uint32_t i = r.sequence_index;
  const PrefixMatch match = match_prefix(i);
  const Room room = room_for(i, match, BLINK_NO_SEQUENCE);
  if (!room.joins) return false;
  share_prefix(i, match);
  const uint32_t behind = considered_of(r.client);
  if (room.whole && match.awaits == BLINK_NO_PAGE && !c.host_pages) take_pages(i, room.all);
  if (tid == 0) {
    c.sequences[i].behind = behind;
    if (r.state == BLINK_STATE_PREFILL_PENDING) accept(r, t.params[i]);
    join(slot);
  }
  p.sync();
  had_turn(r.client);
  return true;
}

}  // namespace blink

#endif
