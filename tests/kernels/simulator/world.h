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

#include "fairness.h"
#include "follower.h"
#include "frontend.h"
#include "kernels/scheduler/pages.h"

namespace simulator {

struct Coverage {
  uint64_t steps, tokens, finished, preempted, zombies, torn, relaunches, refused, reclaimed, cancelled, armed, mixed,
      unsampled, hits, evicted, awaited, told, retold, compared, written, brought_back, constrained, dead_ends, wide,
      scored;
};

class Simulator {
 public:
  Simulator(uint64_t seed, const Sizes& sizes, uint64_t turns)
      : ring(sizes),
        c(ring.c),
        engine(c.tables, c.sets, sizes.total_pages, sizes.host_pages),
        random(seed),
        follower(ring, random),
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
    for (const Run& run : runs) {
      if (run.shape == shape && run.set == set) return 1;
    }
    if (shape >= c.n_shapes) return fail("there is no such shape"), 1;
    const blink_step_head& head = *c.sets[set].head;
    const blink_shape& capacity = c.shapes[shape];
    const uint32_t n_prompts = head.batch_size - head.n_decode;
    const bool wide = n_prompts > c.max_prefill_slots;  // since a prompt has a batch slot for each of its tokens (S22)
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
      const uint32_t pages = set.token_position[set.batch_last[i]] / c.tables.page_size + 1;
      for (uint32_t p = 0; p < pages; ++p)
        h = mix(h ^ c.tables.block_table[uint64_t(row) * c.tables.pages_per_sequence + p]);
    }
    return h;
  }

  // S1: a page is free, or idle, or used by whom it says. S3: sequences and requests point at each other, and the
  // counters count them. S2: tickets decide the order of arrival.
  void check() {
    const blink_scheduler_state& s = *c.state;
    std::vector<uint32_t> users(c.total_pages + c.host_pages), is_free(c.total_pages);
    const blink::PageCounts counts(c);
    for (uint32_t i = 0; i < counts.free(); ++i) ++is_free[counts.nth(i)];
    uint32_t active = 0, zombies = 0, waiting = 0, staged = 0;
    std::map<uint32_t, uint32_t> places;  // by place in the first table, which hostile numbers of clients share
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& row = c.sequences[i];
      if (row.use == BLINK_SEQUENCE_FREE) continue;
      for (uint32_t p = 0; p < row.n_pages; ++p)
        ++users[c.tables.block_table[uint64_t(i) * c.tables.pages_per_sequence + p]];
      if (row.use == BLINK_SEQUENCE_ZOMBIE) {
        ++zombies;
        continue;
      }
      const blink_request& r = c.requests[row.slot];
      if (r.sequence_index != i) fail("S3: a sequence's request does not point back");
      if (row.use == BLINK_SEQUENCE_STAGED) {
        ++staged;
        if (row.n_pages) fail("S13: a staged sequence has pages");
        if (!waits(r)) fail("S13: a staged sequence's request does not wait");
        continue;
      }
      ++active;
      ++places[r.client % BLINK_CLIENT_COUNTS];
      if (r.client != row.client) fail("S3: a sequence is its request's client's");
      if (r.state != BLINK_STATE_PREFILL_PROCESSING && r.state != BLINK_STATE_DECODE_PROCESSING)
        fail("S3: a sequence's request is not running");
    }
    check_host_pages();
    check_grammars();
    uint32_t idle = 0;
    for (uint32_t page = 0; page < c.total_pages; ++page) {
      const blink_page& g = c.pages[page];
      const bool findable = g.entry != BLINK_NO_PAGE;
      if (users[page] != g.users) return fail("S1: a page's users are miscounted");
      if (is_free[page] > 1 || (is_free[page] && (g.users || findable))) return fail("S1: a free page is in use");
      if (!is_free[page] && !g.users && !findable) return fail("S1: a page is lost");
      idle += !g.users && findable;
    }
    if (idle != counts.idle()) fail("S1: the idle pages are miscounted");
    for (uint32_t i = 0; i < c.n_slots; ++i) {
      waiting += waits(c.requests[i]);
    }
    if (active != s.n_active || zombies != s.n_zombies || waiting != s.n_waiting || staged != s.n_staged)
      fail("S3: a counter is wrong");
    for (uint32_t i = 0; i < 64; ++i) {
      if (s.clients[i].places != (places.count(i) ? places[i] : 0)) fail("S3: a client's places are miscounted");
    }
    check_order();
    fairness.look();
    follower.compare();
    for (const Frontend& f : frontends) {
      if (f.overstays(clock)) fail("R6: a lease outlives its frontend");
    }
  }

  // S19: a host page is found, or is one of a pair whose other page is found, or is empty. S17: no content is found
  // twice.
  void check_host_pages() {
    std::set<uint64_t> contents;
    for (uint32_t page = 0; page < c.total_pages + c.host_pages; ++page) {
      const blink_page& g = c.pages[page];
      const bool findable = g.entry != BLINK_NO_PAGE, host = page >= c.total_pages;
      if (findable && c.page_index[g.entry] != page + 2) fail("S17: the index has another page in this one's place");
      if (findable && !contents.insert(g.content).second) fail("S17: two pages with the same content are found");
      if (host && g.users) fail("S19: a block table names a host page");
      if (g.copy == BLINK_NO_PAGE) continue;
      const blink_page& other = c.pages[g.copy];
      if (other.copy != page || (g.copy >= c.total_pages) == host) fail("S19: a page has the copy of another");
      if (other.content != g.content || other.parent != g.parent || other.depth != g.depth)
        fail("S19: a copy is described otherwise");
      if (findable == host) fail("S19: of a pair the host page is found");
    }
  }

  // S21: who has a grammar is counted, no two lie in the same place, and those in use are as they were read.
  void check_grammars() {
    std::vector<uint32_t> users(c.n_grammar_places), staged(c.n_grammar_places);
    for (uint32_t i = 0; i < c.tables.n_sequences; ++i) {
      const blink_sequence& row = c.sequences[i];
      if (row.use == BLINK_SEQUENCE_FREE) continue;
      const bool wants = c.tables.params[i].grammar_words, has = row.grammar != BLINK_NO_GRAMMAR;
      if (has && !wants) return fail("S21: a sequence has a grammar that it does not want");
      if (row.use != BLINK_SEQUENCE_STAGED && wants && !has) return fail("S21: a sequence runs without its grammar");
      if (has) ++(row.use == BLINK_SEQUENCE_STAGED ? staged : users)[row.grammar];
    }
    const blink_grammar_reading& reading = c.state->grammar_reading;
    if (reading.arrival) ++staged[reading.place];
    uint32_t end = 0;
    std::map<uint32_t, uint32_t> lengths;
    for (uint32_t i = 0; i < c.n_grammar_places; ++i) {
      const blink_grammar_place& place = c.grammar_places[i];
      if (place.users != users[i] || place.staged != staged[i]) return fail("S21: a grammar's users are miscounted");
      if (place.words && !lengths.emplace(place.at, place.words).second) return fail("S21: two grammars share a place");
      if (place.users && !place.whole) return fail("S21: a sequence has a grammar that is not whole");
    }
    for (const auto& [at, words] : lengths) {
      if (at < end || at + words > c.max_grammar_words) return fail("S21: grammars overlap");
      end = at + words;
    }
  }

  static bool waits(const blink_request& r) {
    return r.state == BLINK_STATE_PREFILL_PENDING || r.state == BLINK_STATE_DECODE_PAUSED;
  }

  void check_order() {
    for (const Frontend& f : frontends) {
      std::map<uint32_t, uint64_t> by_ticket;
      for (const auto& [slot, sent] : f.open()) {
        const blink_request& r = c.requests[slot];
        if (!sent.torn && r.submission == sent.sequence && r.state == BLINK_STATE_PREFILL_PENDING)
          by_ticket[sent.ticket] = r.arrival;
      }
      uint64_t last = 0;
      for (const auto& [ticket, arrival] : by_ticket) {
        if (arrival < last) fail("S2: arrivals are not in the order of submission");
        last = arrival;
      }
    }
  }

  Fairness fairness;
  std::deque<Run> runs;
  std::string error;
  uint64_t turns_left, grace = 0;
  bool stopping = false;
};

}  // namespace simulator
