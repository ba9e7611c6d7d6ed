#include "nic_frontend/native/watchdog.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nic_frontend/native/clock.h"

namespace blink {

namespace {

constexpr uint64_t kTicks = 20;  // looks in the time that is allowed

}  // namespace

Watchdog::Watchdog(uint64_t limit_ns) : limit_ns_(limit_ns), loop_thread_(int(syscall(SYS_gettid))) {
  has_clock_ = pthread_getcpuclockid(pthread_self(), &loop_clock_) == 0;
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

// What the loop's thread has had of a core so far.
uint64_t Watchdog::ran_ns() const {
  timespec ran = {};
  if (has_clock_) clock_gettime(loop_clock_, &ran);
  return uint64_t(ran.tv_sec) * 1'000'000'000 + uint64_t(ran.tv_nsec);
}

// Whether the loop's thread has a core or waits for one, by its state (proc_pid_stat(5)); else it waits for an event.
bool Watchdog::wants_to_run() const {
  char path[64], line[512] = "";
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", loop_thread_);
  if (std::FILE* file = std::fopen(path, "re")) {
    if (!std::fgets(line, sizeof(line), file)) line[0] = 0;
    std::fclose(file);
  }
  const char* name_end = std::strrchr(line, ')');
  return name_end && std::strncmp(name_end, ") R", 3) == 0;
}

// A process that was stopped or starved has not hung (F13). Where the loop's thread wants to run, that time counts for
// which it did; where it waits for an event, that time for which this thread was awake.
void Watchdog::run() {
  const uint64_t tick_ns = limit_ns_ / kTicks;
  uint64_t seen = 0, still_ns = 0, last = monotonic_ns(), ran_before = ran_ns();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_.wait_for(lock, std::chrono::nanoseconds(tick_ns), [this] { return ended_; })) {
    const uint64_t now = monotonic_ns(), ran = ran_ns(), beats = beats_.load(std::memory_order_relaxed);
    const bool runs = has_clock_ && wants_to_run();
    still_ns = beats != seen ? 0 : still_ns + (runs ? ran - ran_before : std::min(now - last, tick_ns));
    seen = beats;
    last = now;
    ran_before = ran;
    if (still_ns < limit_ns_) continue;
    std::fprintf(stderr, "blink: the event loop has not turned for %.1f s: this frontend ends\n", still_ns / 1e9);
    const rlimit no_core = {0, 0};  // it would hold prompts
    setrlimit(RLIMIT_CORE, &no_core);
    std::abort();  // Python's fault handler then prints where each thread is
  }
}

}  // namespace blink
