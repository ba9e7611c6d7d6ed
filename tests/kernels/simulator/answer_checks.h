/* Checks what a simulated frontend is told of its requests against what it must be told. */
#pragma once
#include <functional>
#include <string>

#include "random.h"
#include "sent.h"

namespace simulator {

class AnswerChecks {
 public:
  using Fail = std::function<void(const std::string&)>;
  AnswerChecks(SimulatedRing& ring, Random& random, Fail fail)
      : ring_(ring), c_(ring.c), random_(random), fail_(std::move(fail)) {}

  uint64_t finished = 0, unsampled = 0;     // requests; those of them that ended without a token to sample
  uint64_t constrained = 0, dead_ends = 0;  // ... that had a grammar; that could not go on in it
  uint64_t scored = 0;                      // ... of whose prompt every token was told

  // Checks the slot's status and takes its new records, as a token reader does.
  void read(uint32_t slot, Sent& s) {
    const uint64_t word = __atomic_load_n(&c_.progress[slot].status, __ATOMIC_ACQUIRE);
    const uint32_t state = blink::high(word) & 0xf, reason = blink::high(word) >> 4 & 0xff,
                   count = blink::high(word) >> 12;
    if (blink::low(word) != s.sequence) return;  // not claimed yet
    if (count < s.tokens.size()) return fail_("the count went back");
    if (s.tokens.empty() && count) read_scores(slot, s);
    for (uint32_t i = s.tokens.size(); i < count; ++i) {
      // The inline copy may already hold the record six positions on: then the arena has this one (R8).
      uint64_t record = __atomic_load_n(&c_.progress[slot].records[i % BLINK_INLINE_RECORDS], __ATOMIC_RELAXED);
      if (blink::high(record) != (i | s.sequence << 20)) {
        record = __atomic_load_n(ring_.outputs(slot, s.ranges) + i, __ATOMIC_RELAXED);
      }
      const uint32_t token = next_of(s);
      if (record != blink::output_record(token, i, s.sequence)) return fail_("wrong record at " + std::to_string(i));
      s.tokens.push_back(token);
      if (!is_told(s, logprobs(slot, s) + uint64_t(i) * s.ranges.logprob_words, s.prompt.size() + i,
                   s.ranges.logprob_words))
        return fail_("the log-probabilities of token " + std::to_string(i) + " are wrong");
      if (s.grammar) take_token(blink::Grammar(s.grammar->data()), token, s.standing);
    }
    if (state == BLINK_STATE_DECODE_COMPLETED) complete(s, reason);
  }

 private:
  // Behind the records.
  const uint64_t* logprobs(uint32_t slot, const Sent& s) const {
    return ring_.outputs(slot, s.ranges) + s.ranges.output_room;
  }
  // What is told of the prompt's tokens, but for the first.
  void read_scores(uint32_t slot, const Sent& s) {
    const uint32_t n = s.ranges.prompt_logprob_words;
    const uint64_t* words = logprobs(slot, s) + uint64_t(s.ranges.output_room) * s.ranges.logprob_words;
    for (uint32_t position = 1; position < s.prompt.size(); ++position)
      if (!is_told(s, words + uint64_t(position) * n, position, n))
        return fail_("what is told of the prompt's token " + std::to_string(position) + " is wrong");
    scored += n != 0;
  }
  static bool is_told(const Sent& s, const uint64_t* words, uint32_t position, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i)
      if (__atomic_load_n(words + i, __ATOMIC_RELAXED) != told(s.seed, position, i)) return false;
    return true;
  }

  // What the answer's next token is, or why there is none.
  uint32_t next_of(const Sent& s) const {
    const uint32_t i = s.tokens.size(), previous = i ? s.tokens.back() : s.prompt.back();
    if (!s.grammar) return answer(s.seed, i, previous);
    return answer_in(blink::Grammar(s.grammar->data()), s.standing, s.seed, i, previous);
  }

  void complete(Sent& s, uint32_t reason) {
    s.done = true;
    ++finished;
    constrained += s.grammar && !s.expected_error;
    if (!s.expected_error) remember(s);
    const uint32_t context = std::min(ring_.sizes.max_context, ring_.sizes.total_pages * ring_.sizes.page_size);
    const uint32_t left = context > s.prompt.size() ? context - s.prompt.size() : 0;
    const uint32_t limit = std::min({s.max_tokens, left, s.ranges.output_room});
    const bool eos = !s.tokens.empty() && s.tokens.back() == kEos && !s.ignore_eos;
    const uint32_t n = s.tokens.size();
    const uint32_t next = s.prompt.empty() ? kEos : next_of(s);
    if (s.cancelled && reason == BLINK_REASON_CANCELLED) return;
    if (reason == BLINK_REASON_SHUTTING_DOWN) return;
    if (s.expected_error) {
      if (reason != s.expected_error)
        fail_("expected error " + std::to_string(s.expected_error) + ", got " + std::to_string(reason));
    } else if (reason == BLINK_REASON_NUMERICAL_FAULT) {
      ++unsampled;
      if (next != BLINK_NO_TOKEN || eos || n == limit) fail_("a token that there was is missing");
    } else if (reason == BLINK_REASON_GRAMMAR_DEAD_END) {
      ++dead_ends;
      if (next != BLINK_DEAD_END || eos || n == limit) fail_("its grammar has no dead end here");
    } else if (reason == BLINK_REASON_EOS) {
      if (!eos) fail_("EOS without an end token");
    } else if (reason == BLINK_REASON_LENGTH) {
      if (eos || s.tokens.size() != limit)
        fail_("ended at " + std::to_string(s.tokens.size()) + " of " + std::to_string(limit));
    } else {
      fail_("unexpected reason " + std::to_string(reason));
    }
  }

  // What was said may be said again, as conversations do.
  void remember(const Sent& s) {
    std::vector<uint32_t> text = s.prompt;
    text.insert(text.end(), s.tokens.begin(), s.tokens.end());
    if (ring_.texts.size() < 12) ring_.texts.emplace_back();
    ring_.texts[random_() % ring_.texts.size()] = text;
  }

  SimulatedRing& ring_;
  const blink_scheduler_config& c_;
  Random& random_;
  const Fail fail_;
};

}  // namespace simulator
