/* Looks drafts up in a sequence's own tokens: where do its last tokens stand earlier in its history? What followed
 * there is the draft (drafts.h). There are two ways, with the names that vLLM gives them:
 *
 * `ngram`: for each n from shortest_match to longest_match the index has, under the hash of n tokens, the position
 * behind them; the longest match is taken, and all that followed.
 *
 * `suffix`: for a few n, the index has a row of places under the hash of n tokens. They are compared as far back as
 * longest_match, so a few n find matches of every length. The places that match longest vote, token by token, on what
 * followed; one that is outvoted has no say in what comes behind. The longer the match, the more drafts; they end where
 * too small a share of the places agrees.
 *
 * Where no match is found, drafts go on behind the last ones, over a token that was not accepted: a copied text with
 * changes. An entry of the index only says where to look, so it may be overwritten or be another sequence's: what
 * stands there is compared. So the index is never cleared, and a look-up takes the same time however long the history
 * is. No step runs while one thread looks up, and a load takes long: those of a row, and of what stands at its places,
 * are issued together.
 */
#ifndef BLINK_SCHEDULER_LOOKUP_H
#define BLINK_SCHEDULER_LOOKUP_H

#include "mixing.h"
#include "tables.h"

namespace blink {

constexpr uint32_t kIndexedAtOnce = 4;  // tokens of a prompt that a thread indexes in one turn of the loop
constexpr uint32_t kFewTokens =
    2 * BLINK_MAX_DRAFTS;     // that a sequence has more when a step has been committed, and some
constexpr uint32_t kRow = 8;  // places under one hash: the 32 bytes that memory is read by

template <class P>
class Lookup : private Tables {
 public:
  BLINK_FN Lookup(P& platform, const blink_scheduler_config& config) : Tables(config), p_(platform) {}

  // For one thread: puts drafts into the history, behind what is known: `most` tokens or fewer. Returns how many.
  BLINK_FN uint32_t look_up(uint32_t i, uint32_t most) {
    if (most == 0) return 0;
    const uint32_t end = known(c_.sequences[i]);
    return c_.drafts_per_matched_token ? look_up_suffix(i, end, most) : look_up_ngram(i, end, most);
  }

  // For one thread: a step has found `n` tokens of a sequence that decodes. Where a text is copied and a word of it
  // changed, the next drafts follow the changed one, until two steps in a row have accepted none.
  BLINK_FN void follow(blink_sequence& sequence, uint32_t n) const {
    sequence.misses = sequence.n_drafts && n == 1 ? sequence.misses + 1 : 0;
    sequence.source = sequence.source && sequence.misses < 2 ? sequence.source + n : 0;
  }

  // All threads call this, while there is time: some more of what sequences have is put into their indexes. New tokens
  // of answers are a thread's work for each sequence, a prompt is that of all threads.
  BLINK_FN void index_ahead() {
    if (!c_.max_drafts || s_.n_active == 0) return;
    uint32_t next = BLINK_NO_SEQUENCE;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      blink_sequence& sequence = c_.sequences[i];
      if (sequence.use != BLINK_SEQUENCE_ACTIVE) continue;
      const uint32_t end = known(sequence) - 1;
      if (sequence.indexed + kFewTokens < end) {
        next = Min()(next, i);
      } else {
        for (; sequence.indexed < end; ++sequence.indexed) index(i, sequence.indexed);
      }
    }
    next = p_.reduce(next, Min());
    if (next == BLINK_NO_SEQUENCE) return;
    blink_sequence& sequence = c_.sequences[next];
    const uint32_t first = sequence.indexed;
    const uint32_t end = Min()(known(sequence) - 1, first + kIndexedAtOnce * p_.threads());
    for (uint32_t position = first + p_.thread(); position < end; position += p_.threads()) index(next, position);
    p_.sync();
    if (p_.thread() == 0) sequence.indexed = end;
    p_.sync();
  }

 private:
  // Tokens of the sequence's history that are committed.
  BLINK_FN uint32_t known(const blink_sequence& sequence) const {
    const blink_request& r = c_.requests[sequence.slot];
    return r.prompt_tokens + r.generated;
  }

