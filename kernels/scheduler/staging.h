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

#include "../../ringbuffer/words.h"
#include "arrivals.h"
#include "clock.h"
#include "grammars.h"
#include "life.h"
#include "payload.h"
#include "prefix.h"
#include "prefix_index.h"
#include "requests.h"
#include "steps.h"
#include "tables.h"
#include "turns.h"

namespace blink {

constexpr uint32_t kStageSlots = 8;      // read side by side
constexpr uint32_t kLongPayload = 1024;  // words: a longer one has all threads for itself

template <class P>
class Staging : private Tables {
 public:
  BLINK_FN Staging(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                   PrefixIndex<P>& index, Payloads<P>& payloads, Requests<P>& requests, Life<P>& life, Turns<P>& turns,
                   Grammars<P>& grammars)
      : Tables(config),
        p_(platform),
        steps_(steps),
        clock_(clock),
        index_(index),
        payloads_(payloads),
        requests_(requests),
        life_(life),
        turns_(turns),
        grammars_(grammars) {}

  // Stages while there is nothing more urgent. True if the next step had better be planned when the ring was looked at
  // again: requests of a burst arrive microseconds apart, and a step that began with the first alone would make the
  // others wait for all of it.
  BLINK_FN bool stage_ahead() {
    const uint32_t room = t_.n_sequences - c_.max_batch;
    if (s_.n_staged && c_.max_grammar_words && may_stage() && grammars_.provide_next()) return true;
    if (s_.n_waiting == s_.n_staged || s_.n_staged >= room || !may_stage()) return false;
    return stage(room - s_.n_staged);
  }

  // Stages the next requests in line, at most `most`, or reads the next slice of the one that is under way. False:
  // none could be read on, staged or refused.
  BLINK_CALLED bool stage(uint32_t most) {
    if (payloads_.readable_words() == 0) return false;
    if (slicing()) return stage_slice();
    uint32_t slots[kStageSlots], sequences[kStageSlots];
    const uint32_t n = choose(most, slots, sequences);
    if (n == 0) return false;
    uint32_t whole = 0, words = 0;
    for (; whole < n; ++whole) {
      const uint32_t more = payloads_.length_of(slots[whole], sequences[whole]) - kHead;
      if (words + more > payloads_.readable_words()) break;
      words += more;
    }
    payloads_.spend(words);
    if (whole) return stage_whole(slots, sequences, whole);
    if (p_.thread() == 0) s_.staging = {c_.requests[slots[0]].arrival, sequences[0], 0, 0, 0};
    p_.sync();
    return stage_slice();
  }

 private:
  // Whether there is nothing more urgent.
  BLINK_FN bool may_stage() const {
    return life_.phase() != BLINK_PHASE_FAILED && !(steps_.in_flight() ? clock_.plan_is_due() : s_.n_active != 0);
  }

  // The next requests in line, at most `most`, with a free sequence for each, in whose parameters their descriptors
  // then are. Returns how many.
  BLINK_FN uint32_t choose(uint32_t most, uint32_t* slots, uint32_t* sequences) {
    most = Min()(Min()(most, kStageSlots), Max()(1u, payloads_.readable_words() / kDescriptorWords));
    uint32_t n = 0;
    Place place = {0, 0};
    for (uint32_t sequence = 0; n < most; ++n, ++sequence) {
      place = turns_.next_in_line(place, true);
      if (place.arrival == kNone) break;
      sequence = next_free_sequence(sequence);
      if (sequence == BLINK_NO_SEQUENCE && n == 0 && turns_.unstage_behind(place)) sequence = next_free_sequence(0);
      if (sequence == BLINK_NO_SEQUENCE) break;
      slots[n] = arrival_slot(place.arrival);
      sequences[n] = sequence;
    }
    for (uint32_t i = p_.thread(); i < n * kDescriptorWords; i += p_.threads()) {
      const uint32_t k = i / kDescriptorWords, word = i % kDescriptorWords;
      reinterpret_cast<uint32_t*>(t_.params + sequences[k])[word] =
          p_.load(reinterpret_cast<const uint32_t*>(&c_.descriptors[slots[k]]) + word);
    }
    payloads_.spend(n * kDescriptorWords);
    p_.sync();
    return n;
  }

