/* The policy's platform on host threads. One thread serves the emulation; several, with a real barrier between them,
 * are what tests run under ThreadSanitizer to show that the phases of the policy do not race.
 */
#ifndef BLINK_SCHEDULER_HOST_H
#define BLINK_SCHEDULER_HOST_H

#include <pthread.h>

#include <vector>

#include "launcher.h"
#include "platform.h"

namespace blink {

// What the policy's threads share: the barrier and a value from each.
class Team {
 public:
  explicit Team(unsigned n) : values(n), n_(n) { pthread_barrier_init(&barrier_, nullptr, n); }
  ~Team() { pthread_barrier_destroy(&barrier_); }
  void sync() {
    if (n_ > 1) pthread_barrier_wait(&barrier_);
  }
  unsigned size() const { return n_; }
  std::vector<uint64_t> values;

 private:
  const unsigned n_;
  pthread_barrier_t barrier_;
};

// Everything of a platform but time, launches and back-off; the numbers are the device's.
class HostMemoryModel {
 public:
  HostMemoryModel(Team& team, unsigned thread) : team_(team), thread_(thread) {}

  unsigned thread() const { return thread_; }
  uint32_t step_sets() const { return BLINK_STEP_SETS; }
  uint32_t launch_window() const { return BLINK_LAUNCH_WINDOW; }
  bool shares_step_sets() const { return true; }
  unsigned threads() const { return team_.size(); }
  void sync() { team_.sync(); }

  template <class T>
  T load(const T* p) const {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
  }
  template <class T>
  void store(T* p, T v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
  }
  uint64_t acquire(const uint64_t* p) const { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
  void release(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
  Pair load_pair(const uint64_t* p) const { return {load(p), load(p + 1)}; }
  template <class T>
  T add(T* p, T v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  }
  void raise(uint32_t* p, uint32_t v) {
    uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }

  bool exchange_if(uint32_t* p, uint32_t old, uint32_t v) {
    return __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }

  template <class T, class Op>
  T reduce(T value, Op op) {
    if (threads() == 1) return value;
    team_.values[thread_] = value;
    team_.sync();
    T total = static_cast<T>(team_.values[0]);
    for (unsigned i = 1; i < threads(); ++i) total = op(total, static_cast<T>(team_.values[i]));
    team_.sync();
    return total;
  }

  uint64_t broadcast(uint64_t value) {
    if (thread_ == 0) team_.values[0] = value;
    team_.sync();
    const uint64_t told = team_.values[0];
    team_.sync();
    return told;
  }

  unsigned rank(bool flag, unsigned* n) {
    team_.values[thread_] = flag;
    team_.sync();
    unsigned below = 0, all = 0;
    for (unsigned i = 0; i < threads(); ++i) {
      below += i < thread_ ? team_.values[i] : 0;
      all += team_.values[i];
    }
    team_.sync();
    *n = all;
    return below;
  }

  uint64_t sum_below(uint64_t value, uint64_t* sum) {
    team_.values[thread_] = value;
    team_.sync();
    uint64_t below = 0, all = 0;
    for (unsigned i = 0; i < threads(); ++i) {
      below += i < thread_ ? team_.values[i] : 0;
      all += team_.values[i];
    }
    team_.sync();
    *sum = all;
    return below;
  }

 private:
  Team& team_;
  const unsigned thread_;
};

class HostPlatform : public HostMemoryModel {
 public:
  HostPlatform(Team& team, unsigned thread, Launcher& launcher) : HostMemoryModel(team, thread), launcher_(launcher) {}

  uint64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int launch(uint64_t, uint32_t shape, uint32_t set) { return launcher_.launch(shape, set); }
  int relaunch() { return launcher_.relaunch(); }
  void pause(bool idle) {
    if (thread() == 0) launcher_.wait(std::chrono::microseconds(idle ? 200 : 100));
  }

 private:
  Launcher& launcher_;
};

}  // namespace blink

#endif
