// What the token reader does in each of its cycles, in simulated time: the clock moves only while the reader sleeps,
// by as much as it asked for, and by a microsecond with each of its polls. The scheduler's part is played in the
// poll itself, so that every run is the same. `reader_cycles SCENARIO` exits 1 with a message on a wrong one.
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>

#include "nic_frontend/native/link.h"
#include "tests/nic_frontend/stress_ring.h"

namespace {

constexpr uint32_t kCap = 100;  // records of a cycle
constexpr uint64_t kSpinNs = 20'000, kLeastSleepNs = 50'000, kMostSleepNs = 1'000'000, kPollNs = 1'000;
constexpr blink_reader_options kOptions{0,          kCap,          kSpinNs,      kLeastSleepNs, kMostSleepNs,
                                        25'000'000, 2'000'000'000, 1'000'000'000};
constexpr uint32_t kFlowing = 8;  // slots that get tokens in most scenarios
std::atomic<uint64_t> now_ns{1'000'000'000};

}  // namespace

// In the C library's place: the simulated clock, and a sleep that moves it.
extern "C" int clock_gettime(clockid_t, timespec* time) noexcept {
  *time = {time_t(now_ns / 1'000'000'000), long(now_ns % 1'000'000'000)};
  return 0;
}
extern "C" int pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t* mutex, clockid_t, const timespec* until) {
  pthread_mutex_unlock(mutex);
  const uint64_t end = uint64_t(until->tv_sec) * 1'000'000'000 + uint64_t(until->tv_nsec);
  if (end > now_ns) now_ns = end;
  sched_yield();
  pthread_mutex_lock(mutex);
  return ETIMEDOUT;
}

namespace {

// The ring in memory. `before_gather` and `before_look` run in the reader's thread, before it polls the slots and
// before it reads the words that tell of the scheduler.
struct ScriptedLink final : blink::Link {
  explicit ScriptedLink(uint8_t* region) : memory(blink::make_shared_memory_link(region)) {}

  std::unique_ptr<blink::Link> memory;
  std::function<void()> before_gather, before_look;
  bool reorders = false;     // a bulk read has the status of now, and of the word behind it what was there before
  size_t gathered = 0;       // entries of this bulk read
  uint32_t writes_left = 0;  // times that it has to be called until nothing waits to be written
  uint32_t others = 0;       // reads of anything but what tells of the scheduler and the lease

  bool read(uint64_t offset, uint64_t* to, size_t words) override {
    if (offset == offsetof(blink_header, phase) && before_look) before_look();
    others += offset >= kProgress;
    return memory->read(offset, to, words);
  }
  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) override {
    now_ns += kPollNs;
    gathered = n;
    if (before_gather) before_gather();
    if (!memory->gather(table, entries, n, to)) return false;
    for (size_t i = 0; reorders && i < n; ++i) to[i].prefix = 0;
    return true;
  }
  bool go_on_writing() override { return writes_left > 0 && --writes_left > 0; }
  void write(const blink::Piece& piece) override { memory->write(piece); }
  void publish(uint64_t offset, uint64_t value) override { memory->publish(offset, value); }
};

// A reader over a ring, the scheduler's hand in the ring, and what the reader has delivered.
struct Bench {
  uint8_t* const region = make_region();
  ScriptedLink* const link = new ScriptedLink(region);
  blink_link handle{std::unique_ptr<blink::Link>(link)};
  blink_reader* const reader = blink_reader_create(&handle, &kOptions);
  std::atomic<bool> done{false};
  uint32_t counts[kSlots] = {};
  uint32_t n_tokens = 0, n_finished = 0;  // delivered
  std::vector<blink_event> events;        // of the last drain

  void phase(uint64_t value) { __atomic_store_n(word(region, offsetof(blink_header, phase)), value, __ATOMIC_RELEASE); }

  void produce(uint32_t slot, uint32_t n, uint32_t state = BLINK_STATE_DECODE_PROCESSING) {
    uint32_t& count = counts[slot];
    blink_descriptor placed;
    place(placed, slot);
    for (uint32_t i = 0; i < n; ++i, ++count) {
      const uint64_t record = blink::output_record(count, count, 1);
      *word(region, kOutputs + (placed.output_offset + count) * 8) = record;
      *word(region, kProgress + slot * 64 + 16 + count % BLINK_INLINE_RECORDS * 8) = record;
    }
    const uint32_t reason = state == BLINK_STATE_DECODE_COMPLETED ? BLINK_REASON_LENGTH : 0;
    __atomic_store_n(word(region, kProgress + slot * 64), blink::status_word({1, state, reason, count}),
                     __ATOMIC_RELEASE);
  }

