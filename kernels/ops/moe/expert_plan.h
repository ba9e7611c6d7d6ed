/* Expert plan: a step's (token, expert) pairs in the order of their experts, split into units of work: at most
 * unit_tokens pairs of one expert, which the expert kernels take one by one.
 *
 *   topk_ids [tokens][per_token]; pair p is entry p: token p / per_token and its expert. kNoExpert is no pair
 *   pairs   [tokens * per_token]: pair ids, by expert and then ascending
 *   plan    [1 + max units]: plan[0].count is the number of units, plan[1 + u] unit u, by expert
 *
 * There are at most n / unit_tokens + min(experts, n) units of n pairs.
 */
#ifndef BLINK_OPS_MOE_EXPERT_PLAN_H
#define BLINK_OPS_MOE_EXPERT_PLAN_H

#include "routing.h"

namespace blink {

/* Pairs first.. first + count - 1 of the sorted list, all of one expert. small_batch_plan.h alone says how many groups
 * of kPairGroup pairs the units before have. */
struct alignas(16) ExpertUnit {
  uint32_t expert, first, count, groups_before;
};

#ifndef __CUDACC__

inline void plan_experts(const uint32_t* topk_ids, ExpertUnit* plan, uint32_t* pairs, uint32_t tokens,
                         uint32_t n_experts, uint32_t per_token, uint32_t unit_tokens) {
  uint32_t n = 0, units = 0;
  for (uint32_t expert = 0; expert < n_experts; ++expert) {
    const uint32_t first = n;
    for (uint32_t p = 0; p < tokens * per_token; ++p)
      if (topk_ids[p] == expert) pairs[n++] = p;
    for (uint32_t at = first; at < n; at += unit_tokens)
      plan[1 + units++] = {expert, at, n - at < unit_tokens ? n - at : unit_tokens, 0};
  }
  plan[0] = {0, 0, units, 0};
}

#else

constexpr uint32_t kPlanThreads = 1024;
constexpr uint32_t kPlanWords = 16, kPlanTokens = 32 * kPlanWords; /* that a block puts in order */

/* A block's tables. One more word a row: neighbouring experts' words lie in different banks. */
struct PlanTables {
  uint32_t count[kMaxExperts], earlier[kMaxExperts]; /* pairs of an expert, and those of earlier blocks */
  uint32_t next[kMaxExperts];                        /* where the expert's first pair goes */
  uint32_t mask[kMaxExperts][kPlanWords + 1];        /* a bit per token that chose the expert */
  uint32_t place[kMaxExperts][kPlanWords + 1];       /* where the first pair of 32 tokens goes */
};

__device__ __forceinline__ void clear(PlanTables& table, uint32_t n_experts) {
  for (uint32_t e = threadIdx.x; e < n_experts; e += kPlanThreads) {
    table.count[e] = table.earlier[e] = 0;
#pragma unroll
    for (uint32_t word = 0; word < kPlanWords; ++word) table.mask[e][word] = 0;
  }
}

/* Calls body(pair, its expert) for the thread's of pairs begin..end - 1, `Ahead` of which are loaded together. */
template <uint32_t Ahead, typename Body>
__device__ __forceinline__ void for_each_pair(const uint32_t* topk_ids, uint32_t begin, uint32_t end,
                                              const Body& body) {
  for (uint32_t base = begin + threadIdx.x; base < end; base += Ahead * kPlanThreads) {
    uint32_t expert[Ahead];
#pragma unroll
    for (uint32_t i = 0; i < Ahead; ++i)
      expert[i] = base + i * kPlanThreads < end ? topk_ids[base + i * kPlanThreads] : kNoExpert;
#pragma unroll
    for (uint32_t i = 0; i < Ahead; ++i)
      if (expert[i] != kNoExpert) body(base + i * kPlanThreads, expert[i]);
  }
}

/* Where each expert's pairs go, and, if `write`, the units. One warp. */
__device__ __forceinline__ void cut_units(PlanTables& table, ExpertUnit* plan, uint32_t n_experts, uint32_t unit_tokens,
                                          bool write) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t before = 0; /* pairs, and units in the upper half, of the experts so far */
  for (uint32_t base = 0; base < n_experts; base += 32) {
    const uint32_t e = base + lane, n = e < n_experts ? table.count[e] : 0;
    const uint32_t units = (n + unit_tokens - 1) / unit_tokens;
    const uint64_t mine = uint64_t(units) << 32 | n, upto = before + warp_scan(mine);
    const uint32_t first = uint32_t(upto - mine), unit = uint32_t((upto - mine) >> 32);
    if (e < n_experts) table.next[e] = first;
    for (uint32_t u = 0; write && u < units; ++u) {
      const uint32_t at = u * unit_tokens;
      plan[1 + unit + u] = {e, first + at, min(unit_tokens, n - at), 0};
    }
    before = __shfl_sync(0xffffffffu, upto, 31);
  }
  if (write && lane == 0) plan[0] = {0, 0, uint32_t(before >> 32), 0};
}

/* table.place, half a warp an expert. */
__device__ __forceinline__ void find_places(PlanTables& table, uint32_t n_experts) {
  const uint32_t lane = threadIdx.x % 32, word = lane % kPlanWords;
  for (uint32_t first = threadIdx.x / 32 * 2; first < n_experts; first += kPlanThreads / 32 * 2) {
    const uint32_t e = first + lane / kPlanWords;
    const uint32_t n = e < n_experts ? __popc(table.mask[e][word]) : 0;
    uint64_t upto = warp_scan(n);
    const uint64_t other = __shfl_sync(0xffffffffu, upto, kPlanWords - 1); /* all of the first expert's */
    if (lane >= kPlanWords) upto -= other;
    if (e < n_experts) table.place[e][word] = table.next[e] + table.earlier[e] + uint32_t(upto) - n;
  }
}

/* grid (ceil(tokens / kPlanTokens)), block (kPlanThreads). Every block counts all pairs and puts a part of the pairs
 * in order: a bit per token and expert gives each its place. The first writes the units. */
template <typename = void>
__global__ void __launch_bounds__(kPlanThreads)
    expert_plan_kernel(const uint32_t* topk_ids, ExpertUnit* plan, uint32_t* pairs, uint32_t tokens, uint32_t n_experts,
                       uint32_t per_token, uint32_t unit_tokens) {
  __shared__ PlanTables table;
  const uint32_t first = blockIdx.x * kPlanTokens, n = min(tokens - first, kPlanTokens);
  const uint32_t begin = first * per_token, end = begin + n * per_token;
  allow_successor();
  clear(table, n_experts);
  wait_for_predecessor();
  __syncthreads();
  for_each_pair<16>(topk_ids, 0, tokens * per_token, [&](uint32_t p, uint32_t e) {
    atomicAdd(&table.count[e], 1u);
    if (p < begin) atomicAdd(&table.earlier[e], 1u);
    if (p < begin || p >= end) return;
    const uint32_t t = p / per_token - first;
    atomicOr(&table.mask[e][t / 32], 1u << t % 32);
  });
  __syncthreads();
  if (threadIdx.x < 32) cut_units(table, plan, n_experts, unit_tokens, blockIdx.x == 0);
  __syncthreads();
  find_places(table, n_experts);
  __syncthreads();
  for_each_pair<4>(topk_ids, begin, end, [&](uint32_t p, uint32_t e) {
    const uint32_t t = p / per_token - first;
    pairs[table.place[e][t / 32] + __popc(table.mask[e][t / 32] & ((1u << t % 32) - 1))] = p;
  });
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_EXPERT_PLAN_H */
