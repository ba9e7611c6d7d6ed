/* Staging: requests that wait are read from the ring and checked before they are needed, so that planning a prefill
 * step is bookkeeping.
 *
 * A staged request holds a sequence: descriptor and prompt are in the sequence's parameters and history, copied and
 * checksummed on the way (R4). It still waits, in its place in the line, without pages and in no step (S13). A payload
 * that does not match was overtaken by its request word; it is read again later, never served.
 *
 * With the ring in host memory a read takes a microsecond or two, so everything is read side by side: all descriptors
 * at once, then the prompts, a team of threads each.
 */
#ifndef BLINK_SCHEDULER_STAGING_H
#define BLINK_SCHEDULER_STAGING_H

namespace blink {

constexpr uint32_t kDescriptorWords = sizeof(blink_descriptor) / 4;  // the last one is the checksum
constexpr uint32_t kTorn = 0x80000000u;
constexpr uint32_t kStageSlots = 8;     // read side by side
constexpr uint32_t kLongPrompt = 1024;  // tokens: a longer one has all threads for itself

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
  if (s.n_waiting == s.n_staged || s.n_staged >= room || phase == BLINK_PHASE_FAILED) return false;
  if (in_flight() ? plan_is_due() : s.n_active != 0) return false;
  return stage(room - s.n_staged);
}

// Stages the oldest requests that wait, at most `most`. False: none could be staged or refused.
template <class P>
BLINK_FN bool Scheduler<P>::stage(uint32_t most) {
  uint32_t slots[kStageSlots], sequences[kStageSlots], n = 0;
  uint64_t arrival = 0;
  for (uint32_t sequence = 0; n < Min()(most, kStageSlots); ++n, ++sequence) {
    if ((arrival = next_unstaged(arrival)) == kNone || (sequence = next_free_sequence(sequence)) == BLINK_NO_SEQUENCE)
      break;
    slots[n] = arrival_slot(arrival);
    sequences[n] = sequence;
  }
  if (n == 0) return false;
  for (uint32_t i = tid; i < n * kDescriptorWords; i += threads) {
    const uint32_t k = i / kDescriptorWords, word = i % kDescriptorWords;
    reinterpret_cast<uint32_t*>(t.params + sequences[k])[word] =
        p.load(reinterpret_cast<const uint32_t*>(&c.descriptors[slots[k]]) + word);
  }
  p.sync();
  uint32_t longest = 0, settled = 0;
  for (uint32_t k = 0; k < n; ++k) longest = Max()(longest, t.params[sequences[k]].prompt_tokens);
  uint32_t teams = 1;
  while (longest <= kLongPrompt && teams < n && threads % (2 * teams) == 0) teams *= 2;
  const uint32_t size = threads / teams, team = tid / size, member = tid % size;
  for (uint32_t first = 0; first < n; first += teams) {
    const uint32_t k = first + team;
    const uint64_t part = k < n ? read_payload(slots[k], sequences[k], member, size) : 0;
    uint64_t found = 0;
    for (uint32_t i = 0; i < teams; ++i) {
      const uint64_t sum = p.reduce(i == team ? part : 0, Findings());
      if (i == team) found = sum;
    }
    if (k < n) settled |= settle(slots[k], sequences[k], found, member);
  }
  return p.reduce(settled, Or());
}

// The arrival of the oldest request younger than `arrival` that waits and is not staged.
template <class P>
BLINK_FN uint64_t Scheduler<P>::next_unstaged(uint64_t arrival) {
  uint64_t next = kNone;
  for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
    const blink_request& r = c.requests[slot];
    if (waiting(r) && r.sequence_index == BLINK_NO_SEQUENCE && !torn(r) && r.arrival > arrival) {
      next = Min()(next, r.arrival);
    }
  }
  return p.reduce(next, Min());
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

