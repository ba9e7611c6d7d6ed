/* Many requests over a thousand beginnings, more than the pages hold: nothing is lost, and nothing grows.
 *
 *   soak REQUESTS SEED      prints what it did; exits 1 and prints what went wrong
 */
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "frontend.h"
#include "kernels/scheduler/host.h"
#include "kernels/scheduler/pages.h"
#include "kernels/scheduler/scheduler.h"

namespace simulator {

constexpr uint32_t kEpoch = 1, kBeginnings = 1000, kContext = 256, kPage = 16, kLongest = 12 * kPage;
constexpr Sizes kSizes{512, 1, 64, kContext, kPage, 3000, 1024, 16, 30'000};

class Soak {
 public:
  Soak(uint64_t requests, uint64_t seed)
      : ring(kSizes), c(ring.c), engine(c.tables, c.sets, kSizes.total_pages), left_(requests), random_(seed) {
    for (std::vector<uint32_t>& beginning : beginnings_) {
      for (uint32_t i = 0; i < kLongest; ++i) beginning.push_back(random_() % kVocab);
    }
  }

  uint64_t clock = 1'000'000;

  int launch(uint32_t set) {
    runs_.push_back({set, std::max(clock, runs_.empty() ? 0 : runs_.back().done) + 50'000});
    return 0;
  }
  void turn() {
    clock += 10'000;
    for (; !runs_.empty() && runs_.front().done <= clock; runs_.pop_front())
      engine.run(runs_.front().set, clock - 1, clock);
    publish(&c.leases[0].word, blink::pair_word(kEpoch, ++beats_));
    if (c.lease_acks[0].word != blink::pair_word(kEpoch, BLINK_LEASE_GRANTED)) return;
    uint32_t open = 0;
    for (uint32_t slot = 0; slot < kSizes.n_slots; ++slot) open += !serve(slot);
    if (open == 0 && left_ == 0) publish(&c.header->control, BLINK_CONTROL_DRAIN);
  }

  std::string verdict() const {
    if (!error.empty()) return error;
    if (!engine.error.empty()) return engine.error;
    const blink::PageCounts counts(c);
    if (counts.available() != c.total_pages) return "S1: pages are lost";
    uint32_t findable = 0, entries = 0, users = 0;
    for (uint32_t page = 0; page < c.total_pages; ++page) {
      findable += c.pages[page].entry != BLINK_NO_PAGE;
      users += c.pages[page].users;
    }
    for (uint32_t i = 0; i < c.n_index; ++i) entries += c.page_index[i] > 1;
    if (users) return "S1: a page has users although nobody is there";
    if (findable != counts.idle() || entries != findable) return "S16: the index and the idle pages differ";
    return "";
  }

  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;
  std::string error;

 private:
  struct Run {
    uint32_t set;
    uint64_t done;
  };
  struct Request {
    uint64_t seed = 0;
    uint32_t sequence = 0, max_tokens = 0, last = 0;
    bool open = false;
  };

  static void publish(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

  // Takes the slot one step further. True if it is unused, and stays so.
  bool serve(uint32_t slot) {
    Request& r = requests_[slot];
    const blink::Status status = blink::unpack_status(c.progress[slot].status);
    if (r.open && status.sequence == r.sequence && status.state == BLINK_STATE_DECODE_COMPLETED) {
      check(slot, status);
      r.open = false;
      publish(&c.request_words[slot], blink::request_word(r.sequence, BLINK_COMMAND_RELEASE, kEpoch));
    }
    if (r.open || status.state != BLINK_STATE_EMPTY || status.sequence != r.sequence) return false;
    if (left_ == 0) return true;
    --left_;
    submit(slot);
    return false;
  }

  void submit(uint32_t slot) {
    Request& r = requests_[slot];
    std::vector<uint32_t> prompt = beginnings_[random_() % kBeginnings];
    prompt.resize(1 + random_() % kLongest);
    for (uint32_t n = random_() % 20; n; --n) prompt.push_back(random_() % kVocab);
    r = {random_() >> 2, r.sequence + 1, uint32_t(1 + random_() % 6), prompt.back(), true};
    blink_descriptor& d = c.descriptors[slot];
    d = {};
    d.sequence = r.sequence;
    d.epoch = kEpoch;
    d.prompt_tokens = prompt.size();
    d.max_tokens = r.max_tokens;
    d.seed = r.seed;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    d.ticket = tickets_++;
    ring.place(slot, d);
    d.crc32c = reference_crc(d, prompt.data());
    std::copy(prompt.begin(), prompt.end(), ring.prompt(slot, d));
    publish(&c.request_words[slot], blink::request_word(r.sequence, BLINK_COMMAND_SUBMIT, kEpoch));
  }

  void check(uint32_t slot, const blink::Status& status) {
    const Request& r = requests_[slot];
    bool good = status.reason == BLINK_REASON_LENGTH && status.count == r.max_tokens;
    for (uint32_t i = 0, previous = r.last; good && i < status.count; ++i) {
      const uint64_t record = ring.outputs(slot, c.descriptors[slot])[i];
      good = blink::low(record) == answer(r.seed, i, previous);
      previous = blink::low(record);
    }
    if (!good && error.empty()) error = "an answer is wrong";
  }

  uint64_t left_;
  Random random_;
  std::vector<uint32_t> beginnings_[kBeginnings];
  Request requests_[kSizes.n_slots];
  std::deque<Run> runs_;
  uint32_t beats_ = 0, tickets_ = 0;
};

class SoakPlatform : public blink::HostMemoryModel {
 public:
  SoakPlatform(blink::Team& team, Soak& soak) : HostMemoryModel(team, 0), soak_(soak) {}
  uint64_t now() { return soak_.clock += 20; }
  int launch(uint64_t, uint32_t, uint32_t set) { return soak_.launch(set); }
  int relaunch() { return 0; }
  void pause(bool) { soak_.turn(); }

 private:
  Soak& soak_;
};

}  // namespace simulator

int main(int argc, char** argv) {
  using namespace simulator;
  if (argc != 3) return 2;
  Soak soak(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
  blink::Team team(1);
  SoakPlatform platform(team, soak);
  while (blink::Scheduler<SoakPlatform>(platform, soak.c).run() == blink::Exit::kRelaunch) continue;
  const blink_stats& s = soak.c.state->stats;
  const std::string verdict = soak.verdict();
  std::printf("completed %llu hits %.2f evicted %llu preempted %llu %s\n", (unsigned long long)s.completed,
              double(s.prefix_hits) / s.prefix_queries, (unsigned long long)s.prefix_evictions,
              (unsigned long long)s.preempted, verdict.c_str());
  return verdict.empty() && s.prefix_hits && s.prefix_evictions ? 0 : 1;
}
