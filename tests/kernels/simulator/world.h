/* The scheduler in a simulation of virtual time: one thread, or fibers, every choice drawn from a seed, every invariant
 * checked at every turn.
 *
 * The policy believes it runs forever; the simulation runs inside its back-off (`pause`) and now and then inside a
 * load, so frontends act between any two of its reads. Steps take random times, executables retire late, payloads
 * arrive after their request words.
 */
#pragma once
#include <deque>
#include <map>
#include <set>

#include "bookkeeping.h"
#include "fairness.h"
#include "follower.h"
#include "frontend.h"
#include "kernels/scheduler/pages.h"

namespace simulator {

struct Coverage {
  uint64_t steps, tokens, finished, preempted, zombies, torn, relaunches, refused, reclaimed, cancelled, armed, mixed,
      unsampled, hits, evicted, awaited, told, retold, compared, written, brought_back, constrained, dead_ends, wide,
      scored, outdated, drafted, accepted;
};

class Simulator {
 public:
  Simulator(uint64_t seed, const Sizes& sizes, uint64_t turns)
      : ring(sizes),
        c(ring.c),
        engine(c.tables, c.sets, sizes.total_pages, sizes.host_pages),
        random(seed),
        follower(ring, random),
        bookkeeping(c),
        fairness(c),
        turns_left(turns) {
    for (uint32_t i = 0; i < sizes.n_leases; ++i) frontends.emplace_back(ring, i, random);
  }

  // ---- the platform's side
  uint64_t clock = 1'000'000;
  uint32_t window = 0;
  bool tail = false;

