/* One sequence whose drafts are looked up, without a scheduler around it: its tokens are told one by one. */
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/scheduler/lookup.h"

namespace simulator {

// The platform of a single thread.
struct OneThread {
  unsigned thread() const { return 0; }
  unsigned threads() const { return 1; }
  void sync() {}
  uint32_t load(const uint32_t* p) const { return *p; }
  void store(uint32_t* p, uint32_t v) { *p = v; }
  template <class T, class Op>
  T reduce(T value, Op) {
    return value;
  }
};

class LookedUp {
 public:
  // Lengths, shares and numbers as in blink_scheduler_config; there is room for so many tokens.
  LookedUp(const blink_scheduler_config& wanted, uint32_t context)
      : places(wanted.n_draft_places), tokens_(context), config_(about_this(wanted)) {
    state_.n_active = 1;
    sequence_.use = BLINK_SEQUENCE_ACTIVE;
  }
  LookedUp(const LookedUp&) = delete;

  uint32_t known() const { return request_.generated; }
  const uint32_t* tokens() const { return tokens_.data(); }

  // What is known goes on so.
  void tell(uint32_t token) { tokens_[request_.generated++] = token; }

  // Indexes what is known, and puts at most so many drafts behind it. Returns how many.
  uint32_t look_up(uint32_t most) {
    while (sequence_.indexed + 1 < known()) lookup_.index_ahead();
    sequence_.n_drafts = lookup_.look_up(0, std::min<uint32_t>(most, tokens_.size() - known()));
    return sequence_.n_drafts;
  }

  // Takes those drafts that are what `says` goes on with, and one token more, as a step does. Returns how many drafts
  // these are.
  uint32_t step(const uint32_t* says) {
    uint32_t n = 0;
    while (n < sequence_.n_drafts && tokens_[known() + n] == says[n]) ++n;
    for (uint32_t k = 0; k <= n; ++k) tell(says[k]);
    if (sequence_.source) lookup_.follow(sequence_, n + 1);
    return n;
  }

  std::vector<uint32_t> places;  // the index

 private:
  blink_scheduler_config about_this(blink_scheduler_config config) {
    config.state = &state_;
    config.sequences = &sequence_;
    config.requests = &request_;
    config.draft_places = places.data();
    config.tables.n_sequences = 1;
    config.tables.max_context = tokens_.size();
    config.tables.history = tokens_.data();
    return config;
  }

  std::vector<uint32_t> tokens_;
  blink_scheduler_state state_{};
  blink_sequence sequence_{};
  blink_request request_{};
  const blink_scheduler_config config_;
  OneThread platform_;
  blink::Lookup<OneThread> lookup_{platform_, config_};
};

}  // namespace simulator
