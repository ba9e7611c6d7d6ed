/* A fleet of nodes under a load of conversations. Each node is blink's scheduler in virtual time (node.h). Time goes in
 * ticks: the router knows what nodes had done and cached at the tick before, and requests arrive at their own moments.
 */
#include <time.h>

#include <queue>

#include "scripts/scale/router.h"

using namespace scale;

extern "C" {

struct fleet_shape {
  uint32_t kind, tokens, batch_slots;
};

struct fleet_load {  // arrays; the turns of session i are [first_turn[i], first_turn[i + 1])
  uint32_t n_sessions, n_apps, system_tokens;
  const uint64_t* arrival_ns;
  const uint32_t *app, *first_turn;
  const uint32_t *question, *answer;  // tokens of each turn
  const uint64_t* think_ns;           // before each turn but the first
};

struct fleet_options {
  uint32_t n_nodes, policy;
  uint64_t seed, end_ns, tick_ns;
  uint32_t n_slots, max_batch, max_context, total_pages, max_prefill_tokens, max_prefill_slots, max_mixed_tokens,
      mixed_share, attention_keys;
  uint32_t n_shapes;
  const fleet_shape* shapes;
  const uint32_t *decode_lookup, *prefill_lookup, *mixed_lookup;
  uint32_t n_points;
  const double *point_tokens, *point_us;
  double decode_us_per_key, prompt_us_per_token_key;
  double prefill_weight;
};

// Of each turn that ended; the caller's arrays have room for all turns.
struct fleet_results {
  uint64_t *arrived, *first, *done;
  uint32_t *prompt, *cached, *answer, *node, *turn;
  uint64_t steps, requests, events;
  uint64_t choose_ns, told_ns;  // of processor time: the router's, for all requests and for all events
};

// Returns how many turns ended before `end_ns`.
uint32_t blink_fleet_run(const fleet_options* options, const fleet_load* load, fleet_results* results);
}

namespace {

class Fleet {
 public:
  Fleet(const fleet_options& options, const fleet_load& load)
      : o_(options),
        load_(load),
        router_(Policy(o_.policy), o_.prefill_weight, o_.n_nodes, load.n_apps + load.n_sessions, load.system_tokens,
                o_.seed) {
    for (uint32_t i = 0; i < o_.n_shapes; ++i)
      grid_.shapes.push_back({o_.shapes[i].kind, o_.shapes[i].tokens, o_.shapes[i].batch_slots, 0});
    grid_.decode_lookup.assign(o_.decode_lookup, o_.decode_lookup + o_.max_batch + 1);
    grid_.prefill_lookup.assign(o_.prefill_lookup, o_.prefill_lookup + granules(o_.max_prefill_tokens) + 1);
    grid_.mixed_lookup.assign(o_.mixed_lookup, o_.mixed_lookup + granules(o_.max_mixed_tokens) + 1);
    step_time_.tokens.assign(o_.point_tokens, o_.point_tokens + o_.n_points);
    step_time_.us.assign(o_.point_us, o_.point_us + o_.n_points);
    step_time_.decode_us_per_key = o_.decode_us_per_key;
    step_time_.prompt_us_per_token_key = o_.prompt_us_per_token_key;
    simulator::Sizes sizes{
        o_.n_slots,           1,     o_.max_batch, o_.max_context, kPage, o_.total_pages, o_.max_prefill_tokens,
        o_.max_prefill_slots, 30'000};
    sizes.max_mixed_tokens = o_.max_mixed_tokens;
    sizes.mixed_share = o_.mixed_share;
    sizes.attention_keys = o_.attention_keys;
    sizes.kv_event_capacity = 1024;
    for (uint32_t i = 0; i < o_.n_nodes; ++i)
      nodes_.emplace_back(new Node(sizes, grid_, step_time_, load.system_tokens));
    history_.resize(load.n_sessions, load.system_tokens);
    for (uint32_t i = 0; i < load.n_sessions; ++i) due_.push({load.arrival_ns[i], i, load.first_turn[i]});
  }

  uint32_t run(fleet_results& results) {
    uint32_t n = 0;
    for (uint64_t now = o_.tick_ns; now <= o_.end_ns; now += o_.tick_ns) {
      while (!due_.empty() && due_.top().at < now) send(results);
      for (uint32_t i = 0; i < nodes_.size(); ++i) {
        Node& node = *nodes_[i];
        node.advance(now);
        if (!node.events.empty()) tell(i, node.events, results);
        for (Request* request : node.answering) router_.answering(*request);
        for (Request* request : node.finished) n = finish(request, results, n);
        node.events.clear(), node.answering.clear(), node.finished.clear();
      }
    }
    for (const auto& node : nodes_) results.steps += node->stats().steps;
    return n;
  }

 private:
  struct Due {
    uint64_t at;
    uint32_t session, turn;
    bool operator<(const Due& other) const { return at > other.at; }  // the earliest is on top
  };

  static uint32_t granules(uint32_t n) { return (n + BLINK_TOKEN_GRANULE - 1) / BLINK_TOKEN_GRANULE; }

  static uint64_t processor_ns() {  // of this thread: others may run on its core
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1'000'000'000ull * now.tv_sec + now.tv_nsec;
  }

  void tell(uint32_t node, const std::vector<BlockEvent>& events, fleet_results& results) {
    const uint64_t began = processor_ns();
    for (const BlockEvent& event : events) router_.told(node, event);
    results.told_ns += processor_ns() - began;
    results.events += events.size();
  }

  void send(fleet_results& results) {
    const Due due = due_.top();
    due_.pop();
    auto* request = new Request;
    request->app = load_.app[due.session];
    request->label = load_.n_apps + due.session;
    request->prompt = history_[due.session] + load_.question[due.turn];
    request->answer = load_.answer[due.turn];
    request->turn = due.turn;
    request->arrived = due.at;
    const uint64_t began = processor_ns();
    router_.choose(*request);
    results.choose_ns += processor_ns() - began;
    ++results.requests;
    nodes_[request->node]->submit(request);
  }

  uint32_t finish(Request* request, fleet_results& results, uint32_t n) {
    const uint32_t session = request->label - load_.n_apps, next = request->turn + 1;
    router_.finished(*request);
    history_[session] = request->prompt + request->answer;
    if (next < load_.first_turn[session + 1]) due_.push({request->done + load_.think_ns[next], session, next});
    results.arrived[n] = request->arrived;
    results.first[n] = request->first;
    results.done[n] = request->done;
    results.prompt[n] = request->prompt;
    results.cached[n] = request->cached;
    results.answer[n] = request->answer;
    results.node[n] = request->node;
    results.turn[n] = request->turn - load_.first_turn[session];
    delete request;
    return n + 1;
  }

  const fleet_options& o_;
  const fleet_load& load_;
  Grid grid_;
  StepTime step_time_;
  Router router_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint32_t> history_;  // tokens of each session so far
  std::priority_queue<Due> due_;
};

}  // namespace

uint32_t blink_fleet_run(const fleet_options* options, const fleet_load* load, fleet_results* results) {
  return Fleet(*options, *load).run(*results);
}
