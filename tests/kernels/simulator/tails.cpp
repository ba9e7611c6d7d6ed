/* First tokens and gaps between tokens in virtual time: requests arrive at random, and a step takes what a model of a
 * GPU says. Prints JSON, so that rules of how prompts and answers share steps can be compared without a GPU.
 *
 *   tails NAME=VALUE...        names are those of `Load` and `Machine`
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "ringbuffer/words.h"
#include "simulated_ring.h"

namespace simulator {

constexpr uint32_t kSlots = 256, kBatch = 128, kPrefill = 8192, kPrefillSlots = 16, kEpoch = 1;
constexpr uint64_t kWarmNs = 500'000'000;

/* What arrives. Lengths are lognormal with these means and sigma; sigma 0: all alike. */
struct Load {
  double rate = 12;   // requests a second; 0: all at once
  double closed = 0;  // requests that are always open, in place of a rate
  double requests = 600, prompt = 1060, output = 470, sigma = 0.8, longest = 8000, seed = 1;
  double last = 0;   // not 0: the last request has a prompt of so many tokens, and comes when all others have answered
                     // for a while
  double ended = 0;  // tokens of prompts whose requests have ended before, each with a single token
};

/* A GPU with a model, in nanoseconds. The defaults are about those of Llama-3-8B in fp8 on an H200, whose TTFT and ITL
 * at 12 requests a second come out within 3 % (p99). */
struct Machine {
  double weights = 2.6e6;                         // to read them
  double token = 14e3;                            // its matmuls
  double key = 15;                                // to read one
  double seen = 0.35;                             // a key that a prompt's token sees
  double mixed = 0;                               // beside its tokens and keys: a step of prompts beside others
  double mixed_tokens = 1024, mixed_share = 256;  // as in blink_scheduler_config
  double target = 0;                              // milliseconds: its target_itl_ns
  double min = 0;                                 // milliseconds: its min_itl_ns
};

double& named(Load& load, Machine& machine, const std::string& name) {
  const std::pair<const char*, double*> all[] = {{"rate", &load.rate},
                                                 {"closed", &load.closed},
                                                 {"requests", &load.requests},
                                                 {"prompt", &load.prompt},
                                                 {"output", &load.output},
                                                 {"sigma", &load.sigma},
                                                 {"longest", &load.longest},
                                                 {"seed", &load.seed},
                                                 {"weights", &machine.weights},
                                                 {"token", &machine.token},
                                                 {"key", &machine.key},
                                                 {"seen", &machine.seen},
                                                 {"mixed", &machine.mixed},
                                                 {"mixed_tokens", &machine.mixed_tokens},
                                                 {"mixed_share", &machine.mixed_share},
                                                 {"target", &machine.target},
                                                 {"min", &machine.min},
                                                 {"last", &load.last},
                                                 {"ended", &load.ended}};
  for (const auto& [key, value] : all)
    if (name == key) return *value;
  std::fprintf(stderr, "no such name: %s\n", name.c_str());
  std::exit(2);
}

class Tails {
 public:
  Tails(const Load& load, const Machine& machine)
      : load_(load),
        machine_(machine),
        context_(uint32_t(std::max(2 * load.longest, load.last + 1000) + 16)),
        ring({kSlots, 1, kBatch, context_, 16, kBatch * (context_ / 16 + 1) / 2, kPrefill, kPrefillSlots, 30'000,
              uint32_t(machine.mixed_tokens), uint32_t(machine.mixed_share), 0}),
        c(ring.c),
        engine(c.tables, c.sets, ring.sizes.total_pages),
        random_(uint64_t(load.seed)) {
    give_shapes();
    c.attention_keys = uint32_t(machine.token / machine.seen);
    c.target_itl_ns = uint64_t(machine.target * 1e6);
    c.min_itl_ns = uint64_t(machine.min * 1e6);
    c.state->ended_prompts = uint64_t(load.ended);
    for (uint32_t slot = kSlots; slot--;) vacant_.push_back(slot);
    next_ = draw_gap();
  }

  uint64_t clock = 1'000'000;

