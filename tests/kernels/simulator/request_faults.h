/* What is wrong with some requests of a simulated frontend, each with the error that it must get. */
#pragma once
#include "random.h"
#include "sent.h"

namespace simulator {

class RequestFaults {
 public:
  RequestFaults(const SimulatedRing& ring, Random& random) : ring_(ring), c_(ring.c), random_(random) {}

  void spoil(Sent& s, blink_descriptor& d) {
    const uint32_t context = std::min(ring_.sizes.max_context, ring_.sizes.total_pages * ring_.sizes.page_size);
    if (s.prompt.empty()) {
      s.expected_error = BLINK_REASON_EMPTY_PROMPT;
    } else if (random_.chance(2)) {
      s.prompt[random_() % s.prompt.size()] = kVocab + random_() % 9;
      s.expected_error = BLINK_REASON_BAD_TOKEN;
    } else if (d.prompt_tokens >= context) {
      s.expected_error = BLINK_REASON_PROMPT_TOO_LONG;
    } else if (random_.chance(2)) {
      const float nan = __builtin_nanf("");
      (random_.chance(50) ? d.temperature : d.top_p) = random_.chance(50) ? nan : -1;
      s.expected_error = BLINK_REASON_BAD_PARAMETER;
    } else if (random_.chance(1)) {
      (random_.chance(50) ? d.logprob_words : d.prompt_logprob_words) = BLINK_LOGPROB_WORDS + 1 + random_() % 9;
      s.expected_error = BLINK_REASON_BAD_CHECKSUM;
    } else if (random_.chance(2)) {
      misplace(d);
      s.expected_error = BLINK_REASON_BAD_RANGE;
    } else if (random_.chance(5)) {
      d.output_room = 1 + random_() % d.output_room;  // the answer ends where its range does
    }
  }

  // The grammar's words are none already.
  void spoil_range(Sent& s, blink_descriptor& d) {
    s.expected_error = BLINK_REASON_BAD_GRAMMAR;
    if (random_.chance(20)) {
      d.grammar_words = random_.chance(50) ? 1 + random_() % (sizeof(blink_grammar) / 4) : c_.max_grammar_words + 1;
      if (uint64_t(d.grammar_offset) + d.grammar_words > c_.prompt_heap) s.expected_error = BLINK_REASON_BAD_RANGE;
    } else if (random_.chance(20)) {
      d.grammar_offset = random_.chance(50) ? c_.prompt_heap - d.grammar_words + 1 : ~0u - random_() % 4;
      s.expected_error = BLINK_REASON_BAD_RANGE;
    } else if (random_.chance(10)) {
      d.grammar_crc32c ^= 1;
      s.expected_error = d.grammar_words <= c_.max_grammar_words ? BLINK_REASON_BAD_CHECKSUM : BLINK_REASON_BAD_GRAMMAR;
    }
  }

  bool prompt_in_heap(const blink_descriptor& d) const {
    return blink::payload_words(d, kVocab) <= d.prompt_room &&
           uint64_t(d.prompt_offset) + d.prompt_room <= c_.prompt_heap;
  }

 private:
  // Beyond the lease's part of a heap, by one word or as far as there are numbers.
  void misplace(blink_descriptor& d) {
    const bool output = random_.chance(70);  // of a prompt it takes a second to be found out
    uint32_t& offset = output ? d.output_offset : d.prompt_offset;
    uint32_t& room = output ? d.output_room : d.prompt_room;
    if (random_.chance(25)) {
      room = output ? 0 : d.prompt_tokens - 1;
    } else if (random_.chance(50)) {
      offset = (output ? c_.output_heap : c_.prompt_heap) - room + 1;
    } else {
      (random_.chance(50) ? offset : room) = ~0u - random_() % 4;
    }
  }

  const SimulatedRing& ring_;
  const blink_scheduler_config& c_;
  Random& random_;
};

}  // namespace simulator
