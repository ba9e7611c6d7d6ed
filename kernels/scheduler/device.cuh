/* The policy's platform on the GPU: one block, graphs launched from the device (CUDA guide 4.2.6, "Device Graph
 * Launch").
 *
 * Ring and completion words are read with ld.relaxed/ld.acquire and written with st.relaxed/st.release at system scope:
 * polling with `volatile` or cached loads has spun on stale lines, and hoisted, in practice.
 */
#ifndef BLINK_SCHEDULER_DEVICE_CUH
#define BLINK_SCHEDULER_DEVICE_CUH

#include <cuda_device_runtime_api.h>

#include "platform.h"

namespace blink {

class DevicePlatform {
 public:
  static constexpr unsigned kWarps = BLINK_SCHEDULER_THREADS / 32;
  using Scratch = unsigned long long[2][kWarps];

  __device__ explicit DevicePlatform(Scratch& scratch) : scratch_(scratch) {}

  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ unsigned threads() const { return BLINK_SCHEDULER_THREADS; }
  __device__ void sync() { __syncthreads(); }

  __device__ uint64_t now() const {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  }

  __device__ uint32_t load(const uint32_t* p) const {
    uint32_t v;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ uint64_t load(const uint64_t* p) const {
    unsigned long long v;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ void store(uint32_t* p, uint32_t v) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  }
  __device__ void store(uint64_t* p, uint64_t v) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ uint64_t acquire(const uint64_t* p) const {
    unsigned long long v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ void release(uint64_t* p, uint64_t v) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ Pair load_pair(const uint64_t* p) const {
    unsigned long long a, b;
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
    return {a, b};
  }

  __device__ uint32_t add(uint32_t* p, uint32_t v) { return atomicAdd(p, v); }
  __device__ uint64_t add(uint64_t* p, uint64_t v) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
  }

  __device__ void raise(uint32_t* p, uint32_t v) { atomicMax(p, v); }
  __device__ bool exchange_if(uint32_t* p, uint32_t old, uint32_t v) { return atomicCAS(p, old, v) == old; }

  // One barrier each: the scratch alternates, so nobody overwrites what a slower thread still reads.
  template <class T, class Op>
  __device__ T reduce(T value, Op op) {
    return reduce_into(next_scratch(), value, op);
  }
  __device__ uint64_t broadcast(uint64_t value) {
    unsigned long long* slots = next_scratch();
    if (threadIdx.x == 0) slots[0] = value;
    __syncthreads();
    return slots[0];
  }

  __device__ unsigned rank(bool flag, unsigned* n) { return rank_in(next_scratch(), flag, n); }
  __device__ uint64_t sum_below(uint64_t value, uint64_t* sum) { return sum_below_in(next_scratch(), value, sum); }

  __device__ uint32_t step_sets() const { return BLINK_STEP_SETS; }
  __device__ uint32_t launch_window() const { return BLINK_LAUNCH_WINDOW; }
  __device__ bool shares_step_sets() const { return true; }
  __device__ int launch(uint64_t executable, uint32_t, uint32_t) {
    __threadfence();
    return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(executable), cudaStreamGraphFireAndForget);
  }
  __device__ int relaunch() {
    __threadfence();
    return cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
  }
  __device__ void pause(bool idle) { __nanosleep(idle ? 200 : 50); }

 private:
  Scratch& scratch_;
  unsigned turn_ = 0;
  __device__ unsigned long long* next_scratch() { return scratch_[turn_ ^= 1]; }

  template <class T, class Op>
  static BLINK_CALLED T reduce_into(unsigned long long* slots, T value, Op op) {
    value = reduce_warp(value, op);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    T total = static_cast<T>(slots[0]);
    for (unsigned w = 1; w < kWarps; ++w) total = op(total, static_cast<T>(slots[w]));
    return total;
  }
  static BLINK_CALLED unsigned rank_in(unsigned long long* slots, bool flag, unsigned* n) {
    const unsigned votes = __ballot_sync(~0u, flag);
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) slots[warp] = __popc(votes);
    __syncthreads();
    unsigned below = __popc(votes & ((1u << lane) - 1)), all = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      const unsigned count = static_cast<unsigned>(slots[w]);
      below += w < warp ? count : 0;
      all += count;
    }
    *n = all;
    return below;
  }
  static BLINK_CALLED uint64_t sum_below_in(unsigned long long* slots, uint64_t value, uint64_t* sum) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned long long through = value;  // the sum of the warp's lanes up to this one
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const unsigned long long lower = __shfl_up_sync(~0u, through, offset);
      if (lane >= offset) through += lower;
    }
    if (lane == 31) slots[warp] = through;
    __syncthreads();
    unsigned long long below = through - value, all = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      below += w < warp ? slots[w] : 0;
      all += slots[w];
    }
    *sum = all;
    return below;
  }
  template <class T, class Op>
  static __device__ T reduce_warp(T value, Op op) {
    for (int offset = 16; offset; offset >>= 1) value = op(value, __shfl_xor_sync(~0u, value, offset));
    return value;
  }
  static __device__ unsigned reduce_warp(unsigned value, Sum) { return __reduce_add_sync(~0u, value); }
  static __device__ unsigned reduce_warp(unsigned value, Or) { return __reduce_or_sync(~0u, value); }
  static __device__ unsigned reduce_warp(unsigned value, Min) { return __reduce_min_sync(~0u, value); }
  static __device__ unsigned reduce_warp(unsigned value, Max) { return __reduce_max_sync(~0u, value); }
};

}  // namespace blink

#endif
