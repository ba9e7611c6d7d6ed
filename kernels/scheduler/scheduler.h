/* The scheduler: one loop that batches, schedules, manages KV pages and publishes tokens (paper section 4.2).
 *
 * Written once over a platform (platform.h); every thread of the block runs every line, and a value that decides the
 * control flow is the same in all of them. Read `run` first. The parts:
 *   tables.h     the addresses of each slot's and each sequence's data
 *   clock.h      reads the clock, and decides when the next step is due
 *   life.h       starts, goes on after a relaunch, fails and ends
 *   clients.h, sequences.h, steps.h  what a client has, what a sequence needs, which steps are in flight
 *   requests.h   a request's life: the only writer of its state
 *   intake.h     reads leases, new requests, cancels and releases from the ring
 *   payload.h    reads a request's payload from the ring and checks it
 *   staging.h    reads a waiting request ahead of time and gives it a sequence
 *   grammars.h   reads and checks the grammars of structured answers (grammar_places.h keeps them)
 *   admission.h  lets a staged request join the batch, with its first pages
 *   pages.h      owns the KV pages
 *   prefix.h     the prefix cache, which reuses the pages of earlier prompts (prefix_index.h finds them)
 *   kv_event_log.h  reports the prefix cache's pages to routers (kv_events.h queues the events)
 *   copies.h     copies pages of the prefix cache to host memory and back
 *   turns.h      fairness: which client is next
 *   planner.h    decides what the next step runs: sequences, positions, pages
 *   preemption.h decides which sequence leaves the batch when pages run out
 *   launch.h     launches a planned step; relaunches the kernel
 *   commit.h     takes the results of a step: publishes tokens, retires sequences, returns pages
 * README.md numbers the invariants (S1..).
 */
#ifndef BLINK_SCHEDULER_H
#define BLINK_SCHEDULER_H

#include "../../ringbuffer/extents.h"
#include "arrivals.h"
#include "crc32c.h"
#include "pages.h"
#include "terms.h"

namespace blink {

template <class P>
class Scheduler {
 public:
  BLINK_FN Scheduler(P& platform, const blink_scheduler_config& config)
      : p(platform),
        c(config),
        s(*config.state),
        t(config.tables),
        header(*config.header),
        events(platform, config),
        index(platform, config, events),
        pool(platform, config, index),
        tid(platform.thread()),
        threads(platform.threads()) {}

  // Runs until the launch window is used up or the backend says stop. Nothing runs when it returns, but after a fault.
  BLINK_FN Exit run() {
    restore();
    if (planned) launch_planned();
    for (;;) {
      read_clock();
      readable_words = c.stage_words;
      const uint64_t completed = broadcast(tid == 0 ? p.acquire(t.completed) : 0);
      if (window == p.launch_window() && completed == launched) return relaunch();
      take_completions(completed);
      // With the window used up and the next step planned, a relaunch is next, which a scan delays: it crosses PCIe.
      // But the step before may be a long one, and clients wait for the heartbeat and for their cancels (S10).
      const bool relaunching = planned && window == p.launch_window() && now - last_scan < BLINK_STATS_INTERVAL_NS;
      const bool settled = relaunching || !observe();
      if (finished()) return stop();
      if (!planned && settled && plan_is_due()) planned = plan(launched + 1);
      const bool launches = planned && window < p.launch_window();
      if (launches) launch_planned();
      if (!launches && c.kv_event_capacity) tell_events();
      time_turn();
      if (!launches) p.pause(in_flight() == 0);
    }
  }

 private:
  P& p;
  const blink_scheduler_config& c;
  blink_scheduler_state& s;
  const blink_tables& t;
  blink_header& header;
  KvEventQueue<P> events;
  PrefixIndex<P> index;
  PagePool<P> pool;
  const unsigned tid, threads;