  // False: all of the payloads must be read again.
  BLINK_FN bool stage_whole(const uint32_t* slots, const uint32_t* sequences, uint32_t n) {
    uint32_t longest = 0, settled = 0;
    for (uint32_t k = 0; k < n; ++k) longest = Max()(longest, payloads_.length_of(slots[k], sequences[k]));
    uint32_t teams = 1;
    while (longest <= kLongPayload && teams < n && p_.threads() % (2 * teams) == 0) teams *= 2;
    const uint32_t size = p_.threads() / teams, team = p_.thread() / size, member = p_.thread() % size;
    for (uint32_t first = 0; first < n; first += teams) {
      const uint32_t k = first + team;
      const uint32_t end = k < n ? payloads_.length_of(slots[k], sequences[k]) : 0;
      const uint64_t part = k < n ? payloads_.read(slots[k], sequences[k], 0, end, member, size) : 0;
      uint64_t found = 0;
      for (uint32_t i = 0; i < teams; ++i) {
        const uint64_t sum = p_.reduce(i == team ? part : 0, Findings());
        if (i == team) found = sum;
      }
      if (k < n && member == 0) settled |= settle(slots[k], sequences[k], found);
    }
    return p_.reduce(settled, Or());
  }

  // Whether a payload is being read in slices. It no longer is when its request has ended meanwhile: its arrival is
  // nobody else's.
  BLINK_FN bool slicing() const {
    if (s_.staging.arrival == 0) return false;
    const blink_request& r = c_.requests[arrival_slot(s_.staging.arrival)];
    return waiting(r) && r.arrival == s_.staging.arrival && r.sequence_index == BLINK_NO_SEQUENCE;
  }

  // Reads on where the last slice ended, as far as this turn may. False: that was the last one, and the payload must be
  // read again.
  BLINK_FN bool stage_slice() {
    const blink_staging at = s_.staging;
    const uint32_t slot = arrival_slot(at.arrival), length = payloads_.length_of(slot, at.sequence);
    const uint32_t first = Max()(at.done, kHead);  // the descriptor is here already
    const uint32_t end = Min()(length, first + payloads_.readable_words());
    payloads_.spend(end - first);
    const uint64_t found =
        p_.reduce(payloads_.read(slot, at.sequence, at.done, end, p_.thread(), p_.threads()), Findings());
    const uint32_t payload = payloads_.words_of(t_.params[at.sequence]);
    const uint32_t crc = crc_join(at.crc, Min()(end, payload) - Min()(at.done, payload), low(found));
    const uint32_t wrong = at.wrong | high(found);
    uint32_t settled = end < length;
    if (p_.thread() == 0) {
      s_.staging = {end < length ? at.arrival : 0, at.sequence, end, crc, wrong};
      if (end == length) settled = settle(slot, at.sequence, crc | uint64_t(wrong) << 32);
    }
    return p_.reduce(settled, Or());
  }

  BLINK_FN uint32_t next_free_sequence(uint32_t first) {
    uint32_t sequence = BLINK_NO_SEQUENCE;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (i >= first && c_.sequences[i].use == BLINK_SEQUENCE_FREE) sequence = Min()(sequence, i);
    }
    return p_.reduce(sequence, Min());
  }

  // What becomes of a payload that has been read; called by one thread. Nonzero unless it must be read again.
  BLINK_FN uint32_t settle(uint32_t slot, uint32_t sequence, uint64_t found) {
    blink_request& r = c_.requests[slot];
    const blink_descriptor& d = t_.params[sequence];
    const uint32_t problem = payloads_.judge(r, d, found);
    if (!problem) {
      if (d.grammar_words == 0) not_torn(r);
      if (!r.placed) r.arrival = make_arrival(s_.claims, kNewTicket, slot);
      r.placed = 1;
      r.client = d.client;
      r.priority = c_.priorities ? d.priority : 0;
      blink_sequence& staged = requests_.assign(slot, sequence);
      staged.prefill_end = d.prompt_tokens + r.generated;
      staged.scored = d.prompt_logprob_words != 0 && r.generated == 0;
      begin_links(staged, index_.salt_sum(d.salt));
      return 1;
    }
    if (problem != kTorn) {
      requests_.finish(slot, problem);
      return 1;
    }
    const bool misplaced = payloads_.belongs(r, d) && !payloads_.prompt_in_heap(d);
    return requests_.tear(slot, misplaced ? BLINK_REASON_BAD_RANGE : BLINK_REASON_BAD_CHECKSUM);
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  PrefixIndex<P>& index_;
  Payloads<P>& payloads_;
  Requests<P>& requests_;
  Life<P>& life_;
  Turns<P>& turns_;
  Grammars<P>& grammars_;
};

}  // namespace blink

#endif
