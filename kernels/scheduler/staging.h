/* Staging: requests that wait are read from the ring and checked before they are needed, so that planning a prefill
 * step is bookkeeping.
 *
 * A staged request holds a sequence: descriptor and prompt are in the sequence's parameters and history, copied and
 * checksummed on the way (R4). It still waits, in its place in the line, without pages and in no step (S13). A payload
 * that does not match was overtaken by its request word; it is read again later, never served.
 *
 * With the ring in host memory a read takes a microsecond or two, so everything is read side by side: all descriptors
 * at once, then the prompts, a team of threads each. A turn of the loop reads no more than `stage_words` of prompts and
 * answers; a payload that is longer is read in slices, one a turn, before any younger one (S18).
 */
#ifndef BLINK_SCHEDULER_STAGING_H
#define BLINK_SCHEDULER_STAGING_H

namespace blink {

constexpr uint32_t kStageSlots = 8;      // read side by side
constexpr uint32_t kLongPayload = 1024;  // words: a longer one has all threads for itself

// Stages while there is nothing more urgent. True if the next step had better be planned when the ring was looked at
// again: requests of a burst arrive microseconds apart, and a step that began with the first alone would make the
// others wait for all of it.
template <class P>
BLINK_FN bool Scheduler<P>::stage_ahead() {
  const uint32_t room = t.n_sequences - c.max_batch;
  if (s.n_staged && c.max_grammar_words && may_stage() && provide_grammars()) return true;
  if (s.n_waiting == s.n_staged || s.n_staged >= room || !may_stage()) return false;
  return stage(room - s.n_staged);
}

// Whether there is nothing more urgent.
template <class P>
BLINK_FN bool Scheduler<P>::may_stage() const {
  return phase != BLINK_PHASE_FAILED && !(in_flight() ? plan_is_due() : s.n_active != 0);
}

// Stages the next requests in line, at most `most`, or reads the next slice of the one that is under way. False:
// none could be read on, staged or refused.
template <class P>
BLINK_FN bool Scheduler<P>::stage(uint32_t most) {
  if (readable_words == 0) return false;
  if (slicing()) return stage_slice();
  uint32_t slots[kStageSlots], sequences[kStageSlots];
  const uint32_t n = choose(most, slots, sequences);
  if (n == 0) return false;
  uint32_t whole = 0, words = 0;
  for (; whole < n; ++whole) {
    const uint32_t more = payload_length(slots[whole], sequences[whole]) - kHead;
    if (words + more > readable_words) break;
    words += more;
  }
  readable_words -= words;
  if (whole) return stage_whole(slots, sequences, whole);
  if (tid == 0) s.staging = {c.requests[slots[0]].arrival, sequences[0], 0, 0, 0};
  p.sync();
  return stage_slice();
}

// The next requests in line, at most `most`, with a free sequence for each, in whose parameters their descriptors then
// are. Returns how many.
template <class P>
BLINK_FN uint32_t Scheduler<P>::choose(uint32_t most, uint32_t* slots, uint32_t* sequences) {
  most = Min()(Min()(most, kStageSlots), Max()(1u, readable_words / kDescriptorWords));
  uint32_t n = 0;
  Place place = {0, 0};
  for (uint32_t sequence = 0; n < most; ++n, ++sequence) {
    place = next_in_line(place, true);
    if (place.arrival == kNone) break;
    sequence = next_free_sequence(sequence);
    if (sequence == BLINK_NO_SEQUENCE && n == 0 && unstage_behind(place)) sequence = next_free_sequence(0);
    if (sequence == BLINK_NO_SEQUENCE) break;
    slots[n] = arrival_slot(place.arrival);
    sequences[n] = sequence;
  }
  for (uint32_t i = tid; i < n * kDescriptorWords; i += threads) {
    const uint32_t k = i / kDescriptorWords, word = i % kDescriptorWords;
    reinterpret_cast<uint32_t*>(t.params + sequences[k])[word] =
        p.load(reinterpret_cast<const uint32_t*>(&c.descriptors[slots[k]]) + word);
  }
  readable_words -= Min()(readable_words, n * kDescriptorWords);
  p.sync();
  return n;
}

// False: all of the payloads must be read again.
template <class P>
BLINK_FN bool Scheduler<P>::stage_whole(const uint32_t* slots, const uint32_t* sequences, uint32_t n) {
  uint32_t longest = 0, settled = 0;
  for (uint32_t k = 0; k < n; ++k) longest = Max()(longest, payload_length(slots[k], sequences[k]));
  uint32_t teams = 1;
  while (longest <= kLongPayload && teams < n && threads % (2 * teams) == 0) teams *= 2;
  const uint32_t size = threads / teams, team = tid / size, member = tid % size;
  for (uint32_t first = 0; first < n; first += teams) {
    const uint32_t k = first + team;
    const uint32_t end = k < n ? payload_length(slots[k], sequences[k]) : 0;
    const uint64_t part = k < n ? read_payload(slots[k], sequences[k], 0, end, member, size) : 0;
    uint64_t found = 0;
    for (uint32_t i = 0; i < teams; ++i) {
      const uint64_t sum = p.reduce(i == team ? part : 0, Findings());
      if (i == team) found = sum;
    }
    if (k < n && member == 0) settled |= settle(slots[k], sequences[k], found);
  }
  return p.reduce(settled, Or());
}

// Whether a payload is being read in slices. It no longer is when its request has ended meanwhile: its arrival is
// nobody else's.
template <class P>
BLINK_FN bool Scheduler<P>::slicing() const {
  if (s.staging.arrival == 0) return false;
  const blink_request& r = c.requests[arrival_slot(s.staging.arrival)];
  return waiting(r) && r.arrival == s.staging.arrival && r.sequence_index == BLINK_NO_SEQUENCE;
}

// Reads on where the last slice ended, as far as this turn may. False: that was the last one, and the payload must be
// read again.
template <class P>
BLINK_FN bool Scheduler<P>::stage_slice() {
  const blink_staging at = s.staging;
  const uint32_t slot = arrival_slot(at.arrival), length = payload_length(slot, at.sequence);
  const uint32_t first = Max()(at.done, kHead);  // the descriptor is here already
  const uint32_t end = Min()(length, first + readable_words);
  readable_words -= end - first;
  const uint64_t found = p.reduce(read_payload(slot, at.sequence, at.done, end, tid, threads), Findings());
  const uint32_t payload = payload_end(t.params[at.sequence]);
  const uint32_t crc = crc_join(at.crc, Min()(end, payload) - Min()(at.done, payload), low(found));
  const uint32_t wrong = at.wrong | high(found);
  uint32_t settled = end < length;
  if (tid == 0) {
    s.staging = {end < length ? at.arrival : 0, at.sequence, end, crc, wrong};
    if (end == length) settled = settle(slot, at.sequence, crc | uint64_t(wrong) << 32);
  }
  return p.reduce(settled, Or());
}

template <class P>
BLINK_FN uint32_t Scheduler<P>::next_free_sequence(uint32_t first) {
  uint32_t sequence = BLINK_NO_SEQUENCE;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    if (i >= first && c.sequences[i].use == BLINK_SEQUENCE_FREE) sequence = Min()(sequence, i);
  }
  return p.reduce(sequence, Min());
}

// What becomes of a payload that has been read; called by one thread. Nonzero unless it must be read again.
template <class P>
BLINK_FN uint32_t Scheduler<P>::settle(uint32_t slot, uint32_t sequence, uint64_t found) {
  blink_request& r = c.requests[slot];
  const blink_descriptor& d = t.params[sequence];
  const uint32_t problem = judge(r, d, found);
  if (!problem) {
    if (d.grammar_words == 0) not_torn(r);
    if (!r.placed) r.arrival = make_arrival(s.claims, kNewTicket, slot);
    r.placed = 1;
    r.client = d.client;
    r.priority = c.priorities ? d.priority : 0;
    blink_sequence& staged = assign(slot, sequence);
    staged.prefill_end = d.prompt_tokens + r.generated;
    staged.scored = d.prompt_logprob_words != 0 && r.generated == 0;
    begin_links(staged, index.salt_sum(d.salt));
    return 1;
  }
  if (problem != kTorn) {
    finish(slot, problem);
    return 1;
  }
  const bool misplaced = belongs(r, d) && !prompt_in_heap(d);
  return tear(slot, misplaced ? BLINK_REASON_BAD_RANGE : BLINK_REASON_BAD_CHECKSUM);
}

}  // namespace blink

#endif
