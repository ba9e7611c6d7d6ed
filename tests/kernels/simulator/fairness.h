/* What no request may suffer from the others: checked over time, at every turn and at every launch. */
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/scheduler/pages.h"

namespace simulator {

class Fairness {
 public:
  explicit Fairness(const blink_scheduler_config& config) : c(config) {}

  std::string error;
  uint32_t distrusted = ~0u;  // slots from here on are of a frontend that uses sequences again

  // S2: a request keeps its age, paused or not. S7: whoever is paused was of the least urgent, and its client's
  // youngest of these.
  void look() {
    Running running;
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (runs(r)) running[rank(r)] = r.client;
    }
    take_turns(running);
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (slot >= distrusted) break;
      if (r.state == BLINK_STATE_EMPTY || r.state == BLINK_STATE_DECODE_COMPLETED || !r.placed) continue;
      const auto [known, fresh] = ages_.try_emplace({slot, r.submission}, rank(r));
      if (known->second != rank(r)) fail("S2: a request lost its age");
      if (r.state != BLINK_STATE_DECODE_PAUSED || !ran_.count(rank(r))) continue;
      if (goes_on_behind(r)) fail("S7: a younger or less urgent one runs on than was paused");
      // Whoever came before it may have been cancelled since.
      const bool was_first = !(ran_.begin()->first < rank(r));
      if (was_first && !running.empty() && rank(r) < running.begin()->first) fail("S7: the first of all was paused");
    }
    ran_ = std::move(running);
  }

  // A step was launched, as the `nth` of this execution. A sequence that decodes has a batch slot in it, unless it
  // needs a page and there are too few; the first of the prompts that were under way before the step was planned, the
  // oldest of the most urgent ones, has one too, unless it awaits what another computes or host memory has, or there
  // are no pages for it, or it is very long and rests, or the plan has admitted a more urgent one: neither starves the
  // other (S15). One that the plan itself admitted behind its client's other prompts may find the step full (S2). Only
  // prompts wait for two copy steps in a row (S19).
  void launched(const blink_step_set& set, uint32_t nth) {
    const std::set<Rank> under_way = std::exchange(under_way_, prompts_under_way());
    const bool copies = set.head->kind == BLINK_STEP_COPY, again = copies && copied_;
    const uint32_t rested = std::exchange(rests_, c.state->rests);
    const bool rests = rested && set.head->n_decode;
    if (rests_ > kMostRests) fail("S15: a very long prompt rests for too many steps");
    if (rests && !copies && rests_ != rested - 1) fail("S15: a very long prompt rests for ever");
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
    Rank first = kLast;                 // of the prompts that are under way
    int32_t admitted = kLast.priority;  // the most urgent that the plan has admitted
    bool first_in = true;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      if (decodes(i) && !in[i] && !(starving && needs_page(i))) fail("S15: a sequence that decodes was passed over");
      const blink_sequence& sequence = c.sequences[i];
      if (sequence.use != BLINK_SEQUENCE_ACTIVE || (sequence.fed >= sequence.prefill_end && !fed_prompt[i])) continue;
      const Rank prompt = rank(c.requests[sequence.slot]);
      const bool very_long = sequence.prefill_end - sequence.cached > BLINK_VERY_LONG_STEPS * c.max_mixed_tokens;
      const bool may_wait = sequence.awaits != BLINK_NO_PAGE || (needs_page(i) && few) || (very_long && rests);
      if (!under_way.count(prompt)) {
        admitted = std::min(admitted, prompt.priority);
      } else if (prompt < first) {
        first = prompt, first_in = in[i] || may_wait;
      }
    }
    if (!first_in && !copies && admitted >= first.priority) fail("S15: the oldest prompt was passed over");
  }

 private:
  // What decides between any two requests, but for their clients (S2).
  struct Rank {
    int32_t priority;
    uint64_t arrival;
    bool operator<(const Rank& b) const { return std::tie(priority, arrival) < std::tie(b.priority, b.arrival); }
    bool operator!=(const Rank& b) const { return *this < b || b < *this; }
  };
  static constexpr Rank kLast{INT32_MAX, ~0ull};
  static Rank rank(const blink_request& r) { return {r.priority, r.arrival}; }
  static constexpr uint32_t kMostRests = (BLINK_LONG_STEP - 8) / (BLINK_FASTEST_PACE - 8) - 1;
  using Running = std::map<Rank, uint32_t>;   // their clients
  using Line = std::pair<int32_t, uint32_t>;  // those of a priority that a client has in the line

  // A client's next in line of one priority, the client's last turn then, and which clients had one admitted since.
  struct Head {
    uint64_t arrival, turn;
    std::set<uint32_t> others;
  };

  static bool runs(const blink_request& r) {
    return r.state == BLINK_STATE_PREFILL_PROCESSING || r.state == BLINK_STATE_DECODE_PROCESSING;
  }

  // Whether a sequence that is less urgent, or its client's and younger, and whose last token is still to be planned,
  // is in the batch.
  bool goes_on_behind(const blink_request& r) const {
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& sequence = c.sequences[i];
      const blink_request& other = c.requests[sequence.slot];
      if (sequence.use != BLINK_SEQUENCE_ACTIVE || rank(other) < rank(r)) continue;
      if (other.priority == r.priority && (other.client != r.client || other.arrival == r.arrival)) continue;
      if (sequence.fed < sequence.prefill_end || decodes(i)) return true;
    }
    return false;
  }

  // S2: while a client's next waits, nobody is admitted who is less urgent; and of those that are as urgent, nobody who
  // has more places in the batch, and no other client twice that has as many; and a client's own come in the order of
  // their arrival. A client's turn whose request was paused or ended before the next look is known by the scheduler's
  // count alone. A torn payload has no place in the line, and whom it is for is not known; once it is whole it may be
  // its client's turn, though it was never seen as the next. Hostile numbers of clients are chosen to share the places
  // of others' counts.
  void take_turns(const Running& running) {
    std::map<Line, uint64_t> next;
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink_request& r = c.requests[slot];
      if (r.state != BLINK_STATE_PREFILL_PENDING && r.state != BLINK_STATE_DECODE_PAUSED) continue;
      if (r.torn_last_ns || !r.placed) continue;
      const auto [known, fresh] = next.try_emplace({r.priority, r.client}, r.arrival);
      known->second = std::min(known->second, r.arrival);
    }
    std::set<uint32_t> admitted;
    for (const auto& [rank, client] : running) {
      if (!ran_.count(rank)) admitted.insert(client);
    }
    if (!admitted.empty()) check_admitted(running, next, admitted);
    std::map<Line, Head> heads;
    for (const auto& [line, arrival] : next) {
      const auto known = heads_.find(line);
      const uint64_t turn = last_turn(line.second);
      const bool same = known != heads_.end() && known->second.arrival == arrival && known->second.turn == turn;
      heads.emplace_hint(heads.end(), line, same ? std::move(known->second) : Head{arrival, turn, {}});
    }
    heads_ = std::move(heads);
  }

  void check_admitted(const Running& running, const std::map<Line, uint64_t>& next,
                      const std::set<uint32_t>& admitted) {
    // In the batch when somebody was admitted since the last look: no fewer, and no more. Some may have ended since.
    std::map<uint32_t, uint32_t> least, most;
    for (const auto& [rank, client] : running) least[client] += ran_.count(rank);
    for (const auto& [rank, client] : running) most[client] += !ran_.count(rank);
    for (const auto& [rank, client] : ran_) ++most[client];
    for (const auto& [rank, client] : running) {
      if (ran_.count(rank)) continue;
      const auto own = next.find({rank.priority, client});
      if (own != next.end() && own->second < rank.arrival) fail("S2: a request was overtaken by one of its client's");
      for (auto& [line, head] : heads_) {
        const auto& [priority, other] = line;
        const auto waiting = next.find(line);
        if (waiting == next.end() || waiting->second != head.arrival || distrusted != ~0u) continue;
        if (last_turn(other) != head.turn) continue;
        if (priority < rank.priority) fail("S2: a request was overtaken by a less urgent one");
        if (priority != rank.priority || admitted.count(other) || least[client] < most[other]) continue;
        if (least[client] > most[other]) fail("S2: a client with more places came before one with fewer");
        if (!head.others.insert(client).second) fail("S2: a client had two turns while another waited for its next");
      }
    }
  }

  uint64_t last_turn(uint32_t client) const {
    const uint32_t second = client / BLINK_CLIENT_COUNTS % BLINK_CLIENT_COUNTS;
    return std::min(c.state->clients[client % BLINK_CLIENT_COUNTS].turn,
                    c.state->clients[BLINK_CLIENT_COUNTS + second].turn);
  }

  // The prompts that have tokens to be planned.
  std::set<Rank> prompts_under_way() const {
    std::set<Rank> prompts;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& sequence = c.sequences[i];
      if (sequence.use == BLINK_SEQUENCE_ACTIVE && sequence.fed < sequence.prefill_end)
        prompts.insert(rank(c.requests[sequence.slot]));
    }
    return prompts;
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
  std::map<std::pair<uint32_t, uint32_t>, Rank> ages_;  // by slot and sequence
  bool copied_ = false;                                 // by the step before
  std::set<Rank> under_way_;                            // prompts, when the step before was launched
  uint32_t rests_ = 0;                                  // as the plan of the last step left it
  Running ran_;                                         // at the last look
  std::map<Line, Head> heads_;
};

}  // namespace simulator
