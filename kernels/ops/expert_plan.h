/* Expert plan: a step's (token, expert) pairs in the order of their experts, cut into units of work: at most
 * unit_tokens pairs of one expert, which the expert kernels take one by one.
 *
 *   choice  [tokens][per_token]; pair p is choice p: token p / per_token and its expert. kNoExpert is no pair
 *   pairs   [tokens * per_token]: pair ids, by expert and then ascending
 *   plan    [1 + max units]: plan[0].count is the number of units, plan[1 + u] unit u, by expert
 *
 * There are at most n / unit_tokens + min(experts, n) units of n pairs.
 */
#ifndef BLINK_OPS_EXPERT_PLAN_H
#define BLINK_OPS_EXPERT_PLAN_H

#include "route.h"

namespace blink {

/* Pairs first.. first + count - 1 of the sorted list, all of one expert. */
struct alignas(16) ExpertUnit {
  uint32_t expert, first, count, reserved;
};

#ifndef __CUDACC__

inline void plan_experts(const uint32_t* choice, ExpertUnit* plan, uint32_t* pairs, uint32_t tokens, uint32_t n_experts,
                         uint32_t per_token, uint32_t unit_tokens) {
  uint32_t n = 0, units = 0;
  for (uint32_t expert = 0; expert < n_experts; ++expert) {
    const uint32_t first = n;
    for (uint32_t p = 0; p < tokens * per_token; ++p)
      if (choice[p] == expert) pairs[n++] = p;
    for (uint32_t at = first; at < n; at += unit_tokens)
      plan[1 + units++] = {expert, at, n - at < unit_tokens ? n - at : unit_tokens, 0};
  }
  plan[0] = {0, 0, units, 0};
}

#else

constexpr uint32_t kPlanThreads = 1024;
constexpr uint32_t kPlanWords = 16; /* of 32 tokens: 512 tokens are sorted at a time */

/* Writes the units, and to next[expert] the place of the expert's first pair. One warp. */
__device__ __forceinline__ void cut_units(const uint32_t* count, uint32_t* next, ExpertUnit* plan, uint32_t n_experts,
                                          uint32_t unit_tokens) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t before = 0; /* pairs, and units in the upper half, of the experts so far */
  for (uint32_t base = 0; base < n_experts; base += 32) {
    const uint32_t e = base + lane, n = e < n_experts ? count[e] : 0;
    const uint32_t units = (n + unit_tokens - 1) / unit_tokens;
    const uint64_t mine = uint64_t(units) << 32 | n, upto = before + warp_scan(mine);
    const uint32_t first = uint32_t(upto - mine), unit = uint32_t((upto - mine) >> 32);
    if (e < n_experts) next[e] = first;
    for (uint32_t u = 0; u < units; ++u) {
      const uint32_t at = u * unit_tokens;
      plan[1 + unit + u] = {e, first + at, min(unit_tokens, n - at), 0};
    }
    before = __shfl_sync(0xffffffffu, upto, 31);
  }
  if (lane == 0) plan[0] = {0, 0, uint32_t(before >> 32), 0};
}

/* grid (1), block (kPlanThreads). A bit per token and expert gives each pair its place: the number of lower
 * tokens of its expert. */
__global__ void __launch_bounds__(kPlanThreads)
    expert_plan_kernel(const uint32_t* choice, ExpertUnit* plan, uint32_t* pairs, uint32_t tokens, uint32_t n_experts,
                       uint32_t per_token, uint32_t unit_tokens) {
  __shared__ uint32_t count[kMaxExperts], next[kMaxExperts], mask[kMaxExperts][kPlanWords];
  allow_successor();
  wait_for_predecessor();
  for (uint32_t e = threadIdx.x; e < n_experts; e += kPlanThreads) count[e] = 0;
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < tokens * per_token; p += kPlanThreads)
    if (choice[p] != kNoExpert) atomicAdd(&count[choice[p]], 1u);
  __syncthreads();
  if (threadIdx.x < 32) cut_units(count, next, plan, n_experts, unit_tokens);

  for (uint32_t first = 0; first < tokens; first += 32 * kPlanWords) {
    const uint32_t n = min(tokens - first, 32 * kPlanWords), words = (n + 31) / 32;
    const uint32_t begin = first * per_token, end = begin + n * per_token;
    for (uint32_t at = threadIdx.x; at < n_experts * words; at += kPlanThreads) mask[at / words][at % words] = 0;
    __syncthreads(); /* next is there, too */
    for (uint32_t p = begin + threadIdx.x; p < end; p += kPlanThreads) {
      const uint32_t t = p / per_token - first;
      if (choice[p] != kNoExpert) atomicOr(&mask[choice[p]][t / 32], 1u << t % 32);
    }
    __syncthreads();
    for (uint32_t p = begin + threadIdx.x; p < end; p += kPlanThreads) {
      const uint32_t t = p / per_token - first, e = choice[p];
      if (e == kNoExpert) continue;
      uint32_t place = next[e] + __popc(mask[e][t / 32] & ((1u << t % 32) - 1));
      for (uint32_t word = 0; word < t / 32; ++word) place += __popc(mask[e][word]);
      pairs[place] = p;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < n_experts; e += kPlanThreads)
      for (uint32_t word = 0; word < words; ++word) next[e] += __popc(mask[e][word]);
    __syncthreads();
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_EXPERT_PLAN_H */
