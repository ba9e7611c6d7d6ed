/* A request that a simulated frontend has sent, and what is to become of it. */
#pragma once
#include <vector>

#include "ringbuffer/words.h"
#include "simulated_ring.h"

namespace simulator {

struct Sent {
  uint64_t seed = 0;
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0, ticket = 0, sequence = 0, client = 0;
  uint32_t expected_error = 0;  // a reason from BLINK_REASON_ERROR_FIRST on, or 0
  bool ignore_eos = false, cancelled = false, torn = false, done = false;
  uint64_t torn_until = 0;
  blink_descriptor ranges{};  // of which it has the ranges alone
  const Words* grammar = nullptr;
  blink_grammar_state standing{};  // of its tokens in the grammar
  std::vector<uint32_t> tokens;

  std::vector<uint32_t> payload(const blink_descriptor& d) const {
    std::vector<uint32_t> words = prompt;
    for (uint32_t i = 0; i < blink::control_words(d, kVocab); ++i) words.push_back(control(seed, i));
    return words;
  }
};

}  // namespace simulator