  // The same in every thread; saved in `s` across a relaunch.
  uint64_t now = 0, launched = 0, committed = 0;
  uint64_t running_since = 0, last_scan = 0, last_stats = 0, last_event_scan = 0;
  uint64_t settled_at = 0;  // when a scan last brought nothing to stage, or a step ran
  uint32_t phase = 0, last_kind = 0;
  uint32_t window = 0;          // launches made by this execution (S8)
  uint32_t readable_words = 0;  // of payloads, in what is left of this turn (S18)
  bool planned = false;         // step launched + 1 is in its set, to be launched by this execution or the next
  bool stopping = false;

  // ------------------------------------------------------------ the loop's parts

  BLINK_FN uint64_t broadcast(uint64_t value_of_thread_0) { return p.reduce(value_of_thread_0, Or()); }

  // ------------------------------------------------------------ clock.h
  BLINK_FN bool plan_is_due() const;
  BLINK_FN void read_clock();
  BLINK_FN void time_turn();
  BLINK_FN static uint64_t since(uint64_t then, uint64_t at) { return at > then ? at - then : 0; }
  BLINK_FN void start_clocks_anew();
  BLINK_FN void not_torn(blink_request& r) const;
  BLINK_FN bool torn(const blink_request& r) const;

  // ------------------------------------------------------------ life.h
  BLINK_FN bool finished() const;
  BLINK_FN Exit stop();
  BLINK_FN void fail(blink_fault fault, uint64_t detail);
  BLINK_FN void restore();
  BLINK_FN void save();
  BLINK_FN void publish_stats();

  // ------------------------------------------------------------ launch.h
  BLINK_FN void launch_planned();
  BLINK_FN int launch_with_retry(uint32_t shape, uint32_t set);
  BLINK_FN Exit relaunch();

  // ------------------------------------------------------------ intake.h
  BLINK_FN bool observe();
  BLINK_FN void observe_control();
  BLINK_FN void observe_leases();
  BLINK_FN void observe_requests();
  BLINK_FN uint32_t scan_requests(bool older);
  BLINK_FN bool on_request_word(uint32_t slot, bool older);
  BLINK_FN uint64_t load_two(const uint32_t* first) const;
  BLINK_FN int32_t load_priority(const blink_descriptor& d) const;
  BLINK_FN void reset_slots(uint32_t lease);

  // ------------------------------------------------------------ payload.h
  BLINK_FN static bool belongs(const blink_request& r, const blink_descriptor& d);
  BLINK_FN bool replaced(const blink_request& r, const blink_descriptor& d) const;
  BLINK_FN bool prompt_in_heap(const blink_descriptor& d) const;
  BLINK_FN bool readable(const blink_request& r, const blink_descriptor& d) const;
  BLINK_FN uint32_t payload_length(uint32_t slot, uint32_t sequence) const;
  BLINK_FN uint32_t payload_end(const blink_descriptor& d) const;
  BLINK_FN uint64_t read_payload(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end, unsigned member,
                                 unsigned size);
  BLINK_FN uint32_t read_answer(uint32_t slot, uint32_t sequence, uint32_t begin, uint32_t end, unsigned member,
                                unsigned size);
  BLINK_FN uint32_t judge(const blink_request& r, const blink_descriptor& d, uint64_t found) const;
  BLINK_FN uint32_t check_parameters(const blink_descriptor& d) const;
  BLINK_FN uint32_t check_grammar_range(const blink_descriptor& d) const;

  // ------------------------------------------------------------ staging.h
  BLINK_FN bool stage_ahead();
  BLINK_FN bool stage(uint32_t most);
  BLINK_FN uint32_t choose(uint32_t most, uint32_t* slots, uint32_t* sequences);
  BLINK_FN bool stage_whole(const uint32_t* slots, const uint32_t* sequences, uint32_t n);
  BLINK_FN bool slicing() const;
  BLINK_FN bool stage_slice();
  BLINK_FN uint32_t next_free_sequence(uint32_t first);
  BLINK_FN bool may_stage() const;
  BLINK_FN uint32_t settle(uint32_t slot, uint32_t sequence, uint64_t found);

