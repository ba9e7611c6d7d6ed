/* Grammars: what answers may be (ringbuffer/grammar.h), in device memory.
 *
 * A request that has one names a range of its lease's heap of prompts. When the request is staged, the range is read
 * from the ring, checked word by word, and kept under the name that its frontend has given it: the next request with
 * that name finds it. A frontend can spoil its own names only, and whatever it writes, what the sampler walks is a
 * grammar. Like long payloads, grammars are read in slices, one after the other, oldest request first (S18).
 */
#ifndef BLINK_SCHEDULER_GRAMMARS_H
#define BLINK_SCHEDULER_GRAMMARS_H

#include "../../ringbuffer/words.h"
#include "arrivals.h"
#include "crc32c.h"
#include "grammar_places.h"
#include "payload.h"
#include "requests.h"
#include "tables.h"

namespace blink {

// Whether word `i` behind a header that is good may be what it is.
BLINK_FN inline bool is_grammar_word(const blink_grammar& head, uint32_t i, uint32_t word) {
  if (i < head.n_returns) return word < head.n_states;
  const uint32_t state = (i - head.n_returns) / head.n_columns, column = (i - head.n_returns) % head.n_columns;
  if (state == 0) return word == 0;
  if (column == 0) return (word & ~(BLINK_GRAMMAR_ACCEPTING | BLINK_GRAMMAR_ANY_PLAIN)) == 0;
  return (word & BLINK_GRAMMAR_NEXT_MASK) < head.n_states && word >> BLINK_GRAMMAR_CALL_SHIFT < head.n_returns;
}

template <class P>
class Grammars : private Tables {
 public:
  BLINK_FN Grammars(P& platform, const blink_scheduler_config& config, Payloads<P>& payloads, GrammarPlaces<P>& places,
                    Requests<P>& requests)
      : Tables(config), p_(platform), payloads_(payloads), places_(places), requests_(requests) {}

  BLINK_FN bool is_missing(uint32_t sequence) const {
    return t_.params[sequence].grammar_words != 0 && c_.sequences[sequence].grammar == BLINK_NO_GRAMMAR;
  }

  // Gives staged sequences their grammars while there is nothing more urgent. True if it did something.
  BLINK_FN bool provide_next() {
    uint64_t oldest = kNone;
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      if (c_.sequences[i].use == BLINK_SEQUENCE_STAGED && is_missing(i))
        oldest = Min()(oldest, c_.requests[c_.sequences[i].slot].arrival);
    }
    oldest = p_.reduce(oldest, Min());
    return oldest != kNone && provide(c_.requests[arrival_slot(oldest)].sequence_index, false);
  }

  // Gives a staged sequence its grammar, or reads a slice of one that is needed. One whose request is the oldest that
  // waits may have the room of those that are staged behind it. True if anything was done.
  BLINK_FN bool provide(uint32_t sequence, bool is_oldest) {
    if (is_reading()) return read();
    const uint32_t found = places_.find(sequence);
    if (found != BLINK_NO_GRAMMAR) {
      if (p_.thread() == 0) places_.give(sequence, found);
      p_.sync();
      return true;
    }
    if (payloads_.readable_words() == 0) return false;
    const uint32_t place = places_.make_room(sequence, is_oldest);
    if (place == BLINK_NO_GRAMMAR) return false;
    if (p_.thread() == 0)
      s_.grammar_reading = {c_.requests[c_.sequences[sequence].slot].arrival, sequence, place, 0, 0, 0, 0};
    p_.sync();
    return read();
  }

 private:
  // Whether a grammar is being read. It no longer is when its request has ended meanwhile.
  BLINK_FN bool is_reading() {
    const blink_grammar_reading& reading = s_.grammar_reading;
    if (reading.arrival == 0) return false;
    const blink_request& r = c_.requests[arrival_slot(reading.arrival)];
    if (waiting(r) && r.arrival == reading.arrival && r.sequence_index == reading.sequence) return true;
    drop();
    return false;
  }

  // Ends the reading of a grammar that is not to be kept.
  BLINK_FN void drop() {
    p_.sync();
    if (p_.thread() == 0) {
      c_.grammar_places[s_.grammar_reading.place] = {};
      s_.grammar_reading = {};
    }
    p_.sync();
  }

