/* The host-driven schedulers with real threads: policy, streams, engine and frontends at the same time, every operation
 * of a stream delayed at random. Run under ThreadSanitizer.
 *
 *   driven DESIGN SECONDS SEED      exits 1 and prints what went wrong
 *
 * Requests come for so many seconds, and where a machine is slow for up to ten times as many, until everything has
 * happened that a run is worth something with; then those that are open have 20 s.
 *
 * Host and device have memory of their own, so whatever is not copied is missing. Two designs are wrong and must not go
 * unnoticed: "reuse" gives two steps in flight one set, "unordered" is async without its events.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>

#include "frontend.h"
#include "kernels/scheduler/driven/emulated_runtime.h"
#include "kernels/scheduler/driven/platform.h"
#include "kernels/scheduler/scheduler.h"

using namespace simulator;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kEnough = 20; /* answers */
constexpr blink::Design kReuse{"reuse", 3, 0, 1, 2, 1}, kUnordered{"unordered", 3, 0, 1, 2, 2};

class UnorderedRuntime : public blink::EmulatedRuntime {
 public:
  using EmulatedRuntime::EmulatedRuntime;
  void wait(unsigned, unsigned) override {}
};

struct Engine {
  SyntheticEngine synthetic;
  static void run(void* self, uint32_t, uint32_t set) {
    const uint64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    static_cast<Engine*>(self)->synthetic.run(set, now, now + 1);
  }
};

void delay() {
  static std::atomic<uint64_t> seeds{1};
  thread_local Random random(seeds++);
  if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 150));
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string name = argv[1];
  const blink::Design* design = blink::find_design(argv[1]);
  for (const blink::Design* wrong : {&kReuse, &kUnordered}) {
    if (name == wrong->name) design = wrong;
  }
  if (!design) return 2;
  const bool is_wrong = design == &kReuse || design == &kUnordered;
  const unsigned seconds = std::atoi(argv[2]);
  Random random(std::atoi(argv[3]));
  const uint64_t arm_margin_ns = name == "blocking" ? 0 : uint64_t(1) << 62;
  Sizes sizes{64, 2, 16, 256, 8, 60, 64, 4, arm_margin_ns};
  sizes.prefix_cache = 0;  // the host does not see the tokens that were sampled
  SimulatedRing host(sizes), device(sizes);
  Engine engine{{device.c.tables, device.c.sets, sizes.total_pages}};
  blink::EmulatedRuntime in_order(Engine::run, &engine, delay);
  UnorderedRuntime unordered(Engine::run, &engine, delay);
  blink::EmulatedRuntime& runtime = design == &kUnordered ? unordered : in_order;
  std::atomic<bool> stopped{false};
  std::thread scheduler([&] {
    blink::Team team(1);
    blink::Pipeline pipeline(runtime, *design, host.c, device.c.tables, device.c.sets);
    const std::atomic<uint64_t> no_work{0};
    blink::DrivenPlatform platform(team, pipeline, runtime, no_work);
    blink::Scheduler<blink::DrivenPlatform>(platform, host.c).run();
    stopped = true;
  });

  std::deque<Frontend> frontends;
  for (uint32_t i = 0; i < 2; ++i) frontends.emplace_back(host, i, random).tearing = false;
  const auto start = std::chrono::steady_clock::now();
  auto now = [&] { return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count(); };
  auto idle = [&] {
    for (const Frontend& f : frontends) {
      if (!f.idle()) return false;
    }
    return true;
  };
  auto finished = [&] {
    uint64_t all = 0;
    for (const Frontend& f : frontends) all += f.answers.finished;
    return all;
  };
  auto has = [](const uint64_t& counter) { return __atomic_load_n(&counter, __ATOMIC_RELAXED) != 0; };
  /* As far as the scheduler has told. A wrong design has run for long enough when somebody has noticed it. */
  auto enough = [&] {
    if (is_wrong) return !runtime.violation().empty() || !frontends[0].error.empty() || !frontends[1].error.empty();
    const blink_stats& told = host.c.header->stats;
    return finished() >= kEnough && has(told.preempted) && (design->step_sets == 1 || has(told.zombie_rows));
  };
  const int64_t least = seconds * kSecond, most = 10 * least;
  int64_t quiet_since = 0;
  while (!stopped && (!quiet_since || (!idle() && now() < quiet_since + 20 * kSecond))) {
    if (!quiet_since && now() >= least && (enough() || now() >= most)) quiet_since = now();
    for (Frontend& f : frontends) {
      f.quiet = quiet_since != 0;
      f.act(now());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const bool all_idle = idle();
  __atomic_store_n(&host.c.header->control, all_idle ? BLINK_CONTROL_DRAIN : BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
  scheduler.join();

  const blink_scheduler_state& s = *host.c.state;
  std::string verdict = runtime.violation();
  auto judge = [&verdict](bool wrong, const std::string& what) {
    if (verdict.empty() && wrong) verdict = what;
  };
  judge(!engine.synthetic.error.empty(), engine.synthetic.error);
  for (const Frontend& f : frontends) judge(!f.error.empty(), f.error);
  judge(s.phase != BLINK_PHASE_STOPPED, "the scheduler failed with fault " + std::to_string(s.fault));
  judge(!all_idle, "no progress: requests are still open");
  judge(blink::PageCounts(host.c).available() != host.c.total_pages, "pages leaked");
  if (!is_wrong) {
    judge(finished() < kEnough, "too little happened");
    judge(s.stats.preempted == 0, "no request was preempted");
    judge(s.stats.zombie_rows == 0 && design->step_sets > 1, "no sequence was a zombie");
  }
  std::printf("steps %llu finished %llu preempted %llu zombies %llu %s\n", (unsigned long long)s.stats.steps,
              (unsigned long long)finished(), (unsigned long long)s.stats.preempted,
              (unsigned long long)s.stats.zombie_rows, verdict.c_str());
  return verdict.empty() ? 0 : 1;
}
