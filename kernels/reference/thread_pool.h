/* A fixed set of threads that split loops. Not OpenMP: its threads spin for long after every loop, and
 * ThreadSanitizer does not know its barriers. A worker spins for some microseconds after a loop, since a step
 * is a chain of short loops, and then sleeps. */
#ifndef BLINK_REFERENCE_THREAD_POOL_H
#define BLINK_REFERENCE_THREAD_POOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace blink {

class ThreadPool {
 public:
  /* `n_threads` counts the caller of split(), at least 1. */
  explicit ThreadPool(uint32_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /* Calls body(begin, end) on disjoint ranges that cover [0, n), in parallel where n > grain, and returns
   * when all have returned. `body` must not throw. One caller at a time, on any thread. */
  template <typename Body>
  void split(uint32_t n, uint32_t grain, const Body& body) {
    if (n <= grain || workers_.empty()) {
      if (n) body(0u, n);
      return;
    }
    run([](const void* context, uint32_t begin, uint32_t end) { (*static_cast<const Body*>(context))(begin, end); },
        &body, n);
  }

  uint32_t size() const { return uint32_t(workers_.size()) + 1; }

 private:
  using Loop = void (*)(const void* body, uint32_t begin, uint32_t end);

  void run(Loop loop, const void* body, uint32_t n);
  void work(uint32_t index);
  void take_part(uint32_t index) const;
  bool wait_for(uint64_t generation);

  Loop loop_ = nullptr; /* the current loop; published by generation_ */
  const void* body_ = nullptr;
  uint32_t n_ = 0;
  std::atomic<uint64_t> generation_{0};
  std::atomic<uint32_t> pending_{0}; /* workers that have not finished the current loop */
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace blink

#endif /* BLINK_REFERENCE_THREAD_POOL_H */