  int launch(uint32_t shape, uint32_t set_index) {
    const uint64_t start = runs_.empty() ? clock : std::max(clock, runs_.back().done);
    runs_.push_back({start, start + duration(c.shapes[shape], c.sets[set_index]), set_index});
    return 0;
  }

  void turn(uint64_t ns) {
    clock += ns;
    while (!runs_.empty() && runs_.front().done <= clock) {
      engine.run(runs_.front().set, runs_.front().start, runs_.front().done);
      runs_.pop_front();
    }
    if (clock - beaten_ > 1'000'000)
      beaten_ = clock, __atomic_store_n(&c.leases[0].word, blink::pair_word(kEpoch, ++beats_), __ATOMIC_RELEASE);
    if (c.lease_acks[0].word != blink::pair_word(kEpoch, BLINK_LEASE_GRANTED)) return;
    if (clock < looked_ + 20'000) return;
    looked_ = clock;
    for (size_t i = 0; i < open_.size();) read(open_[i]) ? void(open_[i] = open_.back()), open_.pop_back() : void(++i);
    for (size_t i = 0; i < released_.size();) {
      const bool empty = blink::unpack_status(c.progress[released_[i]].status).state == BLINK_STATE_EMPTY;
      if (empty)
        vacant_.push_back(released_[i]), released_[i] = released_.back(), released_.pop_back();
      else
        ++i;
    }
    while (!vacant_.empty() && submitted_ < load_.requests && is_due()) {
      submit();
      next_ += draw_gap();
    }
    if (submitted_ >= load_.requests && (open_.empty() || (last_in_ && clock >= last_in_ + kWarmNs)))
      __atomic_store_n(&c.header->control, BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
  }

  void print() {
    if (load_.last) return print_last();
    const double seconds = double(clock - 1'000'000) / 1e9;
    std::printf("{");
    print_percentiles("ttft_ms", firsts_, {50, 90, 99, 100});
    print_percentiles("itl_ms", gaps_, {50, 99, 100});
    print_percentiles("tpot_ms", means_, {50, 99});
    std::printf("\"steps_per_token\": %.4f, ", double(c.state->stats.steps) / double(tokens_));
    std::printf("\"tokens_per_s\": %.1f}\n", double(tokens_) / seconds);
  }

 private:
  struct Run {
    uint64_t start, done;
    uint32_t set;
  };
  struct Open {
    uint32_t slot, sequence, count, sequence_in_all;
    uint64_t submitted, first, last;
  };
  static void print_percentiles(const char* name, std::vector<double>& values, std::initializer_list<size_t> shares) {
    std::sort(values.begin(), values.end());
    std::printf("\"%s\": {\"n\": %zu", name, values.size());
    for (size_t share : shares) {
      if (values.empty()) continue;
      const size_t at = std::min(values.size() - 1, values.size() * share / 100);
      std::printf(", \"p%zu\": %.3f", share, values[at] / 1e6);
    }
    std::printf("}, ");
  }

  // How many tokens a second each of the others had while the last prompt came in, before, and since: without it, too,
  // they slow down while their contexts grow. And the longest gap between two tokens of one of them meanwhile.
  void print_last() const {
    const double wait = double(last_in_ - last_submitted_), others = load_.requests - 1;
    const auto rate = [&](uint64_t from, uint64_t to, double ns) { return double(to - from) / others / ns * 1e9; };
    std::printf("{\"ttft_ms\": %.3f", wait / 1e6);
    if (others > 0) {
      std::printf(", \"rate\": %.3f, \"rate_before\": %.3f, \"rate_behind\": %.3f", rate(at_last_, at_last_in_, wait),
                  rate(at_warm_, at_last_, double(kWarmNs)), rate(at_last_in_, tokens_, double(clock - last_in_)));
      std::printf(", \"longest_gap_ms\": %.3f", double(longest_gap_) / 1e6);
    }
    std::printf("}\n");
  }

  bool is_due() {
    if (load_.closed) return open_.size() < load_.closed;
    if (!load_.last || submitted_ + 1 < load_.requests) return clock >= next_;
    const bool all = std::all_of(open_.begin(), open_.end(), [](const Open& open) { return open.count > 20; });
    if (all && warm_ == 0) at_warm_ = tokens_, warm_ = clock;
    at_last_ = tokens_;
    return warm_ && clock >= warm_ + kWarmNs;
  }

  uint64_t duration(const blink_shape& shape, const blink_step_set& set) const {
    double keys = 0, seen = 0;
    for (uint32_t i = 0; i < set.head->n_tokens; ++i)
      if (i >= set.head->n_decode) seen += set.token_position[i];
    for (uint32_t i = 0; i < set.head->batch_size; ++i) keys += set.token_position[set.batch_last[i]];
    const double compute = shape.tokens * machine_.token;
    const double matmuls = std::pow(std::pow(machine_.weights, 3) + std::pow(compute, 3), 1 / 3.);
    const double mixed = set.head->kind == BLINK_STEP_MIXED && set.head->n_decode ? machine_.mixed : 0;
    return uint64_t(matmuls + mixed + keys * machine_.key + seen * machine_.seen + 15e3 * shape.batch_slots / 8);
  }

  /* The engine's (gpu_backend/engines/graph_grid.py) up to 1,024 tokens, and coarser ones beyond. */
  void give_shapes() {
    for (uint32_t n : {1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128})
      shapes_.push_back({BLINK_STEP_DECODE, n, n, 0});
    const uint32_t prefill = uint32_t(shapes_.size());
    for (uint32_t n = 64; n <= kPrefill; n += n < 512 ? 64 : 1u << (28 - __builtin_clz(n)))
      shapes_.push_back({BLINK_STEP_PREFILL, n, kPrefillSlots, 0});
    const uint32_t mixed = uint32_t(shapes_.size());
    std::vector<uint32_t> sizes = {64, 128, 160, 192, 256, 320};
    for (uint32_t n = 384; n <= 1024; n += 128) sizes.push_back(n);
    for (uint32_t n = 1280; n <= machine_.mixed_tokens; n += n < 2048 ? 256 : n < 4096 ? 512 : 1024) sizes.push_back(n);
    for (uint32_t n : sizes)
      for (uint32_t slots : {64u, kBatch + kPrefillSlots})
        shapes_.push_back({BLINK_STEP_MIXED, n, std::min(n, slots), 0});
    c.n_shapes = uint32_t(shapes_.size());
    c.shapes = shapes_.data();
    times_.resize(shapes_.size());
    c.shape_times = times_.data();
    c.max_mixed_tokens = sizes.back();
    for (uint32_t n = 0; n <= kBatch; ++n) c.decode_lookup[n] = tightest(0, n);
    for (uint32_t n = 0; n <= kPrefill / BLINK_TOKEN_GRANULE; ++n)
      c.prefill_lookup[n] = tightest(prefill, n * BLINK_TOKEN_GRANULE);
    for (uint32_t n = 0; n <= sizes.back() / BLINK_TOKEN_GRANULE; ++n)
      c.mixed_lookup[n] = tightest(mixed, n * BLINK_TOKEN_GRANULE);
  }
  uint32_t tightest(uint32_t first, uint32_t n) const {
    while (shapes_[first].tokens < n) ++first;
    return first;
  }

  uint64_t draw_gap() { return load_.rate ? uint64_t(std::exponential_distribution<>(load_.rate)(random_) * 1e9) : 0; }
  uint32_t draw_length(double mean) {
    if (load_.sigma == 0) return uint32_t(mean);
    std::lognormal_distribution<> lengths(std::log(mean) - load_.sigma * load_.sigma / 2, load_.sigma);
    return uint32_t(std::clamp(lengths(random_), 4., load_.longest));
  }

  void submit() {
    const bool is_last = load_.last && submitted_ + 1 >= load_.requests;
    const uint32_t slot = vacant_.back(), n = is_last ? uint32_t(load_.last) : draw_length(load_.prompt);
    vacant_.pop_back();
    blink_descriptor& d = c.descriptors[slot];
    d = {};
    ring.place(slot, d);
    uint32_t* prompt = ring.prompt(slot, d);
    for (uint32_t i = 0; i < n; ++i) prompt[i] = uint32_t(random_() % kVocab);
    const uint32_t sequence = ++sequences_[slot];
    d.sequence = sequence;
    d.epoch = kEpoch;
    d.prompt_tokens = n;
    d.max_tokens = is_last ? 1 : draw_length(load_.output);
    d.seed = 1 + 3 * slot;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    d.ticket = ++submitted_;
    d.crc32c = reference_crc(d, prompt);
    __atomic_store_n(&c.request_words[slot], blink::request_word(sequence, BLINK_COMMAND_SUBMIT, kEpoch),
                     __ATOMIC_RELEASE);
    open_.push_back({slot, sequence, 0, submitted_,
                     load_.rate && !load_.closed && !is_last ? std::max(next_, uint64_t(1'000'000)) : clock, 0, 0});
  }

  bool read(Open& open) {
    const blink::Status status = blink::unpack_status(c.progress[open.slot].status);
    if (status.sequence != open.sequence) return false;
    if (status.count > open.count) {
      if (open.count == 0)
        firsts_.push_back(double(clock - open.submitted)), open.first = clock;
      else
        gaps_.push_back(double(clock - open.last)), see_gap(clock - open.last);
      tokens_ += status.count - open.count;
      if (load_.last && !last_in_ && submitted_ >= load_.requests && open.sequence_in_all == submitted_)
        last_in_ = clock, last_submitted_ = open.submitted, at_last_in_ = tokens_;
      open.count = status.count, open.last = clock;
    }
    if (status.state != BLINK_STATE_DECODE_COMPLETED) return false;
    if (open.count > 1) means_.push_back(double(open.last - open.first) / (open.count - 1));
    __atomic_store_n(&c.request_words[open.slot], blink::request_word(open.sequence, BLINK_COMMAND_RELEASE, kEpoch),
                     __ATOMIC_RELEASE);
    released_.push_back(open.slot);
    return true;
  }

  void see_gap(uint64_t gap) {
    if (load_.last && submitted_ >= load_.requests && !last_in_) longest_gap_ = std::max(longest_gap_, gap);
  }

  const Load load_;
  const Machine machine_;
  const uint32_t context_;

 public:
  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;

 private:
  std::mt19937_64 random_;
  std::vector<blink_shape> shapes_;
  std::vector<blink_shape_time> times_;
  std::deque<Run> runs_;
  std::vector<Open> open_;
  std::vector<uint32_t> vacant_, released_;
  std::vector<double> firsts_, gaps_, means_;
  uint64_t next_ = 0, looked_ = 0, beaten_ = 0, tokens_ = 0, warm_ = 0, at_warm_ = 0;
  uint64_t at_last_ = 0, last_submitted_ = 0, last_in_ = 0, at_last_in_ = 0, longest_gap_ = 0;
  uint32_t beats_ = 0, submitted_ = 0, sequences_[kSlots] = {};
};

class TailsPlatform : public blink::HostMemoryModel {
 public:
  TailsPlatform(blink::Team& team, Tails& simulation) : HostMemoryModel(team, 0), simulation_(simulation) {}
  uint64_t now() { return simulation_.clock += 20; }
  int launch(uint64_t, uint32_t shape, uint32_t set) { return simulation_.launch(shape, set); }
  int relaunch() { return 0; }
  void pause(bool) { simulation_.turn(5000); }

 private:
  Tails& simulation_;
};

}  // namespace simulator

int main(int argc, char** argv) {
  simulator::Load load;
  simulator::Machine machine;
  for (int i = 1; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (!equals) return 2;
    simulator::named(load, machine, std::string(argv[i], size_t(equals - argv[i]))) = std::atof(equals + 1);
  }
  simulator::Tails tails(load, machine);
  blink::Team team(1);
  simulator::TailsPlatform platform(team, tails);
  while (blink::Scheduler<simulator::TailsPlatform>(platform, tails.c).run() == blink::Exit::kRelaunch) {
  }
  if (!tails.engine.error.empty()) std::printf("%s\n", tails.engine.error.c_str());
  tails.print();
  return !tails.engine.error.empty();
}
