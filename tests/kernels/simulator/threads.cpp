/* The scheduler's emulation with real threads: policy, engine and frontends at the same time. Run under
 * ThreadSanitizer.
 *
 *   threads POLICY_THREADS SECONDS SEED      exits 1 and prints what went wrong
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>

#include "follower.h"
#include "frontend.h"
#include "kernels/scheduler/emulation.h"
#include "kernels/scheduler/pages.h"

using namespace simulator;

struct Engine {
  SyntheticEngine synthetic;
  static void run(void* self, uint32_t, uint32_t set) {
    const uint64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    static_cast<Engine*>(self)->synthetic.run(set, now, now + 1);
  }
};

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kEnough = 100; /* answers, and records of KV events */

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const unsigned policy_threads = std::atoi(argv[1]), seconds = std::atoi(argv[2]);
  Random random(std::atoi(argv[3]));
  Sizes sizes{64, 2, 16, 256, 8, 100, 64, 4, 2000};
  const bool tells = policy_threads > 1;  // the log of KV events is told, or pages go to host memory
  sizes.host_pages = tells ? 0 : 60;
  sizes.copied_pages = 4;
  sizes.grammar_words = 600;
  sizes.priorities = 3;
  sizes.max_drafts = 5;
  sizes.verify_rows = 40;
  sizes.suffix = std::atoi(argv[3]) % 2;
  if (!sizes.suffix) sizes.max_mixed_tokens = 24, sizes.mixed_share = 4;  // many prompts are very long (S15)
  sizes.kv_event_capacity = tells ? 32 : 0;
  SimulatedRing ring(sizes);
  Engine engine{{ring.c.tables, ring.c.sets, ring.sizes.total_pages, ring.sizes.host_pages}};
  blink_emulation* emulation = blink_emulation_start(&ring.c, Engine::run, &engine, policy_threads);

  std::deque<Frontend> frontends;
  for (uint32_t i = 0; i < 2; ++i) frontends.emplace_back(ring, i, random).tearing = false;
  Follower follower(ring, random);
  const auto start = std::chrono::steady_clock::now();
  auto now = [&] { return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count(); };
  auto idle = [&] {
    for (const Frontend& f : frontends) {
      if (!f.idle()) return false;
    }
    return true;
  };
  const auto finished = [&] {
    uint64_t all = 0;
    for (const Frontend& f : frontends) all += f.answers.finished;
    return all;
  };
  /* As far as the scheduler has told. */
  const blink_stats& told = ring.c.header->stats;
  const auto has = [](const uint64_t& counter) { return __atomic_load_n(&counter, __ATOMIC_RELAXED) != 0; };
  /* Requests come for so many seconds, and where a machine is slow for up to ten times as many, until enough answers
   * have ended for everything to have happened. Then those that are open have 20 s. */
  const int64_t least = seconds * kSecond, most = 10 * least;
  int64_t quiet_since = 0;
  while (!quiet_since || (!idle() && now() < quiet_since + 20 * kSecond)) {
    const bool enough = finished() >= kEnough && (!tells || follower.records >= kEnough) && has(told.relaunches) &&
                        has(told.accepted_tokens);
    if (!quiet_since && now() >= (enough ? least : most)) quiet_since = now();
    for (Frontend& f : frontends) {
      f.quiet = quiet_since != 0;
      f.act(now());
    }
    follower.act(now());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const bool all_idle = idle();
  __atomic_store_n(&ring.c.header->control, all_idle ? BLINK_CONTROL_DRAIN : BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
  const bool stopped = blink_emulation_wait(emulation, 60'000);
  std::string verdict = blink_emulation_violation(emulation);
  if (stopped) blink_emulation_destroy(emulation);
  if (!stopped) verdict = "the scheduler did not stop";
  if (!all_idle) verdict = "no progress: requests are still open";
  if (!engine.synthetic.error.empty()) verdict = engine.synthetic.error;
  for (const Frontend& f : frontends)
    if (!f.error.empty()) verdict = f.error;
  if (!follower.error.empty()) verdict = follower.error;
  const blink_scheduler_state& s = *ring.c.state;
  if (verdict.empty() && blink::PageCounts(ring.c).available() != ring.c.total_pages) verdict = "pages leaked";
  if (verdict.empty() && (finished() < 20 || s.stats.relaunches == 0 || s.stats.accepted_tokens == 0 ||
                          (tells ? follower.records < 20 : s.host_copies == 0)))
    verdict = "too little happened";
  std::printf("steps %llu finished %llu relaunches %llu preempted %llu %s\n", (unsigned long long)s.stats.steps,
              (unsigned long long)finished(), (unsigned long long)s.stats.relaunches,
              (unsigned long long)s.stats.preempted, verdict.c_str());
  if (!stopped) std::_Exit(1);
  return verdict.empty() ? 0 : 1;
}
