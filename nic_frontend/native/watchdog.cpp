#include "nic_frontend/native/watchdog.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "nic_frontend/native/clock.h"

namespace blink {

namespace {

constexpr uint64_t kTicks = 20;  // looks in the time that is allowed

}  // namespace

Watchdog::Watchdog(uint64_t limit_ns)
    : limit_ns_(limit_ns), loop_thread_(int(syscall(SYS_gettid))), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

// How long the loop's thread has waited for a core so far (proc_pid_schedstat(5)); 0 where the kernel does not tell.
uint64_t Watchdog::queued_ns() const {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", loop_thread_);
  unsigned long long ran = 0, queued = 0;
  if (std::FILE* file = std::fopen(path, "re")) {
    if (std::fscanf(file, "%llu %llu", &ran, &queued) != 2) queued = 0;
    std::fclose(file);
  }
  return queued;
}

// Only time counts in which this thread was awake, and the loop's did not wait for a core: a process that was stopped
// or starved has not hung (F13).
void Watchdog::run() {
  const uint64_t tick_ns = limit_ns_ / kTicks;
  uint64_t seen = 0, awake_ns = 0, last = monotonic_ns(), queued_before = queued_ns();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_.wait_for(lock, std::chrono::nanoseconds(tick_ns), [this] { return ended_; })) {
    const uint64_t now = monotonic_ns(), beats = beats_.load(std::memory_order_relaxed);
    awake_ns += std::min(now - last, tick_ns);
    last = now;
    if (beats != seen) {
      seen = beats;
      awake_ns = 0;
      queued_before = queued_ns();
    }
    if (awake_ns < limit_ns_) continue;
    const uint64_t still_ns = awake_ns - std::min(awake_ns, queued_ns() - queued_before);
    if (still_ns < limit_ns_) continue;
    std::fprintf(stderr, "blink: the event loop has not turned for %.1f s: this frontend ends\n", still_ns / 1e9);
    const rlimit no_core = {0, 0};  // it would hold prompts
    setrlimit(RLIMIT_CORE, &no_core);
    std::abort();  // Python's fault handler then prints where each thread is
  }
}

}  // namespace blink
