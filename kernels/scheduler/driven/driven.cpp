/* C interface of the host-driven schedulers (driven.h): the thread around the policy. */
#include "driven.h"

#include <stdio.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "../scheduler.h"
#include "cuda_runtime.h"
#include "emulated_runtime.h"
#include "platform.h"

struct blink_driven {
  blink_driven(std::unique_ptr<blink::Runtime> runtime, const blink::Design& design,
               const blink_scheduler_config& config, const blink_tables& tables, const blink_step_set* sets)
      : config(config), runtime(std::move(runtime)), design(design), tables(tables) {
    /* With a second set the next step is planned as soon as the one before is launched (D2). */
    this->config.arm_margin_ns = design.step_sets > 1 ? uint64_t(1) << 62 : 0;
    for (uint32_t i = 0; i < BLINK_STEP_SETS; ++i) this->sets[i] = sets[i];
    thread = std::thread([this] { work(); });
  }

  void work() {
    {
      blink::Team team(1);
      blink::Pipeline pipeline(*runtime, design, config, tables, sets);
      blink::DrivenPlatform platform(team, pipeline, *runtime, work_ns);
      while (blink::Scheduler<blink::DrivenPlatform>(platform, config).run() == blink::Exit::kRelaunch) {
      }
    }
    {
      std::lock_guard<std::mutex> lock(mutex);
      cpu_ns = thread_ns(CLOCK_THREAD_CPUTIME_ID);
      stopped = true;
    }
    changed.notify_all();
  }

  static uint64_t thread_ns(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
  }

  blink_scheduler_config config;
  const std::unique_ptr<blink::Runtime> runtime;
  const blink::Design& design;
  const blink_tables tables;
  blink_step_set sets[BLINK_STEP_SETS];
  std::atomic<uint64_t> work_ns{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  uint64_t cpu_ns = 0; /* once stopped: a thread that has ended has no clock */
  std::thread thread;
};

namespace {

blink_driven* fail(const std::string& why, char* error, uint32_t error_bytes) {
  snprintf(error, error_bytes, "%s", why.c_str());
  return nullptr;
}

/* One copy moves a set's inputs and another its outputs (D5): both sides must lie alike. */
bool alike(const blink_step_set& a, const blink_step_set& b) {
  auto offset = [](const blink_step_set& set, const void* member) {
    return static_cast<const char*>(member) - reinterpret_cast<const char*>(set.token_sequence);
  };
  const ptrdiff_t head = offset(a, a.head), out = offset(a, a.out_token), last = offset(a, a.batch_emit);
  return offset(b, b.head) == head && offset(b, b.out_token) == out && offset(b, b.batch_emit) == last && 0 < last &&
         last < head && head < out;
}

blink_driven* start(std::unique_ptr<blink::Runtime> runtime, const char* name, const blink_scheduler_config& config,
                    const blink_tables& tables, const blink_step_set* sets, char* error, uint32_t error_bytes) {
  const blink::Design* design = blink::find_design(name);
  if (!design) return fail(std::string("no host-driven scheduler is called ") + name, error, error_bytes);
  for (uint32_t i = 0; i < BLINK_STEP_SETS; ++i) {
    if (!alike(config.sets[i], sets[i]))
      return fail("the step sets of scheduler and engine are laid out differently", error, error_bytes);
  }
  return new blink_driven(std::move(runtime), *design, config, tables, sets);
}

}  // namespace

extern "C" {

blink_driven* blink_driven_start_emulated(const char* design, const blink_scheduler_config* config,
                                          const blink_tables* tables, const blink_step_set* sets, blink_run_step run,
                                          void* run_context, char* error, uint32_t error_bytes) {
  return start(std::make_unique<blink::EmulatedRuntime>(run, run_context), design, *config, *tables, sets, error,
               error_bytes);
}

blink_driven* blink_driven_start_cuda(const char* design, const blink_scheduler_config* config,
                                      const blink_tables* tables, const blink_step_set* sets, void* cuda_context,
                                      const uint64_t* executables, char* error, uint32_t error_bytes) {
  std::string why;
  const blink::CudaDriver* driver = blink::load_cuda_driver(&why);
  if (!driver) return fail(why, error, error_bytes);
  return start(std::make_unique<blink::CudaRuntime>(*driver, cuda_context, executables, config->n_shapes), design,
               *config, *tables, sets, error, error_bytes);
}

int blink_driven_wait(blink_driven* driven, uint32_t timeout_ms) {
  std::unique_lock<std::mutex> lock(driven->mutex);
  return driven->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return driven->stopped; });
}

uint64_t blink_driven_cpu_ns(blink_driven* driven) {
  std::lock_guard<std::mutex> lock(driven->mutex);
  clockid_t clock;
  if (driven->stopped || pthread_getcpuclockid(driven->thread.native_handle(), &clock)) return driven->cpu_ns;
  return blink_driven::thread_ns(clock);
}

void blink_driven_slow_down(blink_driven* driven, uint64_t work_ns) {
  driven->work_ns.store(work_ns, std::memory_order_relaxed);
}

void blink_driven_destroy(blink_driven* driven) {
  driven->thread.join();
  delete driven;
}
}
