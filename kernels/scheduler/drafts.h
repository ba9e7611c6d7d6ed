/* Drafts: guesses of a sequence's next tokens, which one step checks together (speculative decoding). The scheduler
 * looks them up in the sequence's own tokens (lookup.h), decides how many are worth their rows, and learns from what
 * became of them. What the model says is never changed by a draft: a row behind the known token is used only if all
 * drafts before it are what the rows before it have sampled (S23).
 *
 * Worth their rows: a row more makes a step longer, and a draft is accepted with some chance. The chances of a
 * sequence's drafts fall as powers of one number, which is estimated from its last drafts. Of a few limits of this
 * chance, each step takes the one with which most tokens are expected in a unit of time, by the times that steps of
 * these shapes took lately. No drafts at all is one of the choices. Old estimates are trusted less the older they are,
 * so what was not worth it is tried again, rarely.
 */
#ifndef BLINK_SCHEDULER_DRAFTS_H
#define BLINK_SCHEDULER_DRAFTS_H

#include "../../ringbuffer/words.h"
#include "lookup.h"
#include "mixing.h"
#include "sequences.h"
#include "steps.h"

namespace blink {

constexpr uint32_t kCertain = 1u << 16;             // a chance of 1
constexpr uint32_t kFirstGuess = kCertain * 3 / 4;  // of a draft to be accepted, while nothing is known of a sequence
constexpr uint32_t kDraftLevels = 8;                // of chances, of which a step takes those from one on
constexpr uint32_t kMostRest = 7;                   // steps without a look-up, where the last ones were for nothing
constexpr float kTrustedSteps = 1024.0f;            // after so many steps a time is trusted by half

template <class P>
class Drafts : private Sequences {
 public:
  BLINK_FN Drafts(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Lookup<P>& lookup)
      : Sequences(config), p_(platform), steps_(steps), lookup_(lookup) {}

  // Whether the next step, if sequences decode in it, is planned only when the one that runs is committed, because
  // drafts begin behind the token that it samples. While look-ups find nothing that is worth a row, most steps are
  // planned without them, and early.
  BLINK_FN bool await_tokens() const {
    if (!c_.max_drafts || s_.n_active == 0) return false;
    return (rest_ == 0 && has_rows()) || steps_.verifies() || c_.copied_share;
  }

