/* What no request may suffer from the others: checked over time, at every turn and at every launch. */
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/scheduler/pages.h"

namespace simulator {

class Fairness {
 public:
  explicit Fairness(const blink_scheduler_config& config) : c(config) {}

  std::string error;
  uint32_t distrusted = ~0u;  // slots from here on are of a frontend that uses sequences again

  // S2: a request keeps its age, paused or not. S7: whoever is paused was its client's youngest.
  void look() {
    std::map<uint64_t, uint32_t> running;
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (runs(r)) running[r.arrival] = r.client;
    }
    take_turns(running);
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (slot >= distrusted) break;
      if (r.state == BLINK_STATE_EMPTY || r.state == BLINK_STATE_DECODE_COMPLETED || !r.placed) continue;
      const auto [known, fresh] = ages_.try_emplace({slot, r.submission}, r.arrival);
      if (known->second != r.arrival) fail("S2: a request lost its age");
      if (r.state != BLINK_STATE_DECODE_PAUSED || !ran_.count(r.arrival)) continue;
      for (const auto& [arrival, client] : running) {
        if (client == r.client && arrival > r.arrival) fail("S7: a younger one runs on than was paused");
      }
      if (!running.empty() && r.arrival < running.begin()->first) fail("S7: the oldest of all was paused");
    }
    ran_ = std::move(running);
  }

  // A step was launched, as the `nth` of this execution. A sequence that decodes has a batch slot in it, unless it
  // needs a page and there are too few; the oldest prompt that was under way before the step was planned has one too,
  // unless it awaits what another computes or host memory has, or there are no pages for it: neither starves the other
  // (S15). One that the plan itself admitted behind its client's other prompts may find the step full (S2). Only
  // prompts wait for two copy steps in a row (S19).
  void launched(const blink_step_set& set, uint32_t nth) {
    const std::set<uint64_t> under_way = std::exchange(under_way_, prompts_under_way());
    const bool copies = set.head->kind == BLINK_STEP_COPY, again = copies && copied_;
    copied_ = copies;
    if (copies && !again) return;
    std::vector<bool> in(c.tables.n_sequences), fed_prompt(c.tables.n_sequences);
    for (uint32_t batch_slot = 0; batch_slot < set.head->batch_size; ++batch_slot) {
      const uint32_t sequence = set.batch_sequence[batch_slot];
      in[sequence] = true;
      fed_prompt[sequence] = batch_slot >= set.head->n_decode;
      const bool behind_prompt = set.token_position[set.batch_last[batch_slot]] >= c.sequences[sequence].prefill_end;
      if (behind_prompt != (batch_slot < set.head->n_decode))
        fail("sequences that decode come first, and no prompt among them");
    }
    uint32_t need = 0;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) need += decodes(i) && needs_page(i) && !in[i];
    // What was planned by the execution before may have been planned with fewer pages.
    const bool starving = nth == 0 || need > blink::PageCounts(c).available();
    const bool few = nth == 0 || blink::PageCounts(c).available() <= set.head->n_decode;
    uint64_t oldest = ~0ull;  // of the prompts that are under way
    bool oldest_in = true;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      if (decodes(i) && !in[i] && !(starving && needs_page(i))) fail("S15: a sequence that decodes was passed over");
      const blink_sequence& sequence = c.sequences[i];
      if (sequence.use != BLINK_SEQUENCE_ACTIVE || (sequence.fed >= sequence.prefill_end && !fed_prompt[i])) continue;
      const uint64_t arrival = c.requests[sequence.slot].arrival;
      const bool may_wait = sequence.awaits != BLINK_NO_PAGE || (needs_page(i) && few);
      if (!under_way.count(arrival)) continue;
      if (arrival < oldest) oldest = arrival, oldest_in = in[i] || may_wait;
    }
    if (!oldest_in && !copies) fail("S15: the oldest prompt was passed over");
  }

 private:
  // A client's next in line, and which clients had one admitted since it is that.
  struct Head {
    uint64_t arrival;
    std::set<uint32_t> others;
  };

  static bool runs(const blink_request& r) {
    return r.state == BLINK_STATE_PREFILL_PROCESSING || r.state == BLINK_STATE_DECODE_PROCESSING;
  }

  // S2: while a client's next waits, nobody is admitted who has more places in the batch, and no other client twice
  // that has as many; and a client's own come in the order of their arrival. A torn payload has no place in the line,
  // and whom it is for is not known; once it is whole it may be its client's turn, though it was never seen as the
  // next. Hostile numbers of clients are chosen to share the places of others' counts.
  void take_turns(const std::map<uint64_t, uint32_t>& running) {
    std::map<uint32_t, uint64_t> next;
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (r.state != BLINK_STATE_PREFILL_PENDING && r.state != BLINK_STATE_DECODE_PAUSED) continue;
      if (r.torn_last_ns || !r.placed) continue;
      const auto [known, fresh] = next.try_emplace(r.client, r.arrival);
      known->second = std::min(known->second, r.arrival);
    }
    // In the batch when somebody was admitted since the last look: no fewer, and no more. Some may have ended since.
    std::map<uint32_t, uint32_t> least, most;
    for (const auto& [arrival, client] : running) least[client] += ran_.count(arrival);
    for (const auto& [arrival, client] : running) most[client] += !ran_.count(arrival);
    for (const auto& [arrival, client] : ran_) ++most[client];
    std::set<uint32_t> admitted;
    for (const auto& [arrival, client] : running) {
      if (!ran_.count(arrival)) admitted.insert(client);
    }
    for (const auto& [arrival, client] : running) {
      if (ran_.count(arrival)) continue;
      if (next.count(client) && next[client] < arrival) fail("S2: a request was overtaken by one of its client's");
      for (auto& [other, head] : heads_) {
        const bool waits = next.count(other) && next[other] == head.arrival;
        if (admitted.count(other) || !waits || distrusted != ~0u || least[client] < most[other]) continue;
        if (least[client] > most[other]) fail("S2: a client with more places came before one with fewer");
        if (!head.others.insert(client).second) fail("S2: a client had two turns while another waited for its next");
      }
    }
    std::map<uint32_t, Head> heads;
    for (const auto& [client, arrival] : next) {
      const auto known = heads_.find(client);
      const bool same = known != heads_.end() && known->second.arrival == arrival && !admitted.count(client);
      heads[client] = same ? known->second : Head{arrival, {}};
    }
    heads_ = std::move(heads);
  }

  // The arrivals of the prompts that have tokens to be planned.
  std::set<uint64_t> prompts_under_way() const {
    std::set<uint64_t> arrivals;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& sequence = c.sequences[i];
      if (sequence.use == BLINK_SEQUENCE_ACTIVE && sequence.fed < sequence.prefill_end)
        arrivals.insert(c.requests[sequence.slot].arrival);
    }
    return arrivals;
  }

  // Its next token is still to be planned.
  bool decodes(uint32_t i) const {
    const blink_sequence& sequence = c.sequences[i];
    if (sequence.use != BLINK_SEQUENCE_ACTIVE || sequence.fed < sequence.prefill_end) return false;
    const blink_request& r = c.requests[sequence.slot];
    return sequence.fed - r.prompt_tokens + 1 < r.max_outputs;
  }
  bool needs_page(uint32_t i) const { return c.sequences[i].fed / c.tables.page_size >= c.sequences[i].n_pages; }

  void fail(const char* what) {
    if (error.empty()) error = what;
  }

  const blink_scheduler_config& c;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> ages_;  // by slot and sequence
  bool copied_ = false;                                     // by the step before
  std::set<uint64_t> under_way_;                            // prompts, when the step before was launched
  std::map<uint64_t, uint32_t> ran_;                        // arrivals and clients, at the last look
  std::map<uint32_t, Head> heads_;                          // by client
};

}  // namespace simulator
