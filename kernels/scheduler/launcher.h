/* A stand-in for the device runtime's graph launches, with its rules (CUDA guide 4.2.6; measured on an H200):
 *   K1. One execution of a graph makes at most 120 fire-and-forget launches.
 *   K2. An executable cannot be launched again before its last run has retired: the launch is refused, and may be
 *       tried again.
 *   K3. A graph tail-launches itself at most once in an execution.
 *   K4. A tail launch starts when everything that was launched has finished. Ours is made only with nothing in flight
 *       (S8).
 * Breaking K1, K3 or K4 is recorded as a violation: on the device it would be an error, or a stall, that the policy
 * must never cause.
 */
#ifndef BLINK_SCHEDULER_LAUNCHER_H
#define BLINK_SCHEDULER_LAUNCHER_H

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "emulation.h"

namespace blink {

class Launcher {
 public:
  static constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

  Launcher(blink_run_step run, void* context, const uint64_t* completed)
      : run_(run), context_(context), completed_(completed), thread_([this] { work(); }) {}

  ~Launcher() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int launch(uint32_t shape, uint32_t set) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (launches_ == BLINK_LAUNCH_WINDOW) {
      violate("K1: more than 120 launches in one execution");
      return kInvalidValue;
    }
    const auto executable = std::make_pair(shape, set);
    for (const auto& pending : pending_) {
      if (pending == executable) return kInvalidValue;  // K2
    }
    ++launches_;
    ++launched_;
    pending_.push_back(executable);
    changed_.notify_all();
    return 0;
  }

  int relaunch() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tail_) {
      violate("K3: a second tail launch of itself");
      return kInvalidValue;
    }
    if (__atomic_load_n(completed_, __ATOMIC_ACQUIRE) < launched_) violate("K4: tail launch with a step in flight");
    tail_ = true;
    return 0;
  }

  // The scheduler kernel returned and had tail-launched itself: its next execution may begin.
  void begin_execution() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return pending_.empty(); });
    launches_ = 0;
    tail_ = false;
  }

  // Sleeps until a step retires or the time is over: the policy's back-off, without taking the engine's core.
  void wait(std::chrono::microseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, time, [&] { return retired_ != seen_; });
    seen_ = retired_;
  }

  std::string violation() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return violation_;
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !pending_.empty(); });
      if (pending_.empty()) return;
      const auto [shape, set] = pending_.front();
      lock.unlock();
      run_(context_, shape, set);
      lock.lock();
      pending_.pop_front();  // retired only now, after its completion word was visible
      ++retired_;
      changed_.notify_all();
    }
  }

  void violate(const char* rule) {
    if (violation_.empty()) violation_ = rule;
  }

  const blink_run_step run_;
  void* const context_;
  const uint64_t* const completed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<uint32_t, uint32_t>> pending_;  // the front one runs
  uint32_t launches_ = 0;
  uint64_t launched_ = 0, retired_ = 0, seen_ = 0;
  bool tail_ = false, closing_ = false;
  std::string violation_;
  std::thread thread_;
};

}  // namespace blink

#endif
