/* The scheduler in virtual time beside a script: frontends that break the protocol and machines that break down, each
 * at a moment that is chosen.
 *
 * A script reads from top to bottom. It has a thread of its own, of which the scheduler's runs on only while the script
 * waits in `until`: one of the two runs at a time.
 */
#pragma once
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/scheduler.h"
#include "simulated_ring.h"
#include "ringbuffer/words.h"

namespace simulator {

class ScriptedSimulation {
 public:
  struct Run {
    uint32_t set;
    uint64_t start, done;
  };
  static constexpr uint32_t kEpoch = 1;  // that `attach` asks for, and that is written where no other is given
  struct Over {};                        // thrown in the scheduler's pause when the script has ended

  explicit ScriptedSimulation(const Sizes& sizes)
      : ring(sizes),
        c(ring.c),
        engine(c.tables, c.sets, sizes.total_pages, sizes.host_pages),
        beats_(sizes.n_leases, 1) {}

  SimulatedRing ring;
  blink_scheduler_config& c;
  SyntheticEngine engine;
  std::deque<Run> runs;  // the front one runs
  uint64_t clock = 1'000'000, step_ns = 20'000;
  uint64_t loads = 0;       // of words of the ring's payloads
  uint64_t most_loads = 0;  // ... in one turn of the scheduler's loop
  bool hangs = false;       // steps do not complete any more
  bool silent = false;      // the frontends stand still: leases do not beat any more
  bool gate_fails = false;
  int refusal = 0, relaunch_refusal = 0;             // what the runtime answers
  std::function<void()> between_executions = [] {};  // called when the scheduler relaunches itself
  uint64_t argument = 0;                             // the script's

  // ---- the script's side
  // Waits until the condition holds. False: it did not within `limit_ns`, or the scheduler has ended before.
  bool until(std::function<bool()> condition, uint64_t limit_ns = 60'000'000'000ull) {
    condition_ = std::move(condition);
    limit_ = clock + limit_ns;
    hand_over(false);
    return condition_();
  }
  void pass(uint64_t ns) {
    until([] { return false; }, ns);
  }
  // Turns the clock back. Whatever is under way takes as long as it would have.
  void turn_back(uint64_t ns) {
    clock -= ns, last_beat_ -= ns, limit_ -= ns;
    for (Run& run : runs) run.start -= ns, run.done -= ns;
  }
  void attach() {
    for (uint32_t i = 0; i < c.n_leases; ++i) ask(i, kEpoch);
    until([&] { return granted(c.n_leases - 1, kEpoch); });
  }
  // Another frontend holds the lease from now on.
  void take_over(uint32_t lease, uint32_t epoch) {
    ask(lease, epoch);
    expect(until([&] { return granted(lease, epoch); }), "R6: no lease is granted");
  }
  blink_descriptor descriptor(uint32_t sequence, uint32_t max_tokens) const {
    blink_descriptor d{};
    d.sequence = sequence;
    d.epoch = kEpoch;
    d.max_tokens = max_tokens;
    d.top_p = d.repetition_penalty = 1;
    d.flags = BLINK_FLAG_IGNORE_EOS;
    return d;
  }
  void write(uint32_t slot, blink_descriptor d, const std::vector<uint32_t>& prompt, bool torn = false) {
    d.prompt_tokens = prompt.size();
    d.seed = slot;
    if (!d.prompt_room) ring.place(slot, d);
    std::copy(prompt.begin(), prompt.end(), ring.prompt(slot, d));
    d.crc32c = reference_crc(d, prompt.data()) ^ torn;
    c.descriptors[slot] = d;
  }
  void request(uint32_t slot, uint32_t sequence, uint32_t command, uint32_t epoch = kEpoch) {
    publish(&c.request_words[slot], blink::request_word(sequence, command, epoch));
  }
  void submit(uint32_t slot, const std::vector<uint32_t>& prompt, uint32_t max_tokens, bool torn = false,
              uint32_t client = 0) {
    blink_descriptor d = descriptor(1, max_tokens);
    d.ticket = ++tickets_;
    d.client = client;
    write(slot, d, prompt, torn);
    request(slot, 1, BLINK_COMMAND_SUBMIT);
  }
  blink::Status status(uint32_t slot) const { return blink::unpack_status(c.progress[slot].status); }
  bool completed(uint32_t slot) const { return status(slot).state == BLINK_STATE_DECODE_COMPLETED; }
  uint64_t* outputs(uint32_t slot) { return ring.outputs(slot, c.descriptors[slot]); }
  void control(uint64_t word) { publish(&c.header->control, word); }
  void expect(bool holds, const std::string& what) {
    if (!holds && failure.empty()) failure = what;
  }
  std::string failure;
  std::function<void()> meanwhile = [] {};                 // called in every pause
  std::function<void(uint32_t)> at = [](auto) {};          // called when a scan comes to the slot
  std::function<void(const void*)> touched = [](auto) {};  // called with each word that is loaded or stored
  bool ended = false;                                      // the scheduler's run is over

