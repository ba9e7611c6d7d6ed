// Ends the process when a loop that should beat has stood still for too long, although it could have run.
#ifndef BLINK_FRONTEND_WATCHDOG_H
#define BLINK_FRONTEND_WATCHDOG_H

#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace blink {

class Watchdog {
 public:
  explicit Watchdog(uint64_t limit_ns);  // called by the loop's thread
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void run();
  uint64_t ran_ns() const;
  bool wants_to_run() const;

  const uint64_t limit_ns_;
  const int loop_thread_;
  clockid_t loop_clock_ = 0;  // of the processor time that the loop's thread has had
  bool has_clock_ = false;
  std::atomic<uint64_t> beats_{0};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace blink

#endif  // BLINK_FRONTEND_WATCHDOG_H
