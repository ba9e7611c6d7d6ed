#include "thread_pool.h"

namespace blink {
namespace {

constexpr int kSpins = 2000; /* some tens of microseconds */

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(uint32_t n_threads) {
  for (uint32_t i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Loop loop, const void* body, uint32_t n) {
  loop_ = loop;
  body_ = body;
  n_ = n;
  pending_.store(uint32_t(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(
      1); /* sequentially consistent, as sleepers_ is: either we see the sleeper or it sees the loop */
  if (sleepers_.load() != 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  take_part(0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield(); /* a worker has lost its core to somebody else */
    }
  }
}

void ThreadPool::work(uint32_t index) {
  for (uint64_t generation = 1; wait_for(generation); ++generation) {
    take_part(index);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

/* Waits until loop number `generation` is published; false when the pool ends. No loop is missed: the next
 * one starts only when every worker has finished this one. */
bool ThreadPool::wait_for(uint64_t generation) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (generation_.load(std::memory_order_acquire) == generation) return true;
    if (stop_.load(std::memory_order_relaxed)) return false;
    relax();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return generation_.load() == generation || stop_.load(); });
  sleepers_.fetch_sub(1);
  return !stop_.load();
}

void ThreadPool::take_part(uint32_t index) const {
  const uint64_t n = n_, threads = workers_.size() + 1;
  const uint32_t begin = uint32_t(n * index / threads), end = uint32_t(n * (index + 1) / threads);
  if (begin < end) loop_(body_, begin, end);
}

}  // namespace blink