  BLINK_FN uint32_t look_up_ngram(uint32_t i, uint32_t end, uint32_t most) {
    uint32_t* const tokens = history(i);
    uint32_t& source = c_.sequences[i].source;
    const uint32_t longest = Min()(c_.longest_match, end - 1);
    uint64_t hash = 0;
    uint32_t from = 0;
    for (uint32_t n = 1; n <= longest; ++n) {
      hash = mix_bits(hash ^ tokens[end - n]);
      if (n < c_.shortest_match) continue;
      const uint32_t at = p_.load(place(i, hash, n, 1));
      if (at >= n && at < end && is_match(tokens, at, end, n)) from = at;
    }
    if (from == 0) from = source;
    if (from == 0 || from >= end) return source = 0;
    source = from;
    repeat(tokens, from, end, 0, most);
    return most;
  }
  // Puts what stands from `from` on behind `end`: the drafts from the `n`-th to the `most`-th. The first `n` are there,
  // and are what stands there, too. What would be read from behind `end` is a draft itself, and so the same as a token
  // between `from` and `end`, which is read instead: all loads are issued together.
  BLINK_FN static void repeat(uint32_t* tokens, uint32_t from, uint32_t end, uint32_t n, uint32_t most) {
    uint32_t at = from + n;
    while (at >= end) at -= end - from;
    while (n < most) {
      uint32_t token[kAhead];
      for (uint32_t k = 0; k < kAhead; ++k) {
        token[k] = tokens[at];
        at = at + 1 < end ? at + 1 : from;
      }
      for (uint32_t k = 0; k < kAhead && n < most; ++k, ++n) tokens[end + n] = token[k];
    }
  }
  BLINK_FN static bool is_match(const uint32_t* tokens, uint32_t at, uint32_t end, uint32_t n) {
    for (uint32_t k = 1; k <= n; ++k)
      if (tokens[at - k] != tokens[end - k]) return false;
    return true;
  }

  // Earlier places in a history, each named by the position behind it, 0 for none; those of them that match longest,
  // a bit each; and how many tokens that is.
  struct Places {
    uint32_t at[kRow];
    uint32_t alike;
    uint32_t length;

    BLINK_FN bool matches(uint32_t k) const { return alike >> k & 1; }
    BLINK_FN bool several() const { return alike & (alike - 1); }
    BLINK_FN uint32_t latest() const {
      uint32_t last = 0;
      for (uint32_t k = 0; k < kRow; ++k) last = matches(k) ? Max()(last, at[k]) : last;
      return last;
    }
  };

  BLINK_FN uint32_t look_up_suffix(uint32_t i, uint32_t end, uint32_t most) {
    uint32_t* const tokens = history(i);
    uint32_t& source = c_.sequences[i].source;
    const uint32_t per_token = c_.drafts_per_matched_token;
    const uint32_t enough = ((most << 16) + per_token - 1) / per_token;  // tokens of a match with so many drafts
    Places places = longest_suffix(i, end, enough);
    if (places.length == 0 && source && source < end) {  // the match before the token that was not accepted
      places.at[0] = source - 1;
      keep_longest(tokens, end - 1, enough, places);
      places.at[0] = source;
    }
    if (places.length == 0) return source = 0;
    most = Min()(most, uint32_t(uint64_t(places.length) * per_token >> 16));
    const uint32_t n = vote(tokens, end, most, places);
    source = places.latest();
    return n;
  }

  // The places of the longest match that the index knows of: those under the hash of most tokens that has any.
  BLINK_FN Places longest_suffix(uint32_t i, uint32_t end, uint32_t enough) const {
    const uint32_t* rows[BLINK_SUFFIX_LENGTHS];
    uint32_t n_rows = 0;
    each_row(i, end, [&](const uint32_t* row) { rows[n_rows++] = row; });
    Places places;
    while (n_rows--) {
      for (uint32_t k = 0; k < kRow; ++k) places.at[k] = p_.load(rows[n_rows] + k);
      for (uint32_t k = 0; k < kRow; ++k) places.at[k] = places.at[k] < end ? places.at[k] : 0;
      keep_longest(history(i), end, Max()(enough, suffix_length(n_rows)), places);
      if (places.length >= suffix_length(n_rows)) return places;
    }
    return {};
  }

