/* Looks drafts up in a sequence's own tokens: where do its last n tokens stand earlier in its history? What followed
 * there is the draft (drafts.h).
 *
 * For each n from shortest_match to longest_match the index has, under the hash of n tokens, the position behind them;
 * the longest match is taken. Where there is none, drafts go on behind the last ones, over a token that was not
 * accepted: a copied text with changes. An entry only says where to look, so it may be overwritten or be another
 * sequence's: what stands there is compared. So the index is never cleared, and a look-up takes the same time however
 * long the history is.
 */
#ifndef BLINK_SCHEDULER_LOOKUP_H
#define BLINK_SCHEDULER_LOOKUP_H

#include "mixing.h"
#include "tables.h"

namespace blink {

constexpr uint32_t kIndexedAtOnce = 4;  // tokens of a prompt that a thread indexes in one turn of the loop
constexpr uint32_t kFewTokens =
    2 * BLINK_MAX_DRAFTS;  // that a sequence has more when a step has been committed, and some

template <class P>
class Lookup : private Tables {
 public:
  BLINK_FN Lookup(P& platform, const blink_scheduler_config& config) : Tables(config), p_(platform) {}

  // For one thread: puts what follows the longest match into the history, behind what is known: `most` tokens. Returns
  // how many.
  BLINK_FN uint32_t look_up(uint32_t i, uint32_t most) {
    blink_sequence& sequence = c_.sequences[i];
    uint32_t* const tokens = history(i);
    const uint32_t end = known(sequence), longest = Min()(c_.longest_match, end - 1);
    uint64_t hash = 0;
    uint32_t from = 0;
    for (uint32_t n = 1; most && n <= longest; ++n) {
      hash = mix_bits(hash ^ tokens[end - n]);
      if (n < c_.shortest_match) continue;
      const uint32_t at = p_.load(place(i, hash, n));
      if (at >= n && at < end && is_match(tokens, at, end, n)) from = at;
    }
    if (from == 0) from = sequence.source;
    if (from == 0 || from >= end) return sequence.source = 0;
    sequence.source = from;
    // What is read may be a draft that was just written: what repeats itself goes on doing so.
    for (uint32_t k = 0; k < most; ++k) tokens[end + k] = tokens[from + k];
    return most;
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

  BLINK_FN static bool is_match(const uint32_t* tokens, uint32_t at, uint32_t end, uint32_t n) {
    for (uint32_t k = 1; k <= n; ++k)
      if (tokens[at - k] != tokens[end - k]) return false;
    return true;
  }

  // The tokens up to `position`, behind which another is known.
  BLINK_FN void index(uint32_t i, uint32_t position) {
    const uint32_t* const tokens = history(i);
    uint64_t hash = 0;
    for (uint32_t n = 1; n <= c_.longest_match && n <= position + 1; ++n) {
      hash = mix_bits(hash ^ tokens[position + 1 - n]);
      if (n >= c_.shortest_match) p_.store(place(i, hash, n), position + 1);
    }
  }
  BLINK_FN uint32_t* place(uint32_t i, uint64_t hash, uint32_t n) const {
    return c_.draft_places + uint64_t(i) * c_.n_draft_places + (mix_bits(hash + n) & (c_.n_draft_places - 1));
  }

  P& p_;
};

}  // namespace blink

#endif
