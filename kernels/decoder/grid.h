/* Grid: where all blocks of the decoder meet. Every block is resident (the grid leaves one multiprocessor to
 * the scheduler), so waiting for each other ends; that it does not within kMeetingTimeoutNs is a bug, which
 * ends the kernel and with it the backend.
 */
#ifndef BLINK_DECODER_GRID_H
#define BLINK_DECODER_GRID_H

#include "../ops/common.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint64_t kMeetingTimeoutNs = 10000000000ull;

class Grid {
 public:
  /* `counters` [2] uint32, zero before and after the kernel. */
  __device__ __forceinline__ explicit Grid(uint32_t* counters) : counters_(counters) {}

  /* What this block wrote is visible to whoever has waited. */
  __device__ __forceinline__ void arrive_all() {
    __syncthreads();
    if (threadIdx.x == 0) announce(counters_);
    expected_ += gridDim.x;
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      uint64_t begin = 0;
      for (uint32_t spins = 1; load_acquire32(counters_) < expected_; ++spins) {
        if (spins % 65536 != 0) continue;
        const uint64_t now = global_ns();
        if (begin == 0) begin = now;
        if (now - begin > kMeetingTimeoutNs) trap();
      }
    }
    __syncthreads();
  }
  __device__ __forceinline__ void meet() {
    arrive_all();
    wait();
  }
  /* After the last meeting: the last block to leave clears the counters. */
  __device__ __forceinline__ void leave() {
    if (threadIdx.x == 0 && arrive(counters_ + 1) == gridDim.x - 1) counters_[0] = counters_[1] = 0;
  }

 private:
  uint32_t* counters_;
  uint32_t expected_ = 0;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_GRID_H */
