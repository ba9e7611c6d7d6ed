/* Stream plan: the expert plan of few tokens, which every block makes for itself in shared memory: sooner than reading
 * one that another kernel made. Its units are those of expert_plan.h, of kStreamUnit pairs. For up to kFewTokens
 * tokens the first product's blocks choose the experts, too, each for itself.
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
static_assert(kExpertThreads == kMaxExperts && kExpertWarps == kFewTokens, "a thread counts, a warp chooses");

/* A choice as the router kernel wrote it, whatever lies in L1: see kDown's prologue. */
__device__ __forceinline__ uint32_t load_choice(const uint32_t* choice) {
  return load_relaxed32(choice);
}

/* What a choice is made of (route.h). */
struct Routing {
  struct blink_step_set set;
  const float* logits; /* [tokens][n_experts] */
  uint32_t* choice;    /* [tokens][per_token], as weight */
  float* weight;
  uint32_t n_experts, renormalise;
};

struct StreamPlan {
  uint32_t chosen[kFewTokens * 32];
  float share[kFewTokens * 32];
  uint32_t n_units;
  ExpertUnit units[kStreamUnits];
  uint32_t pairs[kStreamPairs];
  uint32_t mask[kMaxExperts][kStreamTokens / 32]; /* a bit per token that chose the expert */
  alignas(16) uint32_t first[kMaxExperts];        /* where the expert's first pair goes */
  uint64_t totals[kExpertWarps];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint32_t word = 0; word < kStreamTokens / 32; ++word) mask[threadIdx.x][word] = 0;
  }

  /* A warp a token. The first block tells the kernels that follow, before it lets the next one start. */
  __device__ __forceinline__ void choose(const Routing& routing, uint32_t tokens, uint32_t per_token) {
    if (threadIdx.x / 32 < tokens)
      choose_experts(routing.set, routing.logits, chosen, share, routing.n_experts, per_token, routing.renormalise,
                     threadIdx.x / 32);
    __syncthreads();
    if (blockIdx.x != 0) return;
    if (threadIdx.x < tokens * per_token)
      routing.choice[threadIdx.x] = chosen[threadIdx.x], routing.weight[threadIdx.x] = share[threadIdx.x];
    publish();
    __syncthreads();
  }

  /* The choice and the plan of one token, which has its experts in the order of the choice: a thread counts how many
   * experts come before its own, which takes less time than to look for the highest again and again. */
  __device__ __forceinline__ void choose_one(const Routing& routing, uint32_t per_token) {
    const uint32_t e = threadIdx.x, n = routing.n_experts;
    const bool padding = routing.set.token_row[0] == BLINK_NO_ROW;
    const uint32_t mine = e < n ? logit_key(routing.logits[e]) : 0;
    first[e] = mine;
    if (e == 0) n_units = padding ? 0 : per_token;
    __syncthreads();
    uint32_t before = 0;
#pragma unroll 4
    for (uint32_t j = 0; j < n; j += 4) {
      const uint4 key = *reinterpret_cast<const uint4*>(first + j);
      before += (key.x > mine || (key.x == mine && j < e)) + (key.y > mine || (key.y == mine && j + 1 < e));
      before += (key.z > mine || (key.z == mine && j + 2 < e)) + (key.w > mine || (key.w == mine && j + 3 < e));
    }
    if (e < n && before < per_token) {
      units[before] = {e, before, 1, 0};
      pairs[before] = before;
    }
    __syncthreads();
    if (blockIdx.x != 0) return;
    if (e < 32)
      choose_experts(routing.set, routing.logits, routing.choice, routing.weight, n, per_token, routing.renormalise, 0);
    publish();
    __syncthreads();
  }

  /* The block has cleared and not met since, but to choose; `choice` is null then. */
  __device__ __forceinline__ void make(const uint32_t* choice, uint32_t tokens, uint32_t per_token) {
    constexpr uint32_t kEach = kStreamPairs / kExpertThreads;
    const uint32_t n = tokens * per_token;
    uint32_t expert[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t p = i * kExpertThreads + threadIdx.x;
      expert[i] = p < n ? load(choice, p) : kNoExpert;
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
  __device__ __forceinline__ uint32_t load(const uint32_t* choice, uint32_t p) const {
    return choice ? load_choice(choice + p) : chosen[p];
  }
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
