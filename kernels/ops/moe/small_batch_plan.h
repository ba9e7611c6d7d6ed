/* Small-batch plan: the expert plan of few tokens. Every block makes it for itself in shared memory, which is faster
 * than reading one that another kernel made. Its units are those of expert_plan.h, of one or two groups of pairs.
 * For up to kFewTokens tokens each block of the first matmul, gate_up, also does the top-k routing for itself.
 */
#ifndef BLINK_OPS_MOE_SMALL_BATCH_PLAN_H
#define BLINK_OPS_MOE_SMALL_BATCH_PLAN_H

#include "expert_plan.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kExpertWarps = 8, kExpertThreads = 32 * kExpertWarps;
constexpr uint32_t kPairGroup = 8;          /* pairs that the tensor cores multiply at once: their columns */
constexpr uint32_t kSmallBatchTokens = 128; /* at most, in a step, and pairs */
constexpr uint32_t kSmallBatchPairs = 2048, kFewPairs = kFewTokens * 32;
static_assert(kExpertThreads == kMaxExperts && kExpertWarps == kFewTokens, "a thread counts, a warp chooses");

/* Loads a routed expert as the router kernel wrote it, even if L1 holds a stale line: see kDown's prologue. */
__device__ __forceinline__ uint32_t load_topk_id(const uint32_t* topk_ids) {
  return load_relaxed32(topk_ids);
}

/* What top-k routing reads and writes (routing.h). */
struct Routing {
  struct blink_step_set set;
  const float* logits; /* [tokens][n_experts] */
  uint32_t* topk_ids;  /* [tokens][per_token], like weight */
  float* weight;
  uint32_t n_experts, renormalise;
};

/* Units of at most `Unit` pairs, a multiple of kPairGroup. */
template <uint32_t Tokens, uint32_t Pairs, uint32_t Unit>
struct SmallBatchPlan {
  static constexpr uint32_t kWords = (Tokens + 31) / 32;
  uint32_t chosen[kFewPairs]; /* if the blocks route: [tokens][per_token] */
  uint32_t n_units, n_groups;
  ExpertUnit units[Pairs / Unit + kMaxExperts];
  uint32_t pairs[Pairs];
  uint32_t mask[kMaxExperts][kWords];      /* a bit per token that is routed to the expert */
  alignas(16) uint32_t first[kMaxExperts]; /* where the expert's first pair goes */
  uint64_t totals[kExpertWarps];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) mask[threadIdx.x][word] = 0;
  }

  /* Routes the tokens, one warp per token. One block publishes the result for the kernels that follow before it lets
   * the next one start. It is the last block, which has no more tiles than the others. */
  __device__ __forceinline__ void choose(const Routing& routing, uint32_t tokens, uint32_t per_token) {
    const uint32_t t = threadIdx.x / 32, lane = threadIdx.x % 32, n = routing.n_experts;
    const bool tells = blockIdx.x + 1 == gridDim.x;
    if (t < tokens) {
      const bool padding = routing.set.token_sequence[t] == BLINK_NO_SEQUENCE;
      TopK chooser(routing.logits + t * n, n);
      const uint32_t expert = padding ? kNoExpert : chooser.choose(per_token), at = t * per_token + lane;
      if (lane < per_token) chosen[at] = expert;
      if (tells) {
        const float share = padding ? 0.0f : chooser.weight(per_token, routing.renormalise);
        if (lane < per_token) routing.topk_ids[at] = expert, routing.weight[at] = share;
        publish();
      }
    }
    __syncthreads();
  }

  /* Makes the plan from topk_ids, or from the block's own routing if that is null, with the pairs' tokens in place of
   * the pairs if these are all that is wanted. The block has called clear() before; no __syncthreads() is needed in
   * between, and only choose() has one. */
  template <bool OfTokens>
  __device__ __forceinline__ void make(const uint32_t* topk_ids, uint32_t tokens, uint32_t per_token) {
    constexpr uint32_t kEach = Pairs / kExpertThreads;
    const uint32_t n = tokens * per_token;
    uint32_t expert[kEach];
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t p = i * kExpertThreads + threadIdx.x;
      expert[i] = p < n ? load(topk_ids, p) : kNoExpert;
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
      if (expert[i] != kNoExpert) pairs[first[expert[i]] + lower(expert[i], t)] = OfTokens ? t : p;
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ uint32_t load(const uint32_t* topk_ids, uint32_t p) const {
    return topk_ids ? load_topk_id(topk_ids + p) : chosen[p];
  }
  /* Counts the tokens before t that are routed to the expert; t is 32 * kWords for all of them. */
  __device__ __forceinline__ uint32_t lower(uint32_t expert, uint32_t t) const {
    uint32_t n = 0;
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) {
      const uint32_t bits = mask[expert][word];
      if (word < t / 32) n += __popc(bits);
      if (word == t / 32) n += __popc(bits & ((1u << t % 32) - 1));
    }
    return n;
  }
  /* Fills in the units and `first`, one thread per expert: how many pairs, groups and units end with it. */
  __device__ __forceinline__ void cut() {
    constexpr uint32_t kBits = 20, kMask = (1u << kBits) - 1, kGroups = Unit / kPairGroup;
    const uint32_t n = lower(threadIdx.x, 32 * kWords), count = (n + Unit - 1) / Unit;
    const uint32_t groups = (n + kPairGroup - 1) / kPairGroup;
    uint64_t upto = warp_scan(uint64_t(count) << 2 * kBits | uint64_t(groups) << kBits | n);
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = upto;
    __syncthreads();
#pragma unroll
    for (uint32_t warp = 0; warp < kExpertWarps; ++warp)
      if (warp < threadIdx.x / 32) upto += totals[warp];
    const uint32_t begin = (uint32_t(upto) & kMask) - n, unit = uint32_t(upto >> 2 * kBits) - count;
    const uint32_t groups_upto = uint32_t(upto >> kBits) & kMask;
    first[threadIdx.x] = begin;
    for (uint32_t u = 0; u < count; ++u) {
      const uint32_t at = u * Unit;
      units[unit + u] = {threadIdx.x, begin + at, min(Unit, n - at), groups_upto - groups + u * kGroups};
    }
    if (threadIdx.x == kExpertThreads - 1) n_units = unit + count, n_groups = groups_upto;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_SMALL_BATCH_PLAN_H */
