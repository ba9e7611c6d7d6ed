/* What the policy needs of the machine it runs on, and nothing else. Four platforms provide it:
 *   device.cuh            one thread block on the GPU, graphs launched from the device
 *   emulation.cpp         host threads, an engine on the CPU, CUDA's launch rules enforced
 *   driven/platform.h     a host thread that launches an engine's graphs, on a GPU or emulated
 *   tests/.../simulator.cpp   virtual time, one thread, every interleaving chosen by a seed
 *
 * A Platform P offers
 *   unsigned thread(), threads()           this thread's index, and how many run the policy together
 *   void sync()                            barrier of those threads; orders their memory
 *   uint64_t now()                         nanoseconds, monotonic
 *   T load(const T*), store(T*, T)         relaxed, system scope, never cached (ring payloads)
 *   uint64_t acquire(const uint64_t*), release(uint64_t*, uint64_t)    system scope
 *   Pair load_pair(const uint64_t*)        two words, each whole, relaxed; 16-byte aligned
 *   T add(T*, T)                           atomic among the policy's threads; returns the old value
 *   void raise(uint32_t*, uint32_t)        to the larger of both, likewise
 *   bool exchange_if(uint32_t*, uint32_t old, uint32_t v)    likewise, from `old` to `v`; whether it was `old`
 *   T reduce(T, op)                        op over all threads' values, the same result in each
 *   uint64_t broadcast(uint64_t)           what thread 0 gives, in each; what the others give does not matter
 *   unsigned rank(bool flag, unsigned* n)  how many lower threads have the flag set; *n, how many do in all
 *   uint64_t sum_below(uint64_t, uint64_t* sum)    the sum of the lower threads' values; *sum, of all of them
 *   uint32_t step_sets()                   how many step sets rotate, at most BLINK_STEP_SETS
 *   uint32_t launch_window()               launches after which `relaunch` is due (S8)
 *   bool shares_step_sets()                whether what a step writes is here while it runs, not copied at its end
 *   int launch(executable, shape, set)     0, or the runtime's error code
 *   int relaunch()                         run this kernel again once everything launched has finished
 *   void pause(bool idle)                  back off between two polls
 */
#ifndef BLINK_SCHEDULER_PLATFORM_H
#define BLINK_SCHEDULER_PLATFORM_H

#include "state.h"

/* On a GPU, a step's plan and commit run once in milliseconds, between other kernels' code on the same multiprocessor.
 * So their code is mostly fetched anew, and what runs once takes the time of fetching it. Therefore what is used again
 * is called, in place of copies of it (BLINK_CALLED), and loops that mostly run once or twice are not unrolled
 * (BLINK_ROLLED). */
#ifdef __CUDACC__
#define BLINK_FN __device__
#define BLINK_CALLED __device__ __noinline__
#define BLINK_ROLLED _Pragma("unroll 1")
#else
#define BLINK_FN
#define BLINK_CALLED
#define BLINK_ROLLED
#endif

namespace blink {

struct Pair {
  uint64_t first, second;
};

struct Min {
  template <class T>
  BLINK_FN T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  BLINK_FN T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Sum {
  template <class T>
  BLINK_FN T operator()(T a, T b) const {
    return a + b;
  }
};
struct Or {
  template <class T>
  BLINK_FN T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  BLINK_FN T operator()(T a, T b) const {
    return a ^ b;
  }
};

constexpr uint64_t kNone = ~0ull;

}  // namespace blink

#endif