  int launch(uint32_t shape, uint32_t set) {
    if (window == BLINK_LAUNCH_WINDOW) return fail("K1: more than 120 launches"), 1;
    bookkeeping.midway =
        std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return run.shape == shape && run.set == set; });
    if (bookkeeping.midway) return 1;
    if (shape >= c.n_shapes) return fail("there is no such shape"), 1;
    const blink_step_head& head = *c.sets[set].head;
    const blink_shape& capacity = c.shapes[shape];
    const uint32_t n_prompts = head.batch_size - head.n_decode;
    const bool wide = n_prompts > c.max_prefill_slots;  // since a prompt has a batch slot for each of its tokens (S22)
    if (head.has_drafts && !capacity.verifies) fail("E27: its shape verifies no drafts");
    if (head.kind != capacity.kind || head.n_tokens > capacity.tokens || head.batch_size > capacity.batch_slots)
      fail("a step does not fit its shape");
    const blink_shape* fewer = shape ? &capacity - 1 : nullptr;
    if (fewer && fewer->kind == head.kind && fewer->tokens == capacity.tokens && fewer->batch_slots >= head.batch_size)
      fail("a shape of fewer batch slots would do");
    const bool copies = head.kind == BLINK_STEP_COPY;
    const bool decodes = head.n_decode, prefills = n_prompts;
    if (copies ? decodes || prefills || !head.n_tokens
               : head.kind != (!decodes && !wide ? BLINK_STEP_PREFILL
                               : prefills        ? BLINK_STEP_MIXED
                                                 : BLINK_STEP_DECODE))
      fail("a step is not of its kind");
    if ((!copies && head.n_tokens - head.n_decode > c.max_prefill_tokens) || (wide && !scores(set)))
      fail("a step has more of prompts than it may");
    if (decodes && !prefills && waits_for_company() && clock + kTurnNs < began_ + c.min_itl_ns)
      fail("S25: a step did not wait for company");
    began_ = clock, copied_ = copies;
    with_rows += head.n_decode > 0;
    with_prompts += n_prompts > 0;
    fairness.launched(c.sets[set], window);
    coverage.mixed += head.kind == BLINK_STEP_MIXED;
    coverage.wide += wide;
    ++window;
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i)
      coverage.awaited += c.sequences[i].use == BLINK_SEQUENCE_ACTIVE && c.sequences[i].awaits != BLINK_NO_PAGE;
    coverage.armed += !runs.empty() && !runs.back().completed;
    const uint64_t start = runs.empty() ? clock : std::max(clock, runs.back().done);
    unsigned in_flight = 1;
    for (const Run& run : runs) in_flight += !run.completed;
    if (in_flight > 2) fail("S4: more than one step armed");
    runs.push_back(
        {shape, set, start, start + 1000 + random() % (random() % 8 ? 20'000 : 300'000), false, digest(set)});
    return 0;
  }
  int relaunch() {
    if (tail) fail("K3: a second tail launch");
    for (const Run& run : runs) {
      if (!run.completed) fail("K4: tail launch with a step in flight");
    }
    tail = true;
    return 0;
  }
  void pause(bool idle) {
    clock += idle ? (random() % 50 ? 200 + random() % 3000 : random() % 50'000'000) : 50 + random() % 2000;
    turn();
  }

  // ---- the simulation's side
  void turn() {
    for (auto it = runs.begin(); it != runs.end();) {
      if (!it->completed && it->done <= clock) {
        if (digest(it->set) != it->inputs) fail("a step's inputs changed after its launch");
        engine.run(it->set, it->start, it->done);
        it->completed = true;
        it->retire = clock + random() % 4000;  // the runtime retires a graph after its last flag is visible
      }
      it = it->completed && it->retire <= clock ? runs.erase(it) : std::next(it);
    }
    for (Frontend& f : frontends) f.act(clock);
    follower.act(clock);
    check();
    ended_ = ended();
    if (turns_left && --turns_left == 0) {
      for (Frontend& f : frontends) f.quiet = true;
      follower.quiet = true;
      grace = 4'000'000;
    }
    if (turns_left == 0 && !stopping) {
      bool all_idle = true;
      for (const Frontend& f : frontends) all_idle &= f.idle();
      all_idle &= follower.caught_up();
      if (all_idle || --grace == 0) {
        if (!all_idle) fail("no progress: requests are still open, or events untold");
        stop();
      }
    }
    if (!error.empty() && !stopping) stop();
  }
  // The last lease belongs to somebody who keeps no protocol, and is no Frontend.
  void distrust_last() {
    frontends.pop_back();
    engine.distrusts = true;
    fairness.distrusted = uint32_t(frontends.size()) * (c.n_slots / c.n_leases);
  }
  // Whoever drives the simulation has seen enough: what is open ends, and then the scheduler.
  void quieten() { turns_left = std::min<uint64_t>(turns_left, 1); }
  void act_between_reads() {
    if (random() % 40 == 0) follower.act(clock);
    if (random() % 40 == 0) frontends[random() % frontends.size()].act(clock);
  }

  std::string verdict() const {
    if (!error.empty()) return error;
    if (!fairness.error.empty()) return fairness.error;
    if (!engine.error.empty()) return engine.error;
    if (!follower.error.empty()) return follower.error;
    for (const Frontend& f : frontends) {
      if (!f.error.empty()) return f.error;
    }
    if (c.state->phase != BLINK_PHASE_STOPPED) return "the scheduler did not stop cleanly";
    if (blink::PageCounts(c).available() != c.total_pages) return "pages leaked";
    if (c.state->stats.decode_steps != with_rows || c.state->stats.prefill_steps != with_prompts)
      return "steps were miscounted";
    return "";
  }

  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;
  Random random;
  Coverage coverage{};
  std::deque<Frontend> frontends;
  Follower follower;
  uint64_t with_rows = 0, with_prompts = 0;  // steps

 private:
  struct Run {
    uint32_t shape, set;
    uint64_t start, done;
    bool completed;
    uint64_t inputs;
    uint64_t retire = 0;
  };

  // A step without prompts, planned when nothing runs; by another execution, it may have been planned beside some. So
  // may one in whose plan a request that waited was ended.
  bool waits_for_company() const {
    if (ended() != ended_) return false;
    if (c.arm_margin_ns || c.min_itl_ns < 2 * kTurnNs || window == 0 || copied_ || c.state->n_waiting) return false;
    return std::none_of(c.sequences, c.sequences + c.tables.n_sequences, [](const blink_sequence& sequence) {
      return sequence.use == BLINK_SEQUENCE_ACTIVE && sequence.fed < sequence.prefill_end;
    });
  }

  std::ptrdiff_t ended() const {
    return std::count_if(c.requests, c.requests + c.n_slots,
                         [](const blink_request& r) { return r.state == BLINK_STATE_DECODE_COMPLETED; });
  }

  // Whether a prompt has batch slots for its tokens.
  bool scores(uint32_t set) const {
    const uint32_t* emits = c.sets[set].batch_emit;
    return std::find(emits, emits + c.sets[set].head->batch_size, BLINK_EMIT_LOGPROBS) !=
           emits + c.sets[set].head->batch_size;
  }

  void stop() {
    stopping = true;
    __atomic_store_n(&c.header->control, error.empty() ? BLINK_CONTROL_DRAIN : BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
  }

  void fail(const std::string& what) {
    if (error.empty()) error = what;
  }

  uint64_t digest(uint32_t set_index) const {
    const blink_step_set& set = c.sets[set_index];
    uint64_t h = mix(set.head->id) ^ mix(set.head->n_tokens + 31) ^ mix(set.head->batch_size + 77);
    h = mix(h ^ set.head->n_decode ^ uint64_t(set.head->kind) << 32);
    for (uint32_t i = 0; i < set.head->n_tokens; ++i)
      h = mix(h ^ set.token_sequence[i] ^ uint64_t(set.token_position[i]) << 32);
    for (uint32_t i = 0; i < set.head->batch_size; ++i) {
      const uint32_t row = set.batch_sequence[i];
      h = mix(h ^ row ^ uint64_t(set.batch_first[i]) << 20 ^ uint64_t(set.batch_last[i]) << 40 ^ set.batch_emit[i]);
      h = mix(h ^ c.tables.params[row].seed);
      if (set.batch_emit[i] == BLINK_EMIT_CHECKED)
        h = mix(h ^ c.tables.history[uint64_t(row) * c.tables.max_context + set.token_position[i] + 1]);
      const uint32_t pages = set.token_position[set.batch_last[i]] / c.tables.page_size + 1;
      for (uint32_t p = 0; p < pages; ++p)
        h = mix(h ^ c.tables.block_table[uint64_t(row) * c.tables.pages_per_sequence + p]);
    }
    return h;
  }

  // The tables' books, and what holds beside them. S2: tickets decide the order of arrival.
  void check() {
    bookkeeping.check();
    if (!bookkeeping.error.empty()) return fail(bookkeeping.error);
    check_order();
    fairness.look();
    follower.compare();
    for (const Frontend& f : frontends) {
      if (f.overstays(clock)) fail("R6: a lease outlives its frontend");
    }
  }

  void check_order() {
    for (const Frontend& f : frontends) {
      by_ticket.clear();
      for (const auto& [slot, sent] : f.open()) {
        const blink_request& r = c.requests[slot];
        if (!sent.torn && r.submission == sent.sequence && r.state == BLINK_STATE_PREFILL_PENDING)
          by_ticket.emplace_back(sent.ticket, r.arrival);
      }
      std::sort(by_ticket.begin(), by_ticket.end());
      uint64_t last = 0;
      for (const auto& [ticket, arrival] : by_ticket) {
        if (arrival < last) fail("S2: arrivals are not in the order of submission");
        last = arrival;
      }
    }
  }

  Bookkeeping bookkeeping;
  Fairness fairness;
  std::deque<Run> runs;
  std::vector<std::pair<uint32_t, uint64_t>> by_ticket;  // arrivals
  std::string error;
  uint64_t turns_left, grace = 0;
  bool stopping = false;
  static constexpr uint64_t kTurnNs = 200'000;  // that a turn takes less than, with a launch that is tried again
  uint64_t began_ = 0;                          // the last step
  bool copied_ = false;                         // by it
  std::ptrdiff_t ended_ = 0;                    // requests, at the last look
};

}  // namespace simulator
