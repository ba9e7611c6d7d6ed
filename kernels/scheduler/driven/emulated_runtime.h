/* CUDA's streams and events on the CPU: a thread per stream, an engine where graphs would run.
 *
 * It breaks what CUDA would break, and notices what CUDA would not:
 *   Q1. Two steps never run at the same time, because they share activations.
 *   Q2. The host does not rewrite the source of a copy before the copy has run.
 *   Q3. Nobody reads the landing site of a copy before the copy has arrived. The site holds rubbish from the enqueuing
 *       on, so results that are read too early, or a set that is used again before its results were read, show as
 *       wrong tokens.
 * Orders that are missing between streams are left to the delays of tests, and to ThreadSanitizer.
 */
#ifndef BLINK_DRIVEN_EMULATED_RUNTIME_H
#define BLINK_DRIVEN_EMULATED_RUNTIME_H

#include <string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../emulation.h"
#include "runtime.h"

namespace blink {

class EmulatedRuntime : public Runtime {
 public:
  using Delay = std::function<void()>;

  /* `run` publishes the step's completion before it returns (E1). `delay`, for tests, is called on the stream's thread
   * before and after every operation. */
  EmulatedRuntime(
      blink_run_step run, void* context, Delay delay = [] {})
      : run_(run), context_(context), delay_(std::move(delay)) {}

  ~EmulatedRuntime() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (Stream& stream : streams_) stream.thread.join();
  }

  void open(unsigned n_streams, unsigned n_events) override {
    events_.resize(n_events);
    streams_.resize(n_streams);
    for (Stream& stream : streams_) stream.thread = std::thread([this, &stream] { work(stream); });
  }

  void copy_in(unsigned stream, void* device, const void* host, size_t bytes) override {
    const uint64_t before = digest(host, bytes);
    enqueue(stream, [=] {
      if (digest(host, bytes) != before) violate("Q2: the source of a copy changed while the copy was in flight");
      memcpy(device, host, bytes);
    });
  }
  void copy_out(unsigned stream, void* host, const void* device, size_t bytes) override {
    memset(host, 0xfe, bytes);  // no token, and not BLINK_NO_TOKEN either: a read too early is seen
    enqueue(stream, [=] { memcpy(host, device, bytes); });
  }
  void launch(unsigned stream, uint32_t shape, uint32_t set) override {
    enqueue(stream, [=] {
      if (running_.exchange(true)) violate("Q1: two steps ran at the same time");
      run_(context_, shape, set);
      running_.store(false);
    });
  }
  void record(unsigned event, unsigned stream) override {
    const uint64_t mark = ++events_[event].recorded;
    enqueue(stream, [this, event, mark] {
      std::lock_guard<std::mutex> lock(mutex_);
      events_[event].reached = mark;
      changed_.notify_all();
    });
  }
  void wait(unsigned stream, unsigned event) override {
    const uint64_t mark = events_[event].recorded; /* as in CUDA: what was recorded when the wait is enqueued */
    enqueue(stream, [this, event, mark] {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || events_[event].reached >= mark; });
    });
  }
  bool reached(unsigned event) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const Event& e = events_[event];
    return changed_.wait_for(lock, std::chrono::microseconds(100), [&] { return e.reached == e.recorded; });
  }
  void idle() override { std::this_thread::sleep_for(std::chrono::microseconds(200)); }
  int error() const override { return 0; }

  /* The first of the rules above that was broken, or "". */
  std::string violation() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return violation_;
  }

 private:
  struct Stream {
    std::deque<std::function<void()>> queue;
    std::thread thread;
  };
  struct Event {
    uint64_t recorded = 0; /* by the scheduler's thread alone */
    uint64_t reached = 0;
  };

  void enqueue(unsigned stream, std::function<void()> operation) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      streams_[stream].queue.push_back(std::move(operation));
    }
    changed_.notify_all();
  }

  void work(Stream& stream) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !stream.queue.empty(); });
      if (stream.queue.empty()) return;
      const std::function<void()> operation = std::move(stream.queue.front());
      stream.queue.pop_front();
      lock.unlock();
      delay_();
      operation();
      delay_();
      lock.lock();
    }
  }

  static uint64_t digest(const void* data, size_t bytes) {
    uint64_t h = bytes;
    const uint32_t* words = static_cast<const uint32_t*>(data);
    for (size_t i = 0; i < bytes / sizeof *words; ++i) h = (h ^ words[i]) * 0x100000001b3ull;
    return h;
  }

  void violate(const char* rule) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (violation_.empty()) violation_ = rule;
  }

  const blink_run_step run_;
  void* const context_;
  const Delay delay_;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::atomic<bool> running_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::string violation_;
};

}  // namespace blink

#endif