  // Gives each sequence that decodes its drafts, all in their histories, of a step in which `n_decoding` sequences
  // decode. False: none has any.
  BLINK_FN bool choose(uint32_t n_decoding, bool has_prompts) {
    if (!c_.max_drafts) return false;
    if (rest_) return --rest_, false;
    if (steps_.in_flight() || !has_rows()) return false;
    // Beside prompts, rows are as many as there may be sequences.
    const uint32_t rows = has_prompts ? Min()(c_.max_batch, c_.max_verify_rows) : c_.max_verify_rows;
    const uint32_t share = Max()(rows / n_decoding, 1u) - 1;  // of each sequence, if all have as many
    Levels found = {0, 0};
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      blink_sequence& sequence = c_.sequences[i];
      if (!decoding(sequence)) continue;
      const uint32_t most = Min()(most_drafts(sequence), share);
      sequence.n_drafts = c_.simulates_acceptance ? most : lookup_.look_up(i, most);
      count_levels(sequence, [&](uint32_t level) { return found.add(level), true; });
    }
    found = {p_.reduce(found.low, Sum()), p_.reduce(found.high, Sum())};
    const bool any = found.low || found.high;
    const uint32_t limit = !any          ? kDraftLevels
                           : has_prompts ? limit_beside_prompts(found)
                                         : best_limit(n_decoding, found);
    if (any) {
      BLINK_ROLLED
      for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
        blink_sequence& sequence = c_.sequences[i];
        if (!decoding(sequence) || !sequence.n_drafts) continue;
        sequence.n_drafts = count_levels(sequence, [&](uint32_t level) { return level >= limit; });
        sequence.unchecked += !sequence.n_drafts;
      }
      p_.sync();
    }
    rest_after_ = limit == kDraftLevels ? Min()(2 * rest_after_ + 1, kMostRest) : 0;
    rest_ = rest_after_;
    return limit != kDraftLevels;
  }

  // No sequence has drafts beyond the pages that it would need without them.
  BLINK_FN void keep_to_pages() {
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      blink_sequence& sequence = c_.sequences[i];
      if (!decoding(sequence) || !sequence.n_drafts) continue;
      const uint32_t pages = Max()(sequence.n_pages, sequence.fed / t_.page_size + 1);
      sequence.n_drafts = Min()(sequence.n_drafts, pages * t_.page_size - sequence.fed - 1);
    }
    p_.sync();
  }

  // What follows is for one thread.

  // Whether what was sampled behind `position` is the draft there, the n-th of its step.
  BLINK_FN bool accepts(uint32_t i, uint32_t position, uint32_t n, uint32_t token) const {
    if (!c_.simulates_acceptance) return history(i)[position + 1] == token;
    const uint64_t drawn = mix_bits(mix_bits(uint64_t(c_.sequences[i].slot) << 32 | position) + t_.params[i].seed);
    return uint32_t(drawn) < c_.acceptance_chances[n];
  }

  // What counts as the answer's next token where `sampled` was drawn: to measure look-ups with weights that mean
  // nothing, an answer is made to repeat its prompt but for some tokens, as an edited text does.
  BLINK_FN uint32_t replayed(uint32_t i, uint32_t sampled) const {
    if (!c_.copied_share || sampled >= t_.vocab_size) return sampled;
    const blink_request& r = c_.requests[c_.sequences[i].slot];
    const uint64_t drawn = mix_bits(mix_bits(uint64_t(r.generated) + 1) + t_.params[i].seed);
    const uint32_t copied = history(i)[r.generated % r.prompt_tokens];
    return uint32_t(drawn) < c_.copied_share ? copied : uint32_t(drawn >> 32) % t_.vocab_size;
  }

  // A step has found `n` tokens of a sequence that decodes.
  BLINK_FN void follow(blink_sequence& sequence, uint32_t n) const { lookup_.follow(sequence, n); }

  // Of a sequence's drafts so many were accepted.
  BLINK_FN void learn(blink_sequence& sequence, uint32_t accepted) {
    uint32_t chance = chance_of(sequence);
    BLINK_ROLLED
    for (uint32_t n = 0; n < accepted; ++n) chance += (kCertain - chance) / 8;
    if (accepted < sequence.n_drafts) chance -= chance / 8;
    sequence.acceptance = chance;
    sequence.unchecked = 0;
    p_.add(&s_.stats.drafts, uint64_t(1));
    p_.add(&s_.stats.draft_tokens, uint64_t(sequence.n_drafts));
    p_.add(&s_.stats.accepted_tokens, uint64_t(accepted));
    sequence.n_drafts = 0;
  }

 private:
  // Drafts of all sequences by the level of their chance, 16 bits each: levels 0 to 3, and 4 to 7.
  struct Levels {
    uint64_t low, high;

    BLINK_FN void add(uint32_t level) { (level < 4 ? low : high) += 1ull << 16 * (level % 4); }
    BLINK_FN uint32_t count(uint32_t level) const {
      return uint32_t((level < 4 ? low : high) >> 16 * (level % 4)) & 0xffff;
    }
  };
  BLINK_FN static uint32_t level_of(uint64_t chance) {
    return Min()(uint32_t(chance * kDraftLevels / kCertain), kDraftLevels - 1);
  }

  // Whether a step of all sequences could have a draft of each.
  BLINK_FN bool has_rows() const { return 2 * s_.n_active <= c_.max_verify_rows; }

  // The drafts that a sequence has room for: within its context and its request's tokens, of which the known token's
  // row makes one.
  BLINK_FN uint32_t most_drafts(const blink_sequence& sequence) const {
    const blink_request& r = c_.requests[sequence.slot];
    const uint32_t outputs = r.max_outputs - (sequence.fed - r.prompt_tokens + 2);
    return Min()(c_.max_drafts, Min()(outputs, t_.max_context - 1 - sequence.fed));
  }

  // The chance of a sequence's next draft. What was seen long ago says less.
  BLINK_FN uint32_t chance_of(const blink_sequence& sequence) const {
    if (sequence.acceptance == 0) return kFirstGuess;
    const uint32_t old = Min()(sequence.unchecked, 64u);
    return sequence.acceptance + (Max()(sequence.acceptance, kFirstGuess) - sequence.acceptance) * old / 128;
  }

  // Gives `takes` the level of each of a sequence's drafts, in their order, until it says no. Returns for how many it
  // said yes.
  template <class Takes>
  BLINK_FN uint32_t count_levels(const blink_sequence& sequence, Takes takes) const {
    const uint32_t chance = chance_of(sequence);
    uint64_t all = kCertain;
    uint32_t n = 0;
    BLINK_ROLLED
    while (n < sequence.n_drafts && takes(level_of(all = all * chance / kCertain))) ++n;
    return n;
  }

  // Beside prompts a row takes the place of a prompt's token, which is certain to be of use: a draft is worth it if it
  // is more likely right than wrong.
  BLINK_FN uint32_t limit_beside_prompts(const Levels& found) const {
    return found.high ? kDraftLevels / 2 : kDraftLevels;
  }

  // The lowest level whose drafts have rows, so that the step is expected to find most tokens in a unit of time;
  // kDraftLevels: none.
  BLINK_FN uint32_t best_limit(uint32_t n_decoding, const Levels& found) {
    uint64_t best = 0;  // the rate's bits, which are in the order of rates, and the limit
    BLINK_ROLLED
    for (uint32_t limit = p_.thread(); limit <= kDraftLevels; limit += p_.threads()) {
      uint32_t rows = n_decoding;
      float tokens = float(n_decoding);
      BLINK_ROLLED
      for (uint32_t level = limit; level < kDraftLevels; ++level) {
        rows += found.count(level);
        tokens += float(found.count(level)) * (float(level) + 0.5f) / float(kDraftLevels);
      }
      if (rows > c_.max_verify_rows) continue;
      const uint32_t shape = rows == n_decoding ? c_.decode_lookup[rows] : c_.verify_lookup[rows];
      if (rows == n_decoding && limit != kDraftLevels) continue;
      best = Max()(best, uint64_t(bits_of(tokens / usual_ns(shape, rows))) << 32 | limit);
    }
    return low(p_.reduce(best, Max()));
  }
  BLINK_FN static uint32_t bits_of(float x) {
    union {
      float value;
      uint32_t bits;
    } u = {x};
    return u.bits;
  }

  // What a step of this shape takes. One that has hardly run is taken to be faster than any, so that it runs.
  BLINK_FN float usual_ns(uint32_t shape, uint32_t rows) const {
    const blink_shape_time& time = c_.shape_times[shape];
    if (time.steps < BLINK_FIRST_RUNS) return 1.0f + float(rows) / 65536.0f;
    const float age = float(steps_.launched() - time.last_step);
    return float(time.usual_ns) * (kTrustedSteps / (kTrustedSteps + age));
  }

  P& p_;
  Steps<P>& steps_;
  Lookup<P>& lookup_;
  // The same in every thread. They are not saved: another execution looks up at once.
  uint32_t rest_ = 0;        // steps that are still to be planned without a look-up
  uint32_t rest_after_ = 0;  // ... that were to be since the last one
};

}  // namespace blink

#endif
