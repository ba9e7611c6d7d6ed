/* What the scheduler's turns take of a processor while many requests are open: its own source, on one thread, in
 * virtual time, with the engine of the tests, whose time is not counted.
 *
 *   scheduler_turns SLOTS MAX_BATCH TOKENS
 *
 * All slots are submitted at once. A turn ends where the loop backs off or launches. Prints, as JSON, the nanoseconds
 * of the turns of each kind: `scan`, which found nothing new; `take`, which took new request words; `stage`, which read
 * waiting requests ahead; `admit`, which launched a step that admits some; `step`, which launched another.
 */
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <vector>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "ringbuffer/words.h"
#include "tests/kernels/simulator/reference_crc.h"
#include "tests/kernels/simulator/simulated_ring.h"

namespace {

using namespace simulator;

constexpr uint32_t kContext = 64, kPage = 16, kPrompt = 16, kEpoch = 1, kPrefillSlots = 16;
constexpr uint64_t kStepNs = 1'000'000, kReadNs = 500;

uint64_t processor_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1'000'000'000ull * now.tv_sec + now.tv_nsec;
}

struct Turn {
  uint64_t ns;
  uint32_t requests;  // that were taken, staged or admitted
};

class World {
 public:
  World(uint32_t slots, uint32_t max_batch, uint32_t tokens)
      : ring({slots, 1, max_batch, kContext, kPage, (max_batch + kPrefillSlots) * kContext / kPage, 2048, kPrefillSlots,
              30'000}),
        c(ring.c),
        engine(c.tables, c.sets, ring.sizes.total_pages),
        tokens_(tokens),
        released_(slots) {
    publish(&c.leases[0].word, blink::pair_word(kEpoch, 1));
  }

  uint64_t clock = 1'000'000;

  void back_off(bool idle) {
    end_turn(false);
    clock += idle ? 200 : 5'000;
    for (; !runs_.empty() && runs_.front().done <= clock; runs_.pop_front())
      engine.run(runs_.front().set, runs_.front().done - kStepNs, runs_.front().done);
    publish(&c.leases[0].word, blink::pair_word(kEpoch, clock / 1'000'000));
    if (c.lease_acks[0].word == blink::pair_word(kEpoch, BLINK_LEASE_GRANTED)) serve();
    begin_turn();
  }

  void launch(uint32_t set) {
    end_turn(true);
    const uint64_t start = runs_.empty() ? clock : std::max(clock, runs_.back().done);
    runs_.push_back({set, start + kStepNs});
    begin_turn();
  }

  void begin_turn() {
    before_ = counts();
    began_ = processor_ns();
  }

  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;
  std::map<const char*, std::vector<Turn>> turns;
  uint32_t completed = 0;  // with all of their tokens

 private:
  struct Run {
    uint32_t set;
    uint64_t done;
  };
  struct Counts {
    uint64_t steps, admitted;
    uint32_t open, staged;
  };

  static void publish(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

  Counts counts() const {
    const blink_scheduler_state& s = *c.state;
    return {s.stats.steps, s.stats.admitted, s.n_waiting + s.n_active, s.n_staged};
  }

  void end_turn(bool launches) {
    const uint64_t took = processor_ns() - began_;
    const Counts now = counts();
    if (now.steps != before_.steps && !launches) return;  // results were taken: not what is asked here
    const uint32_t admitted = now.admitted - before_.admitted;
    const uint32_t taken = now.open > before_.open ? now.open - before_.open : 0;
    const uint32_t staged = now.staged > before_.staged ? now.staged - before_.staged : 0;
    if (launches)
      turns[admitted ? "admit" : "step"].push_back({took, admitted});
    else if (taken)
      turns["take"].push_back({took, taken});
    else if (staged)
      turns["stage"].push_back({took, staged});
    else
      turns["scan"].push_back({took, 0});
  }

  void serve() {
    if (!submitted_) {
      for (uint32_t slot = 0; slot < c.n_slots; ++slot) submit(slot);
      submitted_ = true;
    }
    for (uint32_t slot = 0; slot < c.n_slots; ++slot) {
      const blink::Status status = blink::unpack_status(c.progress[slot].status);
      if (released_[slot] || status.sequence != 1 || status.state != BLINK_STATE_DECODE_COMPLETED) continue;
      released_[slot] = true;
      completed += status.reason == BLINK_REASON_LENGTH && status.count == tokens_;
      if (++n_released_ == c.n_slots) publish(&c.header->control, BLINK_CONTROL_STOP);
      publish(&c.request_words[slot], blink::request_word(1, BLINK_COMMAND_RELEASE, kEpoch));
    }
  }

  void submit(uint32_t slot) {
    blink_descriptor& d = c.descriptors[slot];
    ring.place(slot, d);
    uint32_t* prompt = ring.prompt(slot, d);
    for (uint32_t i = 0; i < kPrompt; ++i) prompt[i] = mix(uint64_t(slot) << 8 | i) % kVocab;
    d.sequence = 1;
    d.epoch = kEpoch;
    d.prompt_tokens = kPrompt;
    d.max_tokens = tokens_;
    d.seed = slot;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    d.ticket = slot;
    d.client = slot;
    d.crc32c = reference_crc(d, prompt);
    publish(&c.request_words[slot], blink::request_word(1, BLINK_COMMAND_SUBMIT, kEpoch));
  }

  const uint32_t tokens_;
  std::vector<bool> released_;
  std::deque<Run> runs_;
  Counts before_{};
  uint64_t began_ = 0;
  uint32_t n_released_ = 0;
  bool submitted_ = false;
};

class Platform : public blink::HostMemoryModel {
 public:
  Platform(blink::Team& team, World& world) : HostMemoryModel(team, 0), world_(world) {}
  uint64_t now() { return world_.clock += kReadNs; }
  int launch(uint64_t, uint32_t, uint32_t set) { return world_.launch(set), 0; }
  int relaunch() { return 0; }
  void pause(bool idle) { world_.back_off(idle); }

 private:
  World& world_;
};

void print(const char* kind, std::vector<Turn> turns, bool last) {
  uint64_t requests = 0, ns = 0;
  for (const Turn& turn : turns) requests += turn.requests, ns += turn.ns;
  std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.ns < b.ns; });
  const auto at = [&](double part) { return (unsigned long long)(turns[size_t(part * double(turns.size() - 1))].ns); };
  std::printf("\"%s\": {\"turns\": %zu, \"requests\": %llu, \"ns\": %llu, \"p50\": %llu, \"p99\": %llu}%s", kind,
              turns.size(), (unsigned long long)requests, (unsigned long long)ns, at(0.5), at(0.99), last ? "" : ", ");
}

}  // namespace

int main(int, char** arguments) {
  World world(uint32_t(std::atoi(arguments[1])), uint32_t(std::atoi(arguments[2])), uint32_t(std::atoi(arguments[3])));
  blink::Team team(1);
  Platform platform(team, world);
  world.begin_turn();
  while (blink::Scheduler<Platform>(platform, world.c).run() == blink::Exit::kRelaunch) continue;
  if (!world.engine.error.empty() || world.completed != world.c.n_slots) {
    std::fprintf(stderr, "%u of %u ended well; %s\n", world.completed, world.c.n_slots, world.engine.error.c_str());
    return 1;
  }
  std::printf("{");
  size_t left = world.turns.size();
  for (const auto& [kind, turns] : world.turns) print(kind, turns, --left == 0);
  std::printf("}\n");
}
