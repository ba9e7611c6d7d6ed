/* Top-k routing: finds each token's experts and their weights. These are the per_token highest values of the softmax
 * over all experts' logits; `renormalise` makes them sum to 1 (Qwen3-MoE's norm_topk_prob).
 *
 *   logits  [tokens][n_experts] fp32: the token times the router's weights
 *   topk_ids [tokens][per_token] uint32, highest first; kNoExpert for padding (E3)
 *   weight  [tokens][per_token] fp32
 *
 * Of equal logits the lower id comes first; NaN counts as -infinity, so that a token always has per_token
 * different experts. Where the router has a bias, the logits have it already, or route_biased_kernel adds it.
 */
#ifndef BLINK_OPS_MOE_ROUTING_H
#define BLINK_OPS_MOE_ROUTING_H

#include "kernels/primitives/common.h"

namespace blink {

constexpr uint32_t kNoExpert = 0xffffffffu;
constexpr uint32_t kMaxExperts = 256;
constexpr uint32_t kFewTokens = 8; /* up to these the experts' kernel routes (small_batch_plan.h) */

/* An expert and its logit. */
struct Candidate {
  float logit;
  uint32_t expert; /* kNoExpert: no candidate */
};

BLINK_HD bool goes_before(const Candidate& a, const Candidate& b) {
  if (a.expert == kNoExpert || b.expert == kNoExpert) return b.expert == kNoExpert && a.expert != kNoExpert;
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

BLINK_HD float without_nan(float x) {
  return x == x ? x : -INFINITY;
}

#ifndef __CUDACC__

inline void route(const struct blink_step_set& set, const float* logits, uint32_t* topk_ids, float* weight,
                  uint32_t n_experts, uint32_t per_token, bool renormalise, uint32_t i) {
  const float* x = logits + uint64_t(i) * n_experts;
  uint32_t* chosen = topk_ids + uint64_t(i) * per_token;
  float *share = weight + uint64_t(i) * per_token, chosen_sum = 0.0f, sum = 0.0f, highest = 0.0f;
  bool taken[kMaxExperts] = {};
  for (uint32_t k = 0; k < per_token; ++k) {
    Candidate best = {0.0f, kNoExpert};
    for (uint32_t e = 0; e < n_experts; ++e) {
      const Candidate next = {without_nan(x[e]), e};
      if (!taken[e] && goes_before(next, best)) best = next;
    }
    if (k == 0) highest = best.logit;
    taken[best.expert] = true;
    chosen[k] = best.expert;
    chosen_sum += share[k] = expf(best.logit - highest);
  }
  for (uint32_t e = 0; e < n_experts; ++e) sum += expf(without_nan(x[e]) - highest);
  const bool padding = set.token_sequence[i] == BLINK_NO_SEQUENCE;
  for (uint32_t k = 0; k < per_token; ++k) {
    share[k] = padding ? 0.0f : share[k] / (renormalise ? chosen_sum : sum);
    if (padding) chosen[k] = kNoExpert;
  }
}

#else

constexpr uint32_t kRouteWarps = 4;
constexpr uint32_t kRoutePerLane = kMaxExperts / 32;

/* These turn a logit into an integer of the same order and back. No logit has the key zero. -0 counts as 0. */
__device__ __forceinline__ uint32_t logit_key(float logit) {
  const uint32_t bits = __float_as_uint(without_nan(logit) + 0.0f);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ float key_logit(uint32_t key) {
  return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

/* A warp's top-k routing of one token. A lane holds the logits of kRoutePerLane experts from kRoutePerLane * lane on,
 * and the lane-th of the routed experts. */
class TopK {
 public:
  /* The logit of expert e is logit(e). */
  template <typename Logit>
  __device__ __forceinline__ TopK(uint32_t n_experts, const Logit& logit) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t j = 0; j < kRoutePerLane; ++j) {
      const uint32_t e = kRoutePerLane * lane + j;
      logit_[j] = e < n_experts ? without_nan(logit(e)) : -INFINITY;
      key_[j] = e < n_experts ? logit_key(logit_[j]) : 0;
    }
  }

  /* `logits` [n_experts]. */
  __device__ __forceinline__ TopK(const float* logits, uint32_t n_experts)
      : TopK(n_experts, [&](uint32_t e) { return logits[e]; }) {}

  /* Returns the lane's routed expert; lanes from per_token on get kNoExpert. In each round the lane that holds the
   * highest key removes it; of several such lanes it is the first, whose experts have the lower ids. */
  __device__ __forceinline__ uint32_t choose(uint32_t per_token) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t expert = kNoExpert;
#pragma unroll 1
    for (uint32_t k = 0; k < per_token; ++k) {
      uint32_t own = 0, at = 0;
#pragma unroll
      for (uint32_t j = 0; j < kRoutePerLane; ++j) own = max(own, key_[j]);
      const uint32_t best = __reduce_max_sync(0xffffffffu, own);
      const uint32_t winner = uint32_t(__ffs(__ballot_sync(0xffffffffu, own == best))) - 1;
#pragma unroll
      for (uint32_t j = kRoutePerLane; j-- > 0;)
        if (key_[j] == best) at = j;
#pragma unroll
      for (uint32_t j = 0; j < kRoutePerLane; ++j)
        if (lane == winner && j == at) key_[j] = 0;
      const uint32_t chosen = kRoutePerLane * winner + __shfl_sync(0xffffffffu, at, int(winner));
      if (k == 0) highest_ = best;
      if (lane == k) mine_ = best, expert = chosen;
    }
    return expert;
  }

  /* Returns the weight of the lane's routed expert. */
  __device__ __forceinline__ float weight(uint32_t per_token, bool renormalise) const {
    const float highest = key_logit(highest_);
    const float own = threadIdx.x % 32 < per_token ? expf(key_logit(mine_) - highest) : 0.0f;
    float all = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kRoutePerLane; ++j) all += expf(logit_[j] - highest);
    return own / warp_sum(renormalise ? own : all);
  }