  // ------------------------------------------------------------ grammars.h
  BLINK_FN bool lacks_grammar(uint32_t sequence) const;
  BLINK_FN bool provide_grammars();
  BLINK_FN bool provide_grammar(uint32_t sequence, bool is_oldest);
  BLINK_FN bool reading_grammar();
  BLINK_FN void drop_grammar();
  BLINK_FN bool read_grammar();
  BLINK_FN uint64_t read_grammar_words(const blink_grammar_reading& at, uint32_t begin, uint32_t end, uint32_t wrong);
  BLINK_FN uint32_t check_grammar_head(const blink_grammar_reading& at);
  BLINK_FN void settle_grammar();

  // ------------------------------------------------------------ grammar_places.h
  BLINK_FN uint32_t find_grammar(uint32_t sequence);
  BLINK_FN void have_grammar(uint32_t sequence, uint32_t place);
  BLINK_FN bool gives_way(const blink_grammar_place& place, bool is_oldest) const;
  BLINK_FN uint64_t grammar_loss(uint32_t at, uint32_t words, bool is_oldest) const;
  BLINK_FN uint32_t make_grammar_place(uint32_t sequence, bool is_oldest);
  BLINK_FN uint32_t free_grammar_place(bool is_oldest);
  template <class Goes>
  BLINK_FN void forget_grammars(const Goes& goes);
  BLINK_FN void hold_grammar(uint32_t sequence);
  BLINK_FN void give_grammar_back(uint32_t sequence);

  // ------------------------------------------------------------ admission.h
  BLINK_FN uint64_t next_ready();
  BLINK_FN void accept(blink_request& r, const blink_descriptor& d);
  BLINK_FN bool admit(uint32_t slot);
  BLINK_FN void take_pages(uint32_t sequence, uint32_t n);
  BLINK_FN Room room_for(uint32_t sequence, const PrefixMatch& match, uint32_t leaving);

  // ------------------------------------------------------------ prefix.h
  BLINK_FN PrefixMatch match_prefix(uint32_t sequence);
  BLINK_FN uint32_t look_up(uint32_t sequence, uint32_t base, uint32_t end, uint64_t& sum);
  BLINK_FN void share_prefix(uint32_t sequence, const PrefixMatch& match);
  BLINK_FN void has_found(blink_sequence& sequence, uint32_t n, uint32_t last);
  BLINK_FN void link_prompt(uint32_t sequence, uint64_t id);
  BLINK_FN void link_filled(const blink_step_set& set);
  BLINK_FN void describe(uint32_t page, uint32_t sequence, uint32_t depth, uint64_t sum, uint64_t ready,
                         uint64_t content, uint64_t parent);
  BLINK_FN bool awaiting(uint32_t sequence);
  BLINK_FN bool is_worth_copies(const blink_sequence& sequence, uint32_t depth) const;

  // ------------------------------------------------------------ requests.h
  BLINK_FN void finish(uint32_t slot, uint32_t reason);
  BLINK_FN void finish_all(uint32_t reason);
  BLINK_FN void unstage(blink_request& r);
  BLINK_FN void detach(uint32_t sequence);
  BLINK_FN void reap();
  BLINK_FN void publish(uint32_t slot, uint32_t reason = BLINK_REASON_NONE);
  BLINK_FN uint32_t tear(uint32_t slot, uint32_t reason);
  BLINK_FN void forget_requests();
  BLINK_FN void arrive(blink_request& r, uint32_t submission, uint32_t epoch);
  BLINK_FN void vacate(uint32_t slot);
  BLINK_FN blink_sequence& assign(uint32_t slot, uint32_t sequence);
  BLINK_FN void join(uint32_t slot);
  BLINK_FN void go_on(uint32_t slot);
  BLINK_FN void pause(uint32_t slot);