  // Reads on, as far as this turn may. False: nothing more may be read in it.
  BLINK_FN bool read() {
    if (payloads_.readable_words() == 0) return false;
    const blink_grammar_reading at = s_.grammar_reading;
    const blink_grammar_place& place = c_.grammar_places[at.place];
    uint32_t done = at.done, crc = at.crc, wrong = at.wrong;
    while (payloads_.readable_words() && done < place.words) {
      const uint32_t begins = done < kGrammarHead ? kGrammarHead : place.words;
      const uint32_t end = Min()(begins, done + payloads_.readable_words());
      payloads_.spend(end - done);
      const uint64_t found = p_.reduce(read_words(at, done, end, wrong), Findings());
      crc = crc_join(crc, end - done, low(found));
      wrong |= high(found);
      done = end;
      if (done == kGrammarHead) wrong |= p_.reduce(check_head(at), Or());
    }
    if (p_.thread() == 0)
      s_.grammar_reading.done = done, s_.grammar_reading.crc = crc, s_.grammar_reading.wrong = wrong;
    p_.sync();
    if (done == place.words) settle();
    return true;
  }

  // One thread's part of the words from `begin` to `end`: into device memory, and checked, unless the header was
  // `wrong` and nothing is known about them. What lies in the ring may change meanwhile, so nothing is read there
  // twice.
  BLINK_FN uint64_t read_words(const blink_grammar_reading& at, uint32_t begin, uint32_t end, uint32_t wrong) {
    const blink_descriptor& d = t_.params[at.sequence];
    const uint32_t lease = lease_of(c_.sequences[at.sequence].slot);
    const uint32_t* from = c_.prompts + uint64_t(lease) * c_.prompt_heap + d.grammar_offset;
    uint32_t* to = t_.grammars + c_.grammar_places[at.place].at;
    CrcShare crc(end - begin, begin == 0, p_.thread(), p_.threads());
    uint32_t bad = 0;
    for (uint32_t left = crc.n_words(); left;) {
      uint32_t word[kAhead];
      const uint32_t n = Min()(left, kAhead);
      for (uint32_t i = 0; i < kAhead; ++i) word[i] = i < n ? p_.load(from + begin + crc.index(left - 1 - i)) : 0;
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t place = begin + crc.index(left - 1 - i);
        crc.add(left - 1 - i, word[i]);
        to[place] = word[i];
        if (place >= kGrammarHead && !wrong)
          bad |= !is_grammar_word(*reinterpret_cast<const blink_grammar*>(to), place - kGrammarHead, word[i]);
      }
      left -= n;
    }
    return crc.share() | uint64_t(bad) << 32;
  }

  // One thread's part of the check of a header that has been read. Nonzero: it is none.
  BLINK_FN uint32_t check_head(const blink_grammar_reading& at) {
    p_.sync();
    const uint32_t words = c_.grammar_places[at.place].words;
    const blink_grammar& head = *reinterpret_cast<const blink_grammar*>(t_.grammars + c_.grammar_places[at.place].at);
    const bool sizes = head.magic == BLINK_GRAMMAR_MAGIC && head.words == words && head.reserved == 0 &&
                       head.n_states >= 2 && head.n_states <= BLINK_GRAMMAR_MAX_STATES && head.n_columns >= 2 &&
                       head.n_columns <= 256 && head.n_returns >= 1 && head.n_returns <= BLINK_GRAMMAR_MAX_RETURNS &&
                       head.start >= 1 && head.start < head.n_states && head.stack_bound <= BLINK_GRAMMAR_MAX_STACK &&
                       words == kGrammarHead + head.n_returns + head.n_states * head.n_columns;
    bool columns = true;
    for (uint32_t byte = p_.thread(); byte < 256; byte += p_.threads())
      columns = columns && head.column_of_byte[byte] >= 1 && head.column_of_byte[byte] < head.n_columns;
    return !(sizes && columns);
  }

  // What becomes of a grammar that has been read, and of the request that it was read for.
  BLINK_FN void settle() {
    const blink_grammar_reading at = s_.grammar_reading;
    const uint32_t slot = arrival_slot(at.arrival);
    const bool matches = ~at.crc == t_.params[at.sequence].grammar_crc32c;
    if (matches && !at.wrong) {
      p_.sync();
      if (p_.thread() == 0) {
        c_.grammar_places[at.place].whole = 1;
        c_.grammar_places[at.place].staged = 0;
        places_.give(at.sequence, at.place);
        s_.grammar_reading = {};
      }
      p_.sync();
      return;
    }
    drop();
    if (p_.thread() == 0) {
      if (matches) {
        requests_.finish(slot, BLINK_REASON_BAD_GRAMMAR);
      } else if (!requests_.tear(slot, BLINK_REASON_BAD_CHECKSUM)) {
        requests_.unstage(c_.requests[slot]);
      }
    }
    p_.sync();
  }

  P& p_;
  Payloads<P>& payloads_;
  GrammarPlaces<P>& places_;
  Requests<P>& requests_;
};

}  // namespace blink

#endif