  // Which of the places match what stands before `end` longest. Of a single one, it does not matter how much longer
  // than enough its match is.
  BLINK_FN void keep_longest(const uint32_t* tokens, uint32_t end, uint32_t enough, Places& places) const {
    places.alike = 0;
    for (places.length = 0; places.length < c_.longest_match; ++places.length) {
      if (places.length >= enough && !places.several()) return;
      const uint32_t token = tokens[end - 1 - places.length];
      uint32_t before[kRow], equal = 0;
      for (uint32_t k = 0; k < kRow; ++k)
        before[k] = tokens[places.at[k] > places.length ? places.at[k] - 1 - places.length : 0];
      for (uint32_t k = 0; k < kRow; ++k) equal |= uint32_t(places.at[k] > places.length && before[k] == token) << k;
      if (places.length) equal &= places.alike;
      if (equal == 0) return;
      places.alike = equal;
    }
  }

  // Puts what followed most of the places behind `end`, at most `most` tokens, while enough of them agree. Where two
  // tokens followed equally often, the later place counts. Returns how many; of the places, those remain that all of it
  // followed. What is read may be a draft that was just written: what repeats itself goes on doing so.
  BLINK_FN uint32_t vote(uint32_t* tokens, uint32_t end, uint32_t most, Places& places) const {
    const uint64_t enough = uint64_t(c_.least_share) * count(places.alike);
    uint32_t n = 0;
    for (; n < most && places.several(); ++n) {
      uint32_t next[kRow], chosen = 0, token = 0;
      uint64_t best = 0;  // votes, and the place
      for (uint32_t k = 0; k < kRow; ++k) next[k] = tokens[places.at[k] + n];
      for (uint32_t k = 0; k < kRow; ++k) {
        if (!places.matches(k)) continue;
        uint32_t same = 0;
        for (uint32_t j = 0; j < kRow; ++j) same |= uint32_t(places.matches(j) && next[j] == next[k]) << j;
        const uint64_t rank = uint64_t(count(same)) << 32 | places.at[k];
        if (rank <= best) continue;
        best = rank;
        chosen = same;
        token = next[k];
      }
      if ((best >> 32 << 16) < enough) return n;
      places.alike = chosen;
      tokens[end + n] = token;
    }
    if (1u << 16 < enough) return n;
    repeat(tokens, places.latest(), end, n, most);
    return most;
  }
  BLINK_FN static uint32_t count(uint32_t bits) {
    uint32_t n = 0;
    for (; bits; bits &= bits - 1) ++n;
    return n;
  }

  // The tokens up to `position`, behind which another is known.
  BLINK_CALLED void index(uint32_t i, uint32_t position) {
    if (c_.drafts_per_matched_token) return index_suffixes(i, position);
    const uint32_t* const tokens = history(i);
    uint64_t hash = 0;
    for (uint32_t n = 1; n <= c_.longest_match && n <= position + 1; ++n) {
      hash = mix_bits(hash ^ tokens[position + 1 - n]);
      if (n >= c_.shortest_match) p_.store(place(i, hash, n, 1), position + 1);
    }
  }
  // A position always has the same place in a row, so it is there only once; which one it takes another's place from
  // is as good as random, so older ones become rarer by and by.
  BLINK_FN void index_suffixes(uint32_t i, uint32_t position) {
    const uint32_t k = mix_bits(position + 1) % kRow;
    each_row(i, position + 1, [&](uint32_t* row) { p_.store(row + k, position + 1); });
  }
  // The rows of the tokens before `end`, of each length that the index has, from the shortest on.
  template <class Use>
  BLINK_FN void each_row(uint32_t i, uint32_t end, Use use) const {
    const uint32_t* const tokens = history(i);
    const uint32_t longest = Min()(c_.longest_match, end);
    uint64_t hash = 0;
    for (uint32_t length = 0, n = 0; length < BLINK_SUFFIX_LENGTHS && suffix_length(length) <= longest; ++length) {
      for (; n < suffix_length(length); ++n) hash = mix_bits(hash ^ tokens[end - 1 - n]);
      use(place(i, hash, n, kRow));
    }
  }
  BLINK_FN static uint32_t suffix_length(uint32_t which) { return 0x0c050201u >> 8 * which & 0xff; }  // 1, 2, 5, 12

  // The first of `row` places, a power of two, for n tokens with this hash.
  BLINK_FN uint32_t* place(uint32_t i, uint64_t hash, uint32_t n, uint32_t row) const {
    return c_.draft_places + uint64_t(i) * c_.n_draft_places + (mix_bits(hash + n) & (c_.n_draft_places - row));
  }

  P& p_;
};

}  // namespace blink

#endif
