/* Route: the experts of each token and their weights: of the softmax over all experts' logits the per_token
 * highest, which `renormalise` makes sum to 1 (Qwen3-MoE's norm_topk_prob).
 *
 *   logits  [tokens][n_experts] fp32: the router's product with the token
 *   choice  [tokens][per_token] uint32, highest first; kNoExpert for padding (E3)
 *   weight  [tokens][per_token] fp32
 *
 * Of equal logits the lower id comes first; NaN counts as -infinity, so that a token always has per_token
 * different experts.
 */
#ifndef BLINK_OPS_ROUTE_H
#define BLINK_OPS_ROUTE_H

#include "common.h"

namespace blink {

constexpr uint32_t kNoExpert = 0xffffffffu;
constexpr uint32_t kMaxExperts = 256;

/* An expert and its logit. */
struct Candidate {
  float logit;
  uint32_t expert; /* kNoExpert: nobody */
};

BLINK_HD bool goes_before(const Candidate& a, const Candidate& b) {
  if (a.expert == kNoExpert || b.expert == kNoExpert) return b.expert == kNoExpert && a.expert != kNoExpert;
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

BLINK_HD float without_nan(float x) {
  return x == x ? x : -INFINITY;
}

#ifndef __CUDACC__

inline void route(const struct blink_step_set& set, const float* logits, uint32_t* choice, float* weight,
                  uint32_t n_experts, uint32_t per_token, bool renormalise, uint32_t i) {
  const float* x = logits + uint64_t(i) * n_experts;
  uint32_t* chosen = choice + uint64_t(i) * per_token;
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
  const bool padding = set.token_row[i] == BLINK_NO_ROW;
  for (uint32_t k = 0; k < per_token; ++k) {
    share[k] = padding ? 0.0f : share[k] / (renormalise ? chosen_sum : sum);
    if (padding) chosen[k] = kNoExpert;
  }
}

#else

constexpr uint32_t kRouteWarps = 4;
constexpr uint32_t kRoutePerLane = kMaxExperts / 32;

/* The best of the warp's candidates, in every lane. */
__device__ __forceinline__ Candidate warp_best(Candidate best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const Candidate other = {__shfl_xor_sync(0xffffffffu, best.logit, offset),
                             __shfl_xor_sync(0xffffffffu, best.expert, offset)};
    if (goes_before(other, best)) best = other;
  }
  return best;
}

/* grid (ceil(tokens / kRouteWarps)), block (32 * kRouteWarps): a warp a token; a lane holds the experts lane,
 * lane + 32, ... and, of those chosen, the lane-th. */
__global__ void route_kernel(struct blink_step_set set, const float* logits, uint32_t* choice, float* weight,
                             uint32_t tokens, uint32_t n_experts, uint32_t per_token, uint32_t renormalise) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  if (i >= tokens) return; /* whole warps: shuffles stay safe */
  const uint64_t at = uint64_t(i) * per_token + lane;
  if (set.token_row[i] == BLINK_NO_ROW) {
    if (lane < per_token) choice[at] = kNoExpert, weight[at] = 0.0f;
    return;
  }
  float x[kRoutePerLane];
#pragma unroll
  for (uint32_t j = 0; j < kRoutePerLane; ++j) {
    const uint32_t e = lane + 32 * j;
    x[j] = e < n_experts ? without_nan(logits[uint64_t(i) * n_experts + e]) : 0.0f;
  }
  uint32_t taken = 0;
  float highest = 0.0f;
  Candidate mine = {-INFINITY, kNoExpert};
  for (uint32_t k = 0; k < per_token; ++k) {
    Candidate best = {0.0f, kNoExpert};
#pragma unroll
    for (uint32_t j = 0; j < kRoutePerLane; ++j) {
      const Candidate next = {x[j], lane + 32 * j};
      if (next.expert < n_experts && !(taken >> j & 1) && goes_before(next, best)) best = next;
    }
    best = warp_best(best);
    if (k == 0) highest = best.logit;
    if (lane == k) mine = best;
    if (lane == best.expert % 32) taken |= 1u << best.expert / 32;
  }
  float share = lane < per_token ? expf(mine.logit - highest) : 0.0f, all = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kRoutePerLane; ++j)
    if (lane + 32 * j < n_experts) all += expf(x[j] - highest);
  share /= warp_sum(renormalise ? share : all);
  if (lane < per_token) choice[at] = mine.expert, weight[at] = share;
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ROUTE_H */
