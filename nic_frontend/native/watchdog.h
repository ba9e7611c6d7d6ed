// Ends the process when a loop that should beat has stood still for too long, although it could have run.
#ifndef BLINK_FRONTEND_WATCHDOG_H
#define BLINK_FRONTEND_WATCHDOG_H

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
  uint64_t queued_ns() const;

  const uint64_t limit_ns_;
  const int loop_thread_;
  std::atomic<uint64_t> beats_{0};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace blink

#endif  // BLINK_FRONTEND_WATCHDOG_H
