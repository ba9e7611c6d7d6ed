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

constexpr uint32_t kDescriptorWords = sizeof(blink_descriptor) / 4;
constexpr uint32_t kHead = kDescriptorWords - 1;  // words of a payload in front of its prompt: all but the checksum
constexpr uint32_t kTorn = 0x80000000u;
constexpr uint32_t kStageSlots = 8;  // read side by side
constexpr uint32_t kAhead = 8;       // a thread's loads in flight: each crosses PCIe when the ring is in host memory
constexpr uint32_t kLongPayload = 1024;  // words: a longer one has all threads for itself

// What is wrong with a payload part, above its checksum's summand.
constexpr uint32_t kBadPrompt = 1, kBadAnswer = 2;

// Payload parts that many threads read: their checksums' summands below, what is wrong with any above.
struct Findings {
  BLINK_FN uint64_t operator()(uint64_t a, uint64_t b) const { return ((a ^ b) & 0xffffffffu) | ((a | b) >> 32 << 32); }
};

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

// Whether another payload lies in the slot than the one that a paused request was admitted with. How far its sequence,
// its pages and its answer reach was decided by that one, so it resumes from no other, be its checksum right or wrong
// (S13).
template <class P>
BLINK_FN bool Scheduler<P>::replaced(const blink_request& r, const blink_descriptor& d) const {
  return r.state == BLINK_STATE_DECODE_PAUSED && (d.crc32c != r.crc32c || d.prompt_tokens != r.prompt_tokens);
}

// Whether a prompt and its controls lie in their lease's part of the heap, by a descriptor that need not be whole.
template <class P>
BLINK_FN bool Scheduler<P>::prompt_in_heap(const blink_descriptor& d) const {
  return payload_words(d, t.vocab_size) <= d.prompt_room && uint64_t(d.prompt_offset) + d.prompt_room <= c.prompt_heap;
}

// Words of a payload whose descriptor is in the sequence's parameters, and records that its request has published: what
// is to be read. Nothing of it but the descriptor where the rest is not this request's, or cannot be served.
template <class P>
BLINK_FN uint32_t Scheduler<P>::payload_length(uint32_t slot, uint32_t sequence) const {
  const blink_request& r = c.requests[slot];
  const blink_descriptor& d = t.params[sequence];
  if (!readable(r, d) || replaced(r, d)) return kHead;
  return payload_end(d) + r.generated;
}
// Words of the payload of a descriptor that is readable.
template <class P>
BLINK_FN uint32_t Scheduler<P>::payload_end(const blink_descriptor& d) const {
  return kHead + uint32_t(payload_words(d, t.vocab_size));
}
template <class P>
BLINK_FN bool Scheduler<P>::readable(const blink_request& r, const blink_descriptor& d) const {
  return d.sequence == r.submission && d.prompt_tokens <= t.max_context && counts_are_good(d) &&
         control_words(d, t.vocab_size) <= t.control_words && prompt_in_heap(d);
}

// One thread's part of what payload_length counts, from `begin` to `end`: the prompt goes into the sequence's history,
// and behind it what a paused request has answered; the controls go into their table. Nothing in the descriptor may be
// believed before the checksum has matched.
template <class P>
BLINK_FN uint64_t Scheduler<P>::read_payload(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end,
                                             unsigned member, unsigned size) {
  const blink_descriptor& d = t.params[sequence];
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&d);
  const uint32_t* from = prompt(slot, d);
  uint32_t* to = history(sequence);
  const uint32_t prompt_end = kHead + d.prompt_tokens, payload = payload_end(d);
  const uint32_t last = Min()(end, payload);
  CrcShare crc(begin < last ? last - begin : 0, begin == 0, member, size);
  uint32_t largest = 0;
  for (uint32_t left = crc.n_words(); left;) {
    uint32_t word[kAhead];
    const uint32_t n = Min()(left, kAhead);
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t at = i < n ? begin + crc.index(left - 1 - i) : 0;
      word[i] = at < kHead ? words[at] : p.load(from + (at - kHead));
    }
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (i >= n) break;
      const uint32_t at = begin + crc.index(left - 1 - i);
      crc.add(left - 1 - i, word[i]);
      if (at < kHead) continue;
      if (at < prompt_end) {
        to[at - kHead] = word[i];
        largest = Max()(largest, word[i]);
      } else {
        controls(sequence)[at - prompt_end] = word[i];
      }
    }
    left -= n;
  }
  uint32_t wrong = largest >= t.vocab_size ? kBadPrompt : 0;
  if (end > payload) wrong |= read_answer(slot, sequence, Max()(begin, payload) - payload, end - payload, member, size);
  return crc.share() | uint64_t(wrong) << 32;
}