  // ------------------------------------------------------------ clients.h
  BLINK_FN blink_client_count& count_of(uint32_t client, bool second) const {
    return s.clients[second ? BLINK_CLIENT_COUNTS + client / BLINK_CLIENT_COUNTS % BLINK_CLIENT_COUNTS
                            : client % BLINK_CLIENT_COUNTS];
  }
  BLINK_FN uint32_t places_of(uint32_t client) const {
    return Min()(count_of(client, false).places, count_of(client, true).places);
  }
  BLINK_FN void count_places(uint32_t client, uint32_t change) {
    for (uint32_t second = 0; second < 2; ++second) p.add(&count_of(client, second).places, change);
  }

  // ------------------------------------------------------------ sequences.h
  BLINK_FN bool prefilling(const blink_sequence& sequence) const {
    return sequence.use == BLINK_SEQUENCE_ACTIVE && sequence.fed < sequence.prefill_end;
  }
  BLINK_FN bool decoding(const blink_sequence& sequence) const;
  // Its last token is on its way: it is planned no more, and its pages come back when its last step is committed.
  BLINK_FN bool ending(const blink_sequence& sequence) const {
    return sequence.use == BLINK_SEQUENCE_ACTIVE && !prefilling(sequence) && !decoding(sequence);
  }
  BLINK_FN bool needs_page(const blink_sequence& sequence) const {
    return sequence.fed / t.page_size >= sequence.n_pages;
  }
  // Pages that a prompt under way still needs, the first answer's token included.
  BLINK_FN uint32_t owed(const blink_sequence& sequence) const {
    return prefilling(sequence) ? sequence.prefill_end / t.page_size + 1 - sequence.n_pages : 0;
  }
  BLINK_FN bool in_host(uint32_t page) const { return page != BLINK_NO_PAGE && page >= c.total_pages; }

  // ------------------------------------------------------------ steps.h
  BLINK_FN uint64_t in_flight() const { return launched - committed; }
  BLINK_FN const blink_step_set& set_of(uint64_t id) const { return c.sets[id % p.step_sets()]; }
  BLINK_FN void describe_step(uint64_t id, uint32_t kind, uint32_t shape, uint32_t n_decode, StepLoad load);

  // ------------------------------------------------------------ kv_event_log.h
  BLINK_FN void observe_event_reader();
  BLINK_FN void tell_events();
  BLINK_FN void begin_round();
  BLINK_FN void sweep_pages();
  BLINK_FN bool write_events();
  BLINK_FN void write_event(uint64_t number, QueuedKvEvent event);

  // ------------------------------------------------------------ copies.h
  BLINK_FN bool plan_copies(uint64_t id, uint32_t n_decoding);
  BLINK_FN uint32_t plan_returns(uint64_t id, uint32_t n_decoding, uint32_t most);
  BLINK_FN uint32_t bring_back(uint64_t id, uint32_t sequence, uint32_t at, uint32_t most);
  BLINK_FN uint32_t bring_back_side_by_side(uint64_t id, uint32_t sequence, uint32_t at, uint32_t most);
  BLINK_FN uint32_t copy_out(uint64_t id, uint32_t most);

  // ------------------------------------------------------------ planner.h
  BLINK_FN bool plan(uint64_t id);
  BLINK_FN uint32_t count_batch();
  BLINK_FN uint32_t room_beside(uint32_t counts) const { return c.max_batch - (counts & 0xffff) - (counts >> 16); }
  BLINK_FN uint32_t plan_decode(uint64_t id);
  BLINK_FN StepLoad plan_prompts(uint64_t id, uint32_t n_decode, uint32_t limit, uint32_t room);
  BLINK_FN uint32_t scored_room(StepLoad load, uint32_t n_decode, bool others) const;
  BLINK_FN uint32_t chunk(const blink_sequence& sequence, StepLoad load, uint32_t n_decode, uint32_t limit,
                          bool others) const;
  BLINK_FN void tell_cached(const blink_sequence& sequence);
  BLINK_FN void feed(uint64_t id, uint32_t sequence, uint32_t n, uint32_t batch_slot, uint32_t at);
  BLINK_FN void score(uint64_t id, uint32_t sequence, uint32_t n, uint32_t batch_slot, uint32_t at);
  BLINK_FN uint32_t mixed_limit(uint32_t n_decode, uint32_t n) const;
  BLINK_FN void close_plan(uint64_t id, uint32_t n_decode, StepLoad load);