// One thread's part of a payload whose descriptor is in the sequence's parameters: the prompt goes into the sequence's
// history, and behind it what a paused request has answered. Nothing in the descriptor may be believed before the
// checksum has matched.
template <class P>
BLINK_FN uint64_t Scheduler<P>::read_payload(uint32_t slot, uint32_t sequence, unsigned member, unsigned size) {
  const blink_descriptor& d = t.params[sequence];
  if (d.prompt_tokens > c.prompt_capacity || replaced(c.requests[slot], d)) return 0;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&d);
  const uint32_t* from = prompt(slot);
  uint32_t* to = history(sequence);
  const uint32_t head = kDescriptorWords - 1;
  CrcShare crc(head + d.prompt_tokens, member, size);
  uint32_t largest = 0;
  constexpr uint32_t kAhead = 8;  // loads in flight: each crosses PCIe when the ring is in host memory
  for (uint32_t left = crc.n_words(); left;) {
    uint32_t word[kAhead];
    const uint32_t n = Min()(left, kAhead);
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t at = i < n ? crc.index(left - 1 - i) : 0;
      word[i] = at < head ? words[at] : p.load(from + (at - head));
    }
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (i >= n) break;
      const uint32_t at = crc.index(left - 1 - i);
      crc.add(left - 1 - i, word[i]);
      if (at < head) continue;
      if (at - head < t.max_context) to[at - head] = word[i];
      largest = Max()(largest, word[i]);
    }
    left -= n;
  }
  const uint32_t wrong = (largest >= t.vocab_size ? kBadPrompt : 0) | read_answer(slot, sequence, member, size);
  return crc.share() | uint64_t(wrong) << 32;
}

// One thread's part of the tokens that a paused request has published: it goes on where it was, so they are prefilled
// again. They index what the engine reads, and the ring may have been written by anybody.
template <class P>
BLINK_FN uint32_t Scheduler<P>::read_answer(uint32_t slot, uint32_t sequence, unsigned member, unsigned size) {
  const blink_request& r = c.requests[slot];
  uint32_t* to = history(sequence) + r.prompt_tokens;
  bool good = true;
  for (uint32_t i = member; i < r.generated; i += size) {
    const uint64_t record = p.load(outputs(slot) + i);
    good = good && low(record) < t.vocab_size && record_is(record, i, r.submission);
    to[i] = low(record);
  }
  return good ? 0 : kBadAnswer;
}

// What becomes of a payload that a team has read. Nonzero unless it must be read again.
template <class P>
BLINK_FN uint32_t Scheduler<P>::settle(uint32_t slot, uint32_t sequence, uint64_t found, unsigned member) {
  blink_request& r = c.requests[slot];
  if (member != 0) return 0;
  const uint32_t problem = judge(r, t.params[sequence], found);
  if (!problem) {
    r.torn_since_ns = r.torn_last_ns = 0;  // a pause that comes later is as old as the request, and torn by nobody
    blink_sequence& staged = c.sequences[sequence];
    staged = {};
    staged.use = BLINK_SEQUENCE_STAGED;
    staged.slot = slot;
    staged.prefill_end = t.params[sequence].prompt_tokens + r.generated;
    begin_links(staged, index.salt_sum(t.params[sequence].salt));
    r.sequence_index = sequence;
    p.add(&s.n_staged, 1u);
    return 1;
  }
  if (problem != kTorn) {
    finish(slot, problem);
    return 1;
  }
  p.add(&s.stats.torn_payloads, uint64_t(1));
  r.torn_last_ns = now;
  if (r.torn_since_ns == 0) r.torn_since_ns = now;
  if (now - r.torn_since_ns <= BLINK_TORN_PAYLOAD_TIMEOUT_NS) return 0;
  finish(slot, BLINK_REASON_BAD_CHECKSUM);
  return 1;
}

// Returns 0, kTorn, or the reason to refuse the request.
template <class P>
BLINK_FN uint32_t Scheduler<P>::judge(const blink_request& r, const blink_descriptor& d, uint64_t found) const {
  if (replaced(r, d)) return BLINK_REASON_BAD_CHECKSUM;
  if (d.sequence != r.submission || d.prompt_tokens > c.prompt_capacity || ~low(found) != d.crc32c) return kTorn;
  if (high(found) & kBadPrompt) return BLINK_REASON_BAD_TOKEN;
  return high(found) & kBadAnswer ? uint32_t(BLINK_REASON_BAD_CHECKSUM) : check_parameters(d);
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
                    d.frequency_penalty < kLarge && d.n_stop_ids <= BLINK_MAX_STOP_IDS;
  return good ? 0 : BLINK_REASON_BAD_PARAMETER;
}

}  // namespace blink

#endif