// One thread's part of the tokens that a paused request has published: it goes on where it was, so they are prefilled
// again. They index what the engine reads, and the ring may have been written by anybody.
template <class P>
BLINK_FN uint32_t Scheduler<P>::read_answer(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end,
                                            unsigned member, unsigned size) {
  const blink_request& r = c.requests[slot];
  uint32_t* to = history(sequence) + r.prompt_tokens;
  const uint64_t* from = outputs(slot);
  bool good = true;
  for (uint32_t i = begin + member; i < end; i += kAhead * size) {
    uint64_t record[kAhead];
    for (uint32_t k = 0; k < kAhead; ++k) record[k] = i + k * size < end ? p.load(from + i + k * size) : 0;
    for (uint32_t k = 0; k < kAhead && i + k * size < end; ++k) {
      good = good && low(record[k]) < t.vocab_size && record_is(record[k], i + k * size, r.submission);
      to[i + k * size] = low(record[k]);
    }
  }
  return good ? 0 : kBadAnswer;
}

// What becomes of a payload that has been read; called by one thread. Nonzero unless it must be read again.
template <class P>
BLINK_FN uint32_t Scheduler<P>::settle(uint32_t slot, uint32_t sequence, uint64_t found) {
  blink_request& r = c.requests[slot];
  const blink_descriptor& d = t.params[sequence];
  const uint32_t problem = judge(r, d, found);
  if (!problem) {
    if (d.grammar_words == 0) not_torn(r);
    if (!r.placed) {
      r.arrival = make_arrival(s.claims, kNewTicket, slot);
      r.client = d.client;
      r.placed = 1;
    }
    blink_sequence& staged = c.sequences[sequence];
    staged = {};
    staged.use = BLINK_SEQUENCE_STAGED;
    staged.slot = slot;
    staged.client = r.client;
    staged.prefill_end = d.prompt_tokens + r.generated;
    staged.grammar = BLINK_NO_GRAMMAR;
    staged.scored = d.prompt_logprob_words != 0 && r.generated == 0;
    begin_links(staged, index.salt_sum(d.salt));
    r.sequence_index = sequence;
    p.add(&s.n_staged, 1u);
    return 1;
  }
  if (problem != kTorn) {
    finish(slot, problem);
    return 1;
  }
  const bool misplaced = d.sequence == r.submission && !prompt_in_heap(d);
  return tear(slot, misplaced ? BLINK_REASON_BAD_RANGE : BLINK_REASON_BAD_CHECKSUM);
}

// A pause that comes later is as old as the request, and torn by nobody.
template <class P>
BLINK_FN void Scheduler<P>::not_torn(blink_request& r) const {
  r.torn_since_ns = r.torn_last_ns = 0;
}

// A request's payload or grammar does not match: it is read again, or refused for `reason` when it has been so for too
// long. Called by one thread. Nonzero if it was refused.
template <class P>
BLINK_FN uint32_t Scheduler<P>::tear(uint32_t slot, uint32_t reason) {
  blink_request& r = c.requests[slot];
  p.add(&s.stats.torn_payloads, uint64_t(1));
  r.torn_last_ns = now;
  if (r.torn_since_ns == 0) r.torn_since_ns = now;
  if (now - r.torn_since_ns <= BLINK_TORN_PAYLOAD_TIMEOUT_NS) return 0;
  finish(slot, reason);
  return 1;
}

// Returns 0, kTorn, or the reason to refuse the request.
template <class P>
BLINK_FN uint32_t Scheduler<P>::judge(const blink_request& r, const blink_descriptor& d, uint64_t found) const {
  if (replaced(r, d)) return BLINK_REASON_BAD_CHECKSUM;
  if (!readable(r, d) || ~low(found) != d.crc32c) return kTorn;
  if (high(found) & kBadPrompt) return BLINK_REASON_BAD_TOKEN;
  if (high(found) & kBadAnswer) return BLINK_REASON_BAD_CHECKSUM;
  if (d.output_room == 0 || d.output_offset + output_words(d) > c.output_heap) return BLINK_REASON_BAD_RANGE;
  if (const uint32_t problem = check_grammar_range(d)) return problem;
  return check_parameters(d);
}

// Written so that a NaN fails.
template <class P>
BLINK_FN uint32_t Scheduler<P>::check_parameters(const blink_descriptor& d) const {
  if (d.prompt_tokens == 0) return BLINK_REASON_EMPTY_PROMPT;
  if (d.prompt_tokens >= longest_context()) return BLINK_REASON_PROMPT_TOO_LONG;
  constexpr float kLarge = 1e30f;
  const bool good = d.max_tokens >= 1 && d.temperature >= 0 && d.temperature < kLarge && d.top_p > 0 && d.top_p <= 1 &&
                    d.min_p >= 0 && d.min_p <= 1 && d.repetition_penalty > 0 && d.repetition_penalty < kLarge &&
                    d.presence_penalty > -kLarge && d.presence_penalty < kLarge && d.frequency_penalty > -kLarge &&
                    d.frequency_penalty < kLarge && d.n_stop_ids <= BLINK_MAX_STOP_IDS &&
                    Max()(d.logprob_words, d.prompt_logprob_words) <= t.vocab_size + 1;
  return good ? 0 : BLINK_REASON_BAD_PARAMETER;
}

}  // namespace blink

#endif
