/* Where grammars lie in device memory: who has which, and which makes room for another.
 *
 * A grammar is one block of words, and stays where it is. A sequence that is ACTIVE or a ZOMBIE holds its grammar. One
 * that is STAGED has it until an older request needs the room, so requests that wait never keep each other from it
 * (S21).
 */
#ifndef BLINK_SCHEDULER_GRAMMAR_PLACES_H
#define BLINK_SCHEDULER_GRAMMAR_PLACES_H

#include "tables.h"

namespace blink {

template <class P>
class GrammarPlaces : private Tables {
 public:
  BLINK_FN GrammarPlaces(P& platform, const blink_scheduler_config& config) : Tables(config), p_(platform) {}

  // The place of a sequence's grammar, if it is in device memory.
  BLINK_FN uint32_t find(uint32_t sequence) {
    const blink_descriptor& d = t_.params[sequence];
    const uint32_t lease = lease_of(c_.sequences[sequence].slot), epoch = s_.leases[lease].epoch;
    uint32_t found = BLINK_NO_GRAMMAR;
    for (uint32_t i = p_.thread(); i < c_.n_grammar_places; i += p_.threads()) {
      const blink_grammar_place& place = c_.grammar_places[i];
      if (place.whole && place.lease == lease && place.epoch == epoch && place.name == d.grammar_name &&
          place.words == d.grammar_words && place.crc32c == d.grammar_crc32c)
        found = Min()(found, i);
    }
    return p_.reduce(found, Min());
  }

  // One thread's call. Nothing of the request is awaited any more.
  BLINK_FN void give(uint32_t sequence, uint32_t place) {
    not_torn(c_.requests[c_.sequences[sequence].slot]);
    c_.sequences[sequence].grammar = place;
    ++c_.grammar_places[place].staged;
    c_.grammar_places[place].used = ++s_.grammar_uses;
  }

  // Where a grammar of a sequence may lie, of which nothing has been read yet: at the beginning, or behind another,
  // where what has to make room was not used for longest. BLINK_NO_GRAMMAR: nowhere now.
  BLINK_FN uint32_t make_room(uint32_t sequence, bool is_oldest) {
    const blink_descriptor& d = t_.params[sequence];
    uint64_t least = kNone;
    uint32_t best = 0;
    for (uint32_t i = p_.thread(); i <= c_.n_grammar_places; i += p_.threads()) {
      const blink_grammar_place& before = c_.grammar_places[i ? i - 1 : 0];
      if (i && before.words == 0) continue;
      const uint32_t at = i ? (before.at + before.words + BLINK_GRAMMAR_GRANULE - 1) & ~(BLINK_GRAMMAR_GRANULE - 1) : 0;
      const uint64_t loss = loss_at(at, d.grammar_words, is_oldest);
      if (loss < least) least = loss, best = at;
    }
    const uint64_t loss = p_.reduce(least, Min());
    if (loss == kNone) return BLINK_NO_GRAMMAR;
    const uint32_t at = p_.reduce(least == loss ? best : ~0u, Min());
    forget([&](uint32_t i) {
      const blink_grammar_place& place = c_.grammar_places[i];
      return place.at < at + d.grammar_words && at < place.at + place.words;
    });
    const uint32_t place = free_place(is_oldest);
    if (place == BLINK_NO_GRAMMAR) return place;
    if (p_.thread() == 0) {
      const uint32_t lease = lease_of(c_.sequences[sequence].slot);
      const uint32_t being_read = 1;  // keeps it for one that is staged
      c_.grammar_places[place] = {
          0, lease, s_.leases[lease].epoch, d.grammar_name, d.grammar_crc32c, at, d.grammar_words, 0, 0, being_read, 0};
    }
    p_.sync();
    return place;
  }

  // A sequence joins the batch, and is given back; one thread's calls.
  BLINK_FN void hold(uint32_t sequence) {
    const uint32_t grammar = c_.sequences[sequence].grammar;
    if (grammar == BLINK_NO_GRAMMAR) return;
    blink_grammar_place& place = c_.grammar_places[grammar];
    --place.staged;
    ++place.users;
    t_.grammar_at[sequence] = place.at;
  }

  BLINK_FN void give_back(uint32_t sequence) {
    const blink_sequence& own = c_.sequences[sequence];
    if (own.grammar == BLINK_NO_GRAMMAR) return;
    blink_grammar_place& place = c_.grammar_places[own.grammar];
    p_.add(own.use == BLINK_SEQUENCE_STAGED ? &place.staged : &place.users, ~0u);
  }

 private:
  // Whether a place makes room for a request's grammar: nobody has it, or only such as are staged and may lose it.
  BLINK_FN bool gives_way(const blink_grammar_place& place, bool is_oldest) const {
    return place.users == 0 && (is_oldest || place.staged == 0);
  }

  // What would have to give way for a grammar of `words` at `at`: when the last used of it was; or kNone, where
  // something there is to stay.
  BLINK_FN uint64_t loss_at(uint32_t at, uint32_t words, bool is_oldest) const {
    if (uint64_t(at) + words > c_.max_grammar_words) return kNone;
    uint64_t loss = 0;
    for (uint32_t i = 0; i < c_.n_grammar_places; ++i) {
      const blink_grammar_place& place = c_.grammar_places[i];
      if (place.words == 0 || place.at >= at + words || at >= place.at + place.words) continue;
      if (!gives_way(place, is_oldest)) return kNone;
      loss = Max()(loss, place.used);
    }
    return loss;
  }

  // A place that has no grammar, for which the one makes way that was not used for longest, where there is none.
  BLINK_FN uint32_t free_place(bool is_oldest) {
    uint64_t least = kNone;
    for (uint32_t i = p_.thread(); i < c_.n_grammar_places; i += p_.threads()) {
      const blink_grammar_place& place = c_.grammar_places[i];
      if (place.words == 0)
        least = Min()(least, uint64_t(i));
      else if (gives_way(place, is_oldest))
        least = Min()(least, (place.used + 1) << 16 | i);
    }
    least = p_.reduce(least, Min());
    if (least == kNone) return BLINK_NO_GRAMMAR;
    const uint32_t place = least & 0xffff;
    forget([&](uint32_t i) { return i == place; });
    return place;
  }

  // Frees the places of grammars of which goes(place) is true. Whoever is staged and had one has none any more.
  template <class Goes>
  BLINK_FN void forget(const Goes& goes) {
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      blink_sequence& sequence = c_.sequences[i];
      const bool has = sequence.use == BLINK_SEQUENCE_STAGED && sequence.grammar != BLINK_NO_GRAMMAR;
      if (has && goes(sequence.grammar)) sequence.grammar = BLINK_NO_GRAMMAR;
    }
    p_.sync();
    for (uint32_t i = p_.thread(); i < c_.n_grammar_places; i += p_.threads())
      if (c_.grammar_places[i].words && goes(i)) c_.grammar_places[i] = {};
    p_.sync();
  }

  P& p_;
};

}  // namespace blink

#endif