  // The tokens that the reader delivered since the last time.
  uint32_t drain() {
    events.resize(256);
    uint32_t tokens[4 * BLINK_EVENT_TOKENS_MAX], n = 0;
    events.resize(blink_reader_drain(reader, events.data(), 256, tokens, 4 * BLINK_EVENT_TOKENS_MAX));
    for (const blink_event& event : events) {
      n += event.n_tokens;
      n_finished += event.kind == BLINK_EVENT_FINISHED;
    }
    n_tokens += n;
    return n;
  }

  void submit(const std::vector<uint32_t>& slots) {
    std::vector<blink_descriptor> descriptors(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      descriptors[i].prompt_tokens = 1;
      place(descriptors[i], slots[i]);
    }
    const std::vector<uint32_t> prompts(slots.size());
    blink_reader_submit(reader, uint32_t(slots.size()), slots.data(), descriptors.data(), prompts.data());
  }

  // Opens `slots`, and runs `poll` before each poll until it sets `done`.
  void run(const std::vector<uint32_t>& slots, std::function<void()> poll) {
    phase(BLINK_PHASE_SERVING);
    if (blink_reader_open(reader, 1, 0)) fail("the reader does not open", 0, 0);
    link->before_gather = [this, polls = 0, poll]() mutable {
      if (done) return;  // the reader polls on until the main thread has a core to destroy it
      if (++polls == 100'000) fail("the scenario does not end", 0, n_tokens);
      poll();
    };
    submit(slots);
    while (!done) usleep(1000);
    blink_reader_destroy(reader);
  }
};

std::vector<uint32_t> first_slots(uint32_t n) {
  std::vector<uint32_t> slots(n);
  for (uint32_t i = 0; i < n; ++i) slots[i] = i;
  return slots;
}

// A cycle takes no more than the cap, and what it leaves comes in the next ones.
void cap() {
  Bench bench;
  uint32_t cycle = 0;
  bench.run(first_slots(kFlowing), [&] {
    const uint32_t n = bench.drain();
    if (n > kCap) fail("a cycle took more records than it may", 0, n);
    for (uint32_t slot = 0; cycle < 2 && slot < kFlowing; ++slot) bench.produce(slot, cycle ? kOutput - 1 : 1);
    bench.done = bench.n_tokens == kFlowing * kOutput;
    if (++cycle > 2 + 2 * kFlowing * kOutput / kCap) fail("a cycle took too little", 0, bench.n_tokens);
  });
}

// A first token is delivered first, and in the cycle that finds it, though others have more than a cycle may take.
void urgent() {
  Bench bench;
  uint32_t cycle = 0;
  bench.run(first_slots(kFlowing + 1), [&] {
    bench.drain();
    if (cycle == 2 && (bench.events.empty() || bench.events[0].slot != kFlowing))
      fail("a first token waited for others' later ones", kFlowing, 1);
    for (uint32_t slot = 0; cycle < 2 && slot < kFlowing; ++slot) bench.produce(slot, cycle ? kOutput - 1 : 1);
    if (cycle == 1) bench.produce(kFlowing, 1);
    bench.done = ++cycle == 3;
  });
}

// That the scheduler has stopped is told only after everything that it had published before was delivered.
void stopped() {
  Bench bench;
  bool flowing = false;
  bench.link->before_look = [&] {
    if (!flowing || bench.counts[0] == kOutput) return;
    for (uint32_t slot = 0; slot < kFlowing; ++slot) bench.produce(slot, kOutput - 1, BLINK_STATE_DECODE_COMPLETED);
    bench.phase(BLINK_PHASE_STOPPED);
  };
  bench.run(first_slots(kFlowing), [&] {
    for (uint32_t slot = 0; !flowing && slot < kFlowing; ++slot) bench.produce(slot, 1);
    flowing = true;
    blink_health health;
    blink_reader_health(bench.reader, &health);
    bench.drain();
    if (health.phase != BLINK_PHASE_STOPPED) return;
    if (bench.n_finished != kFlowing) fail("stopped, it says, before the last tokens", 0, bench.n_tokens);
    bench.done = true;
  });
}

// Likewise of a request that was submitted, answered and completed between two cycles.
void last_submission() {
  Bench bench;
  bool opened = false;
  bench.link->before_look = [&] {
    if (!opened || bench.counts[1]) return;
    bench.submit({1});
    bench.produce(1, 1, BLINK_STATE_DECODE_COMPLETED);
    bench.phase(BLINK_PHASE_STOPPED);
  };
  bench.run({0}, [&] {
    opened = true;
    blink_health health;
    blink_reader_health(bench.reader, &health);
    bench.drain();
    if (health.phase != BLINK_PHASE_STOPPED) return;
    if (bench.n_finished != 1) fail("stopped, it says, before the last request was answered", 1, bench.n_finished);
    bench.done = true;
  });
}

// Where there is more in every cycle than one may take, all slots have their turn; also where other slots get their
// first tokens meanwhile.
void rotation() {
  constexpr uint32_t kSteady = 40, kCycles = 20, kEach = 3, kLongestWait = 8;
  for (const uint32_t others : {0u, kCycles}) {
    Bench bench;
    uint32_t cycle = 0;
    std::vector<uint32_t> served(kSteady);  // the last cycle in which it was
    bench.run(first_slots(kSteady + others), [&] {
      bench.drain();
      for (const blink_event& event : bench.events)
        if (event.slot < kSteady) served[event.slot] = cycle;
      for (uint32_t slot = 0; slot < kSteady; ++slot) {
        if (cycle > served[slot] + kLongestWait) fail("it has had no turn for too long", slot, cycle - served[slot]);
        bench.produce(slot, cycle ? kEach : 1);
      }
      if (others) bench.produce(kSteady + cycle, 1);
      bench.done = ++cycle == kCycles;
    });
  }
}

// Tokens that follow one another within a burst are found at once.
void burst() {
  constexpr uint64_t kGapNs = kSpinNs / 2;
  Bench bench;
  uint64_t due = 0;
  bench.run({0}, [&] {
    if (now_ns < due) return;
    if (due && now_ns - due > 2 * kPollNs) fail("a token of a burst was found late", 0, uint32_t(now_ns - due));
    bench.produce(0, 1);
    due = now_ns + kGapNs;
    bench.done = bench.counts[0] == kOutput;
  });
}

// A poll is one bulk read of all open slots, and that is all, where the records stand in their progress entries.
void reads() {
  Bench bench;
  bench.run(first_slots(kFlowing), [&] {
    if (bench.link->gathered != kFlowing) fail("a poll has not read all slots at once", 0, bench.link->gathered);
    for (uint32_t slot = 0; slot < kFlowing; ++slot) {
      *word(bench.region, kProgress + slot * 64 + 8) = blink::pair_word(1, 48);
      bench.produce(slot, 1);
    }
    if (bench.link->others) fail("a poll has read more than the slots' progress", 0, bench.link->others);
    bench.done = bench.counts[0] == kOutput;
  });
}

// Steps of a stream, the length of which a scenario changes; one slot after the other gets the tokens.
struct Steps {
  explicit Steps(Bench& bench) : bench(bench) {}

