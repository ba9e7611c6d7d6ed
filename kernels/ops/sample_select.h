/* Top-k and top-p as one question: the smallest rank up to which the kept tokens lie. Radix selection over
 * the 32-bit ranks, 8 bits a pass, each pass a histogram of counts (top-k) or weights (top-p). Tokens that
 * tie at the threshold are all kept.
 */
#ifndef BLINK_OPS_SAMPLE_SELECT_H
#define BLINK_OPS_SAMPLE_SELECT_H

#include "sample_weight.h"

namespace blink {

#ifndef __CUDACC__

/* The smallest rank up to which at least kept() of the admitted tokens, counted or weighed, lie. Radix
 * selection, 8 bits a pass. */
inline uint32_t select_rank(const struct blink_descriptor& params, const Filter& filter, bool by_weight,
                            const float* logits, uint32_t vocab) {
  uint64_t target = 0;
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    uint64_t histogram[256] = {}, total = 0;
    for (uint32_t t = 0; t < vocab; ++t) {
      const float x = scaled(number(logits[t]), filter.max, filter.temperature);
      const uint32_t rank = rank_of(x);
      if (!filter.admits(x) || (shift < 24 && rank >> (shift + 8) != prefix)) continue;
      histogram[rank >> shift & 255] += by_weight ? weight_of(x) : 1;
    }
    for (uint64_t mass : histogram) total += mass;
    if (shift == 24) target = kept(params, by_weight, total);
    uint32_t digit = 0;
    while (histogram[digit] < target) target -= histogram[digit++];
    prefix = prefix << 8 | digit;
  }
  return prefix;
}

#else

constexpr uint32_t kSampleThreads = 1024;
constexpr uint32_t kSampleWarps = kSampleThreads / 32;

/* Shared memory of a selection. Masses have 64 bits, in halves: shared memory has no native 64-bit addition.
 */
struct SelectScratch {
  uint32_t low[256], high[256];
  uint64_t target;
  uint32_t digit;
};

/* As the twin's. One warp scans the histogram, 8 bins a lane. */
__device__ __forceinline__ uint32_t select_rank(const struct blink_descriptor& params, const Filter& filter,
                                                bool by_weight, const float* logits, uint32_t vocab,
                                                SelectScratch& scratch) {
  const uint32_t tid = threadIdx.x;
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (tid < 256) scratch.low[tid] = scratch.high[tid] = 0;
    __syncthreads();
    for (uint32_t t = tid; t < vocab; t += kSampleThreads) {
      const float x = scaled(number(logits[t]), filter.max, filter.temperature);
      const uint32_t rank = rank_of(x);
      if (!filter.admits(x) || (shift < 24 && rank >> (shift + 8) != prefix)) continue;
      const uint64_t mass = by_weight ? weight_of(x) : 1;
      const uint32_t low = uint32_t(mass), bin = rank >> shift & 255;
      const uint32_t before = atomicAdd(&scratch.low[bin], low), high = uint32_t(mass >> 32) + (before + low < before);
      if (high) atomicAdd(&scratch.high[bin], high);
    }
    __syncthreads();
    if (tid < 32) {
      uint64_t bins[8], sum = 0;
#pragma unroll
      for (int b = 0; b < 8; ++b) {
        bins[b] = uint64_t(scratch.high[tid * 8 + b]) << 32 | scratch.low[tid * 8 + b];
        sum += bins[b];
      }
      const uint64_t through = warp_scan(sum), total = __shfl_sync(0xffffffffu, through, 31);
      uint64_t target = shift == 24 ? kept(params, by_weight, total) : scratch.target;
      __syncwarp();
      if (through - sum < target && target <= through) { /* exactly one lane */
        target -= through - sum;
        bool found = false;
#pragma unroll
        for (int b = 0; b < 8; ++b) {
          if (!found && target <= bins[b]) scratch.target = target, scratch.digit = tid * 8 + b, found = true;
          target -= bins[b];
        }
      }
    }
    __syncthreads();
    prefix = prefix << 8 | scratch.digit;
  }
  return prefix;
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLE_SELECT_H */
