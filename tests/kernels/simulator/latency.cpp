/* Admission latency in virtual time: sequences decode, requests arrive at random moments, and each says how many decode
 * steps ran, in whole or in part, between its publication and the start of its first prefill step.
 */
#include <algorithm>
#include <deque>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "simulated_ring.h"
#include "ringbuffer/words.h"

namespace simulator {

constexpr uint64_t kDecodeNs = 1'000'000, kPrefillNs = 3'000'000;
constexpr uint64_t kReadNs = 500;  // of a word across PCIe
constexpr uint32_t kSlots = 128, kBatch = 64, kContext = 4096, kEpoch = 1;

class Latency {
 public:
  Latency(uint64_t seed, uint32_t sequences, uint32_t arrivals, uint64_t spacing_ns, bool torn)
      : ring({kSlots, 1, kBatch, kContext, 16, kBatch * kContext / 16, 512, 8, 30'000}),
        c(ring.c),
        engine(c.tables, c.sets, ring.sizes.total_pages),
        state_(seed),
        rows_(sequences),
        first_arrival_(sequences + torn),
        arrivals_(arrivals),
        spacing_(spacing_ns) {
    __atomic_store_n(&c.leases[0].word, blink::pair_word(kEpoch, 1), __ATOMIC_RELEASE);
  }

  uint64_t clock = 1'000'000;

  int launch(uint32_t set_index) {
    const blink_step_set& set = c.sets[set_index];
    const bool decode = set.head->n_decode == set.head->batch_size;
    const uint64_t start = runs_.empty() ? clock : std::max(clock, runs_.back().done);
    const uint64_t length = decode ? kDecodeNs : kPrefillNs;
    runs_.push_back({start, start + length + draw() % (length / 50), set_index, decode, false});
    for (uint32_t batch_slot = 0; batch_slot < set.head->batch_size && !decode; ++batch_slot) {
      if (set.token_position[set.batch_first[batch_slot]] == 0)
        begun(c.sequences[set.batch_sequence[batch_slot]].slot, start);
    }
    return 0;
  }

  void turn(uint64_t ns) {
    clock += ns;
    for (Run& run : runs_) {
      if (run.completed || run.done > clock) continue;
      engine.run(run.set, run.start, run.done);
      run.completed = true;
    }
    beat();
    if (c.lease_acks[0].word != blink::pair_word(kEpoch, BLINK_LEASE_GRANTED)) return;
    if (submitted_ < first_arrival_) {
      submit(16, kContext, submitted_ >= rows_);  // decodes to the end of the test; or never matches its checksum
    } else if (c.state->n_active >= rows_ && submitted_ < first_arrival_ + arrivals_ && clock >= next_) {
      submit(1 + draw() % 50, 1 + draw() % 4, false);
      next_ = clock + draw() % (2 * spacing_);
    } else if (waited.size() == arrivals_ || clock > 60'000'000'000ull) {
      __atomic_store_n(&c.header->control, BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
    }
  }

  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;
  std::vector<uint32_t> waited;  // of each arrival

 private:
  struct Run {
    uint64_t start, done;
    uint32_t set;
    bool decode, completed;
  };

  uint64_t draw() { return state_ = mix(state_); }

  void beat() { __atomic_store_n(&c.leases[0].word, blink::pair_word(kEpoch, clock / 1'000'000), __ATOMIC_RELEASE); }

  // A slot is used once.
  void submit(uint32_t prompt_tokens, uint32_t max_tokens, bool torn) {
    const uint32_t slot = submitted_++;
    blink_descriptor& d = c.descriptors[slot];
    ring.place(slot, d);
    uint32_t* prompt = ring.prompt(slot, d);
    for (uint32_t i = 0; i < prompt_tokens; ++i) prompt[i] = draw() % kVocab;
    d.sequence = 1;
    d.epoch = kEpoch;
    d.prompt_tokens = prompt_tokens;
    d.max_tokens = max_tokens;
    d.seed = slot;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    d.ticket = slot;
    d.crc32c = reference_crc(d, prompt) ^ torn;
    published_[slot] = clock;
    __atomic_store_n(&c.request_words[slot], blink::request_word(1, BLINK_COMMAND_SUBMIT, kEpoch), __ATOMIC_RELEASE);
  }

  void begun(uint32_t slot, uint64_t start) {
    if (slot < first_arrival_) return;
    const uint64_t published = published_[slot];
    waited.push_back(std::count_if(runs_.begin(), runs_.end(), [&](const Run& run) {
      return run.decode && run.done > published && run.start < start;
    }));
  }

  uint64_t state_;
  const uint32_t rows_, first_arrival_, arrivals_;
  const uint64_t spacing_;
  uint32_t submitted_ = 0;
  uint64_t next_ = 0, published_[kSlots] = {};
  std::deque<Run> runs_;
};

class LatencyPlatform : public blink::HostMemoryModel {
 public:
  LatencyPlatform(blink::Team& team, Latency& simulation) : HostMemoryModel(team, 0), simulation_(simulation) {}
  uint64_t now() { return simulation_.clock += 20; }
  uint64_t acquire(const uint64_t* p) {
    simulation_.turn(kReadNs);
    return HostMemoryModel::acquire(p);
  }
  int launch(uint64_t, uint32_t, uint32_t set) { return simulation_.launch(set); }
  int relaunch() { return 0; }
  void pause(bool idle) { simulation_.turn(idle ? 200 : 50); }

 private:
  Latency& simulation_;
};

}  // namespace simulator

// `arrivals` requests, `spacing_ns` apart on average, meet `sequences` that decode and, if `torn`, one older than they
// whose payload never matches its checksum. waited [arrivals]: decode steps each waited for. Returns how many were
// measured.
extern "C" uint32_t blink_latency_run(uint64_t seed, uint32_t sequences, uint32_t arrivals, uint64_t spacing_ns,
                                      bool torn, uint32_t* waited) {
  simulator::Latency w(seed, sequences, arrivals, spacing_ns, torn);
  blink::Team team(1);
  simulator::LatencyPlatform platform(team, w);
  while (blink::Scheduler<simulator::LatencyPlatform>(platform, w.c).run() == blink::Exit::kRelaunch) {
  }
  if (!w.engine.error.empty()) return 0;
  std::copy(w.waited.begin(), w.waited.end(), waited);
  return w.waited.size();
}