  Bench& bench;
  uint64_t due = 0, late = 0;  // of the last step
  uint32_t n = 0, polls = 0;   // in the step that has just ended, without those that a burst's end costs
  uint64_t last = 0;

  // Before each poll. True when a step ended now; the next one then ends after `ns`.
  bool ended(uint64_t ns) {
    for (uint32_t slot = 0; n == 0 && slot < kFlowing; ++slot) bench.produce(slot, 1);
    counted_ += now_ns > last + kSpinNs + 2 * kPollNs;
    if (now_ns < due) return false;
    late = due ? now_ns - due : 0;
    polls = counted_;
    counted_ = 0;
    if (n) bench.produce(n / (kOutput - 1), 1);
    last = now_ns;
    due = (due ? due : now_ns.load()) + ns;
    return ++n;
  }

 private:
  uint32_t counted_ = 0;
};

// Regular steps: each is found soon after it was published, with few polls.
void steps() {
  constexpr uint64_t kStepNs = 4'000'000;
  Bench bench;
  const uint32_t learned = 30;  // steps, after which the reader knows how long they are
  uint64_t due = 0, polls = 0;
  bench.run({0}, [&] {
    if (due == 0) due = now_ns + kStepNs;
    polls += bench.counts[0] >= learned;
    if (now_ns < due) return;
    if (bench.counts[0] >= learned && now_ns - due > kStepNs / 40)
      fail("a step was found late", 0, uint32_t(now_ns - due));
    bench.produce(0, 1);
    due += kStepNs;
    bench.done = bench.counts[0] == kOutput;
  });
  if (polls > 30 * (kOutput - learned)) fail("too many polls", 0, uint32_t(polls / (kOutput - learned)));
}

// The reader follows shorter steps at once, and a longer one between them makes it late for none; where all get longer,
// it polls no more often than before.
void period() {
  constexpr uint64_t kLongNs = 900'000, kShortNs = 300'000, kLateNs = 200'000;
  Bench bench;
  Steps steps(bench);
  bench.run(first_slots(kFlowing), [&] {
    const uint32_t n = steps.n;
    const bool shortened = n >= 60 && n < 120, mixed = n >= 120 && n < 180;
    if (!steps.ended(shortened || (mixed && n % 20) ? kShortNs : kLongNs)) return;
    if (n >= 110 && n < 180 && steps.late > kLateNs) fail("a step was found late", 0, uint32_t(steps.late));
    if (n >= 220 && steps.polls > 6) fail("too many polls", 0, steps.polls);
    bench.done = n == 240;
  });
}

// A first token is found soon beside a stream that has long steps: after its request was submitted, and after it was
// admitted. A request that waits long to be admitted costs few polls.
void waiting() {
  constexpr uint64_t kStepNs = 900'000, kFirstNs = 400'000, kLateNs = kFirstNs / 8 + kLeastSleepNs + 2 * kPollNs;
  const uint32_t prompt = kFlowing, patient = kFlowing + 1;
  Bench bench;
  Steps steps(bench);
  uint64_t first = 0;  // when the first token that is expected comes
  bench.run(first_slots(kFlowing), [&] {
    const uint32_t n = steps.n;
    const auto arrives = [&](uint32_t slot) {
      if (now_ns < first) return;
      if (now_ns - first > kLateNs) fail("a first token was found late", slot, uint32_t(now_ns - first));
      bench.produce(slot, 1);
      first = 0;
    };
    if (first) arrives(n < 60 ? prompt : patient);
    if (!steps.ended(kStepNs)) return;
    if (n == 50) bench.submit({prompt});
    if (n == 60) bench.submit({patient});
    if (n == 240) bench.produce(patient, 0, BLINK_STATE_PREFILL_PROCESSING);
    if (n == 50 || n == 240) first = now_ns + kFirstNs;
    if (n > 100 && n < 240 && steps.polls > 6) fail("too many polls", patient, steps.polls);
    bench.done = n == 244;
  });
}

// What has no due time: polled more and more seldom, so that it is found late by an eighth of the time it took at
// most, or by the longest sleep.
void silence() {
  for (const uint64_t silent : {100'000, 2'000'000, 500'000'000}) {
    Bench bench;
    uint64_t due = 0, polls = 0;
    bench.run({0}, [&] {
      if (due == 0) due = now_ns + silent;
      ++polls;
      if (now_ns < due) return;
      const uint64_t late = now_ns - due;
      if (late > std::min(silent / 8 + kLeastSleepNs, kMostSleepNs) + 2 * kPollNs)
        fail("a first token was found late", 0, uint32_t(late));
      bench.produce(0, 1);
      bench.done = true;
    });
    if (polls > 100 + silent / kMostSleepNs) fail("too many polls", 0, uint32_t(polls));
  }
}

// What waits to be written goes out as fast as the link takes it, however long the slots are silent: the lease's beat
// waits behind it (V9). Afterwards the reader sleeps as long as it did.
void backlog() {
  Bench bench;
  constexpr uint32_t kWrites = 1000;
  uint64_t begun = 0, polls = 0;
  bench.run({0}, [&] {
    if (++polls < 100) return;  // by then, it sleeps for long
    if (begun == 0) {
      begun = now_ns;
      bench.link->writes_left = kWrites;
    } else if (bench.link->writes_left == 0) {
      if (now_ns - begun > kWrites * (kLeastSleepNs + 2 * kPollNs)) fail("writes waited", 0, uint32_t(now_ns - begun));
      bench.produce(0, 1);
      bench.done = true;
    }
  });
}

// The number of cached tokens comes with the first tokens, though the bulk read that has these does not have it. A
// number that stands there for another request is none of this one's.
void cached() {
  for (const uint32_t sequence : {1u, 7u}) {
    Bench bench;
    bench.link->reorders = true;
    uint32_t n_events = 0;
    bench.run({0, 1}, [&] {
      bench.drain();
      for (const blink_event& event : bench.events) {
        const uint32_t expected = event.slot == 0 && sequence == 1 && n_events++ == 0 ? 48 : 0;
        if (event.cached_tokens != expected) fail("a wrong number of cached tokens", event.slot, event.cached_tokens);
      }
      *word(bench.region, kProgress + 8) = blink::pair_word(sequence, 48);
      for (uint32_t slot : {0, 1}) bench.produce(slot, bench.counts[slot] < kOutput);
      bench.done = bench.n_tokens == 2 * kOutput;
    });
  }
}

}  // namespace

int main(int, char** arguments) {
  const std::map<std::string, void (*)()> scenarios{
      {"cap", cap},           {"urgent", urgent},   {"stopped", stopped}, {"last_submission", last_submission},
      {"rotation", rotation}, {"burst", burst},     {"reads", reads},     {"steps", steps},
      {"period", period},     {"waiting", waiting}, {"silence", silence}, {"cached", cached},
      {"backlog", backlog}};
  scenarios.at(arguments[1])();
  return 0;
}