  // Plays the script. "" or what went wrong.
  std::string play(void (*script)(ScriptedSimulation&));

  // ---- the platform's side
  void turn() {
    most_loads = std::max(most_loads, loads - turns_loads_);
    turns_loads_ = loads;
  }
  int launch(uint32_t set) {
    if (refusal) return refusal;
    const uint64_t start = runs.empty() ? clock : std::max(clock, runs.back().done);
    runs.push_back({set, start, start + step_ns});
    return 0;
  }
  void pause() {
    clock += 500;
    while (!hangs && !runs.empty() && runs.front().done <= clock) {
      c.sets[runs.front().set].head->fault = gate_fails;
      engine.run(runs.front().set, runs.front().start, runs.front().done);
      runs.pop_front();
    }
    beat();
    meanwhile();
    if (clock >= limit_ || condition_()) hand_over(true);
  }

 private:
  static void publish(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

  void ask(uint32_t lease, uint32_t epoch) { publish(&c.leases[lease].word, blink::pair_word(epoch, ++beats_[lease])); }
  bool granted(uint32_t lease, uint32_t epoch) const {
    return c.lease_acks[lease].word == blink::pair_word(epoch, BLINK_LEASE_GRANTED);
  }
  void beat() {
    if (silent || clock - last_beat_ < BLINK_LEASE_BEAT_NS / 2) return;
    last_beat_ = clock;
    for (uint32_t i = 0; i < c.n_leases; ++i) {
      if (const uint32_t epoch = blink::low(c.leases[i].word)) ask(i, epoch);
    }
  }

  // Lets the other side run until it hands over again.
  void hand_over(bool to_script) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!ended) {
      scripts_turn_ = to_script;
      changed_.notify_all();
      changed_.wait(lock, [&] { return scripts_turn_ != to_script || (!to_script && ended); });
    }
    if (to_script && over_) throw Over();
  }

  std::vector<uint32_t> beats_;
  uint32_t tickets_ = 0;
  uint64_t last_beat_ = 0, limit_ = 0, turns_loads_ = 0;
  std::function<bool()> condition_ = [] { return true; };  // the script begins in the first pause
  std::mutex mutex_;
  std::condition_variable changed_;
  bool scripts_turn_ = false, over_ = false;
};

class ScriptedPlatform : public blink::HostMemoryModel {
 public:
  ScriptedPlatform(blink::Team& team, ScriptedSimulation& simulation)
      : HostMemoryModel(team, 0), simulation_(simulation) {}
  uint64_t now() { return simulation_.clock += 20; }
  template <class T>
  T load(const T* p) const {
    ++simulation_.loads;
    simulation_.touched(p);
    return HostMemoryModel::load(p);
  }
  template <class T>
  void store(T* p, T v) {
    simulation_.touched(p);
    HostMemoryModel::store(p, v);
  }
  uint64_t acquire(const uint64_t* p) const {
    if (p == simulation_.c.tables.completed) simulation_.turn();  // each turn of the loop begins with it
    return HostMemoryModel::acquire(p);
  }
  void release(uint64_t* p, uint64_t v) {
    simulation_.touched(p);
    HostMemoryModel::release(p, v);
  }
  blink::Pair load_pair(const uint64_t* p) const {
    simulation_.at(p - simulation_.c.request_words);
    return HostMemoryModel::load_pair(p);
  }
  int launch(uint64_t, uint32_t, uint32_t set) { return simulation_.launch(set); }
  int relaunch() {
    simulation_.between_executions();
    return simulation_.relaunch_refusal;
  }
  void pause(bool) { simulation_.pause(); }

 private:
  ScriptedSimulation& simulation_;
};

inline std::string ScriptedSimulation::play(void (*script)(ScriptedSimulation&)) {
  std::thread thread([&] {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return scripts_turn_; });
    }
    script(*this);
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    scripts_turn_ = false;
    changed_.notify_all();
  });
  blink::Team team(1);
  ScriptedPlatform platform(team, *this);
  try {
    while (blink::Scheduler<ScriptedPlatform>(platform, c).run() == blink::Exit::kRelaunch) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    ended = true;
    changed_.notify_all();
  } catch (Over) {
  }
  thread.join();
  return !failure.empty() ? failure : engine.error;
}

struct Script {
  const char* name;
  void (*play)(ScriptedSimulation&);
  Sizes sizes;
};

// The main of a program of scripts: NAME [ARGUMENT]. Exits 1 and prints what went wrong.
template <size_t N>
int play_one(const Script (&scripts)[N], int argc, char** argv) {
  for (const Script& script : scripts) {
    if (argc < 2 || std::string(argv[1]) != script.name) continue;
    ScriptedSimulation w(script.sizes);
    if (argc > 2) w.argument = std::strtoull(argv[2], nullptr, 10);
    const std::string failure = w.play(script.play);
    if (!failure.empty()) std::printf("%s\n", failure.c_str());
    return failure.empty() ? 0 : 1;
  }
  return 2;
}

}  // namespace simulator
