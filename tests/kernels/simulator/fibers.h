/* The policy's threads as fibers on one thread of the host: between two barriers they run one after the other, in an
 * order that is drawn anew each time. A fiber begins by setcontext, and goes on by _longjmp, which unlike swapcontext
 * makes no system call. The C library's check that a jump goes up the stack has to be off (-U_FORTIFY_SOURCE).
 *
 * Whatever the policy decides must not depend on that order (S11): a thread that reads what another writes in the same
 * phase decides otherwise in another order, and threads that decide differently meet at different barriers, which is
 * noticed here. Unlike threads of the operating system they always finish the same way for one seed.
 */
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/scheduler/platform.h"

namespace simulator {

class Fibers {
 public:
  Fibers(unsigned n, uint64_t seed)
      : scratch{std::vector<uint64_t>(n), std::vector<uint64_t>(n)},
        contexts_(n),
        places_(n),
        stacks_(n),
        waits_at_(n),
        order_(n),
        random_(seed) {
    for (auto& stack : stacks_) stack.reset(new char[kStackBytes]);
    std::iota(order_.begin(), order_.end(), 0u);
  }

  unsigned size() const { return contexts_.size(); }
  unsigned current() const { return current_; }

  // Runs body(i) in fiber i, each to its end. "" or how they diverged.
  std::string run(const std::function<void(unsigned)>& body) {
    body_ = &body;
    running() = this;
    for (unsigned i = 0; i < size(); ++i) {
      getcontext(&contexts_[i]);
      contexts_[i].uc_stack.ss_sp = stacks_[i].get();
      contexts_[i].uc_stack.ss_size = kStackBytes;
      makecontext(&contexts_[i], enter, 0);
    }
    bool begun = false;
    for (;;) {
      std::shuffle(order_.begin(), order_.end(), random_);
      for (unsigned i : order_) {
        current_ = i;
        waits_at_[i] = nullptr;  // stays so if the fiber comes to its end
        go_on(i, begun);
      }
      begun = true;
      for (unsigned i = 1; i < size(); ++i) {
        if (waits_at_[i] != waits_at_[0])
          return "S11: thread " + std::to_string(i) + " is at " + place(i) + ", thread 0 at " + place(0);
      }
      if (waits_at_[0] == nullptr) return "";
    }
  }

  // A barrier of all fibers, called by one of them; `kind` names which.
  void meet(const char* kind) {
    waits_at_[current_] = kind;
    if (!_setjmp(places_[current_].at)) _longjmp(scheduler_, 1);
  }

  std::vector<uint64_t> scratch[2];  // a value of each fiber; used in turn, as on the device

 private:
  static constexpr size_t kStackBytes = 256 * 1024;

  static Fibers*& running() {
    static Fibers* fibers;
    return fibers;
  }
  static void enter() {
    Fibers& self = *running();
    (*self.body_)(self.current_);
    _longjmp(self.scheduler_, 1);
  }
  // Until the fiber is at a barrier, or at its end. A function of its own: what its caller has in registers stays.
  __attribute__((noinline)) void go_on(unsigned i, bool begun) {
    if (_setjmp(scheduler_)) return;
    if (begun) _longjmp(places_[i].at, 1);
    setcontext(&contexts_[i]);
  }
  std::string place(unsigned i) const { return waits_at_[i] ? waits_at_[i] : "its end"; }

  struct Place {
    jmp_buf at;
  };

  std::vector<ucontext_t> contexts_;
  std::vector<Place> places_;  // at their last barriers
  std::vector<std::unique_ptr<char[]>> stacks_;
  std::vector<const char*> waits_at_;
  std::vector<unsigned> order_;
  std::mt19937_64 random_;
  jmp_buf scheduler_;
  const std::function<void(unsigned)>* body_ = nullptr;
  unsigned current_ = 0;
};

// The policy's barriers and reductions by fibers. Memory is plain: one of them runs at a time.
class FiberMemoryModel {
 public:
  FiberMemoryModel(Fibers& fibers, unsigned thread) : fibers_(fibers), thread_(thread) {}

  unsigned thread() const { return thread_; }
  unsigned threads() const { return fibers_.size(); }
  uint32_t step_sets() const { return BLINK_STEP_SETS; }
  uint32_t launch_window() const { return BLINK_LAUNCH_WINDOW; }
  bool shares_step_sets() const { return true; }
  void sync() { fibers_.meet("sync"); }

  template <class T>
  T load(const T* p) const {
    return *p;
  }
  template <class T>
  void store(T* p, T v) {
    *p = v;
  }
  uint64_t acquire(const uint64_t* p) const { return *p; }
  void release(uint64_t* p, uint64_t v) { *p = v; }
  blink::Pair load_pair(const uint64_t* p) const { return {p[0], p[1]}; }
  template <class T>
  T add(T* p, T v) {
    const T old = *p;
    *p += v;
    return old;
  }
  void raise(uint32_t* p, uint32_t v) { *p = std::max(*p, v); }
  bool exchange_if(uint32_t* p, uint32_t old, uint32_t v) {
    if (*p != old) return false;
    *p = v;
    return true;
  }

  // One barrier each, as on the device.
  template <class T, class Op>
  T reduce(T value, Op op) {
    const std::vector<uint64_t>& all = gather(value, "reduce");
    T total = static_cast<T>(all[0]);
    for (unsigned i = 1; i < threads(); ++i) total = op(total, static_cast<T>(all[i]));
    return total;
  }
  uint64_t broadcast(uint64_t value) { return gather(value, "broadcast")[0]; }
  unsigned rank(bool flag, unsigned* n) {
    const std::vector<uint64_t>& all = gather(flag, "rank");
    *n = std::accumulate(all.begin(), all.end(), 0u);
    return std::accumulate(all.begin(), all.begin() + thread_, 0u);
  }
  uint64_t sum_below(uint64_t value, uint64_t* sum) {
    const std::vector<uint64_t>& all = gather(value, "sum_below");
    *sum = std::accumulate(all.begin(), all.end(), uint64_t(0));
    return std::accumulate(all.begin(), all.begin() + thread_, uint64_t(0));
  }

 private:
  const std::vector<uint64_t>& gather(uint64_t value, const char* kind) {
    std::vector<uint64_t>& all = fibers_.scratch[turn_ ^= 1];
    all[thread_] = value;
    fibers_.meet(kind);
    return all;
  }

  Fibers& fibers_;
  const unsigned thread_;
  unsigned turn_ = 0;
};

}  // namespace simulator