  // ------------------------------------------------------------ turns.h
  BLINK_FN Place next_in_line(Place after, bool unstaged);
  BLINK_FN bool unstage_behind(Place place);
  BLINK_FN uint64_t claim_of(const blink_request& r) const;
  BLINK_FN void had_turn(uint32_t client);
  BLINK_FN void consider_anew();
  BLINK_FN void consider(uint32_t sequence);
  BLINK_FN uint32_t considered_of(uint32_t client);
  BLINK_FN bool line_is_before(uint32_t rank);
  BLINK_FN bool is_before(uint64_t arrival, uint32_t rank);
  BLINK_FN NextPrompt next_prompt();

  // ------------------------------------------------------------ preemption.h
  BLINK_FN void make_room();
  BLINK_FN bool give_place();
  BLINK_FN uint32_t next_to_leave(const blink_request* newcomer);
  BLINK_FN uint32_t who_yields(uint64_t arrival);
  BLINK_FN bool leave(uint32_t sequence);
  BLINK_FN void preempt(uint32_t sequence);

  // ------------------------------------------------------------ commit.h
  BLINK_FN void take_completions(uint64_t completed);
  BLINK_FN uint64_t step_run_early(uint64_t completed);
  BLINK_FN void commit(uint64_t id);
  BLINK_FN bool is_outcome(uint32_t token) const;
  BLINK_FN void forget_faulty();
  BLINK_FN bool fills_page(const blink_step_set& set, uint32_t batch_slot);
  BLINK_FN void commit_token(const blink_step_set& set, uint32_t batch_slot);
  BLINK_FN void commit_scores(const blink_step_set& set);
  BLINK_FN void commit_score(const blink_step_set& set, uint32_t batch_slot);
  BLINK_FN void tell_logprobs(const blink_step_set& set, uint32_t batch_slot, uint64_t* to, uint32_t n);
  BLINK_FN uint32_t finish_reason(const blink_request& r, const blink_descriptor& d, uint32_t token) const;
  BLINK_FN void record_times(const blink_step_head& head);
  BLINK_FN void show(const blink_step_head& head);

  // ------------------------------------------------------------ tables.h
  BLINK_FN uint32_t lease_of(uint32_t slot) const;
  BLINK_FN const uint32_t* prompt(uint32_t slot, const blink_descriptor& d) const;
  BLINK_FN uint64_t* outputs(uint32_t slot) const;
  BLINK_FN uint64_t* logprobs(uint32_t slot) const;
  BLINK_FN uint64_t* prompt_logprobs(uint32_t slot) const;
  BLINK_FN uint32_t* controls(uint32_t sequence) const;
  BLINK_FN uint32_t* history(uint32_t sequence) const;
  BLINK_FN uint32_t* pages(uint32_t sequence) const;
  BLINK_FN uint64_t longest_context() const;
  BLINK_FN static bool open(const blink_request& r);
  BLINK_FN static bool waiting(const blink_request& r);
};

}  // namespace blink

#include "tables.h"
#include "clients.h"
#include "sequences.h"
#include "steps.h"
#include "clock.h"
#include "life.h"
#include "intake.h"
#include "prefix.h"
#include "kv_event_log.h"
#include "payload.h"
#include "requests.h"
#include "staging.h"
#include "grammar_places.h"
#include "grammars.h"
#include "turns.h"
#include "admission.h"
#include "copies.h"
#include "preemption.h"
#include "planner.h"
#include "launch.h"
#include "commit.h"

#endif
