#include "nic_frontend/native/watchdog.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "nic_frontend/native/clock.h"

namespace blink {

namespace {

constexpr uint64_t kTicks = 20;  // looks in the time that is allowed

}  // namespace

Watchdog::Watchdog(uint64_t limit_ns) : limit_ns_(limit_ns), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

// Only time in which this thread was awake counts: a process that was stopped or starved has not hung (F13).
void Watchdog::run() {
  const uint64_t tick_ns = limit_ns_ / kTicks;
  uint64_t seen = 0, still_ns = 0, last = monotonic_ns();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_.wait_for(lock, std::chrono::nanoseconds(tick_ns), [this] { return ended_; })) {
    const uint64_t now = monotonic_ns(), beats = beats_.load(std::memory_order_relaxed);
    still_ns = beats == seen ? still_ns + std::min(now - last, tick_ns) : 0;
    seen = beats;
    last = now;
    if (still_ns < limit_ns_) continue;
    std::fprintf(stderr, "blink: the event loop has not turned for %.1f s: this frontend ends\n", still_ns / 1e9);
    const rlimit no_core = {0, 0};  // it would hold prompts
    setrlimit(RLIMIT_CORE, &no_core);
    std::abort();  // Python's fault handler then prints where each thread is
  }
}

}  // namespace blink
