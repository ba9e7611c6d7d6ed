/* Stream plan: the expert plan of few tokens, which every block makes for itself in shared memory: sooner than reading
 * one that another kernel made. Its units are those of expert_plan.h, of kStreamUnit pairs.
 */
#ifndef BLINK_OPS_STREAM_PLAN_H
#define BLINK_OPS_STREAM_PLAN_H

#include "expert_plan.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kExpertWarps = 8, kExpertThreads = 32 * kExpertWarps;
constexpr uint32_t kStreamUnit = 16;    /* pairs of a unit: two of the tensor cores' 8 columns */
constexpr uint32_t kStreamTokens = 128; /* at most, in a step, and pairs and so units */
constexpr uint32_t kStreamPairs = 2048, kStreamUnits = kStreamPairs / kStreamUnit + kMaxExperts;
static_assert(kExpertThreads == kMaxExperts, "a thread counts for an expert");

/* A choice as the router kernel wrote it, whatever lies in L1: see kDown's prologue. */
__device__ __forceinline__ uint32_t load_choice(const uint32_t* choice) {
  return load_relaxed32(choice);
}

struct StreamPlan {
  uint32_t n_units;
  ExpertUnit units[kStreamUnits];
  uint32_t pairs[kStreamPairs];
  uint32_t mask[kMaxExperts][kStreamTokens / 32]; /* a bit per token that chose the expert */
  uint32_t first[kMaxExperts];                    /* where the expert's first pair goes */
  uint64_t totals[kExpertWarps];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint32_t word = 0; word < kStreamTokens / 32; ++word) mask[threadIdx.x][word] = 0;
  }

  /* The block has cleared and not met since. */
  __device__ __forceinline__ void make(const uint32_t* choice, uint32_t tokens, uint32_t per_token) {
    constexpr uint32_t kEach = kStreamPairs / kExpertThreads;
    const uint32_t n = tokens * per_token;
    uint32_t expert[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t p = i * kExpertThreads + threadIdx.x;
      expert[i] = p < n ? load_choice(choice + p) : kNoExpert;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t t = (i * kExpertThreads + threadIdx.x) / per_token;
      if (expert[i] != kNoExpert) atomicOr(&mask[expert[i]][t / 32], 1u << t % 32);
    }
    __syncthreads();
    cut();
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t p = i * kExpertThreads + threadIdx.x, t = p / per_token;
      if (expert[i] != kNoExpert) pairs[first[expert[i]] + lower(expert[i], t)] = p;
    }
    __syncthreads();
  }

 private:
  /* Tokens before t that chose the expert; t is kStreamTokens for all of them. */
  __device__ __forceinline__ uint32_t lower(uint32_t expert, uint32_t t) const {
    uint32_t n = 0;
#pragma unroll
    for (uint32_t word = 0; word < kStreamTokens / 32; ++word) {
      const uint32_t bits = mask[expert][word];
      if (word < t / 32) n += __popc(bits);
      if (word == t / 32) n += __popc(bits & ((1u << t % 32) - 1));
    }
    return n;
  }
  /* The units and `first`, a thread an expert. */
  __device__ __forceinline__ void cut() {
    const uint32_t n = lower(threadIdx.x, kStreamTokens), count = (n + kStreamUnit - 1) / kStreamUnit;
    uint64_t upto = warp_scan(uint64_t(count) << 32 | n);
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
    __syncthreads();
#pragma unroll
    for (uint32_t warp = 0; warp < kExpertWarps; ++warp)
      if (warp < threadIdx.x / 32) upto += totals[warp];
    const uint32_t begin = uint32_t(upto) - n, unit = uint32_t(upto >> 32) - count;
    first[threadIdx.x] = begin;
    for (uint32_t u = 0; u < count; ++u) {
      const uint32_t at = u * kStreamUnit;
      units[unit + u] = {threadIdx.x, begin + at, min(kStreamUnit, n - at), 0};
    }
    if (threadIdx.x == kExpertThreads - 1) n_units = unit + count;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_STREAM_PLAN_H */