 private:
  uint32_t key_[kRoutePerLane], mine_ = 0, highest_ = 0;
  float logit_[kRoutePerLane];
};

/* A warp routes token i, whose logit of expert e is logit(e), and writes the experts and their weights. */
template <typename Logit>
__device__ __forceinline__ void route_token(const struct blink_step_set& set, const Logit& logit, uint32_t* topk_ids,
                                            float* weight, uint32_t n_experts, uint32_t per_token, bool renormalise,
                                            uint32_t i) {
  const uint32_t lane = threadIdx.x % 32;
  const bool padding = set.token_sequence[i] == BLINK_NO_SEQUENCE;
  TopK chooser(n_experts, logit);
  const uint32_t expert = chooser.choose(per_token);
  const float share = chooser.weight(per_token, renormalise);
  if (lane >= per_token) return;
  topk_ids[i * per_token + lane] = padding ? kNoExpert : expert;
  weight[i * per_token + lane] = padding ? 0.0f : share;
}

/* grid (ceil(tokens / kRouteWarps)), block (32 * kRouteWarps): one warp per token. */
template <typename = void>
__global__ void route_kernel(struct blink_step_set set, const float* logits, uint32_t* topk_ids, float* weight,
                             uint32_t tokens, uint32_t n_experts, uint32_t per_token, uint32_t renormalise) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t i = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  const auto logit = [&](uint32_t e) { return logits[uint64_t(i) * n_experts + e]; };
  if (i < tokens) route_token(set, logit, topk_ids, weight, n_experts, per_token, renormalise, i);
}

/* The same with the router's bias [n_experts], which the logits lack. */
template <typename Half>
__global__ void route_biased_kernel(struct blink_step_set set, const float* logits, const Half* bias,
                                    uint32_t* topk_ids, float* weight, uint32_t tokens, uint32_t n_experts,
                                    uint32_t per_token, uint32_t renormalise) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t i = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  const auto logit = [&](uint32_t e) { return logits[uint64_t(i) * n_experts + e] + to_float(bias[e]); };
  if (i < tokens) route_token(set, logit, topk_ids, weight, n_experts, per_token, renormalise, i);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_ROUTING_H */
