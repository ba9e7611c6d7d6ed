/* C interface of the emulation (emulation.h): the loop that the device runtime is on the GPU. */
#include "emulation.h"

#include <sys/prctl.h>

#include <atomic>

#include "host.h"
#include "scheduler.h"

struct blink_emulation {
  blink_emulation(const blink_scheduler_config& config, blink_run_step run, void* context, uint32_t n_threads)
      : config(config), launcher(run, context, config.tables.completed), team(n_threads) {
    for (unsigned i = 0; i < n_threads; ++i) threads.emplace_back([this, i] { work(i); });
  }

  void work(unsigned thread) {
    prctl(PR_SET_NAME, "scheduler");
    blink::HostPlatform platform(team, thread, launcher);
    for (;;) {
      const blink::Exit exit = blink::Scheduler<blink::HostPlatform>(platform, config).run();
      if (exit == blink::Exit::kStopped) break;
      team.sync();
      if (thread == 0) launcher.begin_execution();
      team.sync();
    }
    if (thread != 0) return;
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopped = true;
    }
    changed.notify_all();
  }

  const blink_scheduler_config config;
  blink::Launcher launcher;
  blink::Team team;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::string violation;
  std::vector<std::thread> threads;
};

extern "C" {

blink_emulation* blink_emulation_start(const blink_scheduler_config* config, blink_run_step run, void* context,
                                       uint32_t n_threads) {
  return new blink_emulation(*config, run, context, n_threads);
}

int blink_emulation_wait(blink_emulation* emulation, uint32_t timeout_ms) {
  std::unique_lock<std::mutex> lock(emulation->mutex);
  return emulation->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return emulation->stopped; });
}

const char* blink_emulation_violation(const blink_emulation* emulation) {
  auto* mutable_emulation = const_cast<blink_emulation*>(emulation);
  mutable_emulation->violation = emulation->launcher.violation();
  return mutable_emulation->violation.c_str();
}

void blink_emulation_destroy(blink_emulation* emulation) {
  for (std::thread& thread : emulation->threads) thread.join();
  delete emulation;
}
}
