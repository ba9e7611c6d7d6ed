/* MoE combine: the weighted sum of what a token's experts put out, in the order of `topk_ids`; zero for padding. What
 * an expert puts out is its row plus its bias, if experts have one. The
 * CPU reference writes it to delta, the kernel adds it to the residual.
 *
 *   rows    [tokens][per_token][hidden] half (fp32 on the host)
 *   topk_ids, weight [tokens][per_token] (routing.h)
 *   bias    [experts][hidden], or null: of down
 *   delta, residual [tokens][hidden] fp32
 */
#ifndef BLINK_OPS_MOE_COMBINE_H
#define BLINK_OPS_MOE_COMBINE_H

#include "kernels/ops/norm.h"
#include "routing.h"

namespace blink {

#ifndef __CUDACC__

inline void moe_combine(const float* rows, const uint32_t* topk_ids, const float* weight, const float* bias,
                        float* delta, uint32_t hidden, uint32_t per_token, uint32_t i) {
  float* out = delta + uint64_t(i) * hidden;
  for (uint32_t j = 0; j < hidden; ++j) out[j] = 0.0f;
  for (uint64_t p = uint64_t(i) * per_token; p < uint64_t(i + 1) * per_token; ++p)
    if (topk_ids[p] != kNoExpert)
      for (uint32_t j = 0; j < hidden; ++j)
        out[j] += weight[p] * (rows[p * hidden + j] + (bias ? bias[uint64_t(topk_ids[p]) * hidden + j] : 0.0f));
}

#else

constexpr uint32_t kSumAhead = 8; /* experts whose outputs are loaded together */

/* Adds a token's experts to its residual from j = 8 threadIdx.x on, and returns the thread's sum of squares of what
 * that makes; nothing is added for padding. No load waits for another: this is a step's only work meanwhile. hidden is
 * a multiple of 8. */
template <bool Biased, typename Half>
__device__ __forceinline__ float combine_experts(const Half* rows, const uint32_t* topk_ids, const float* weight,
                                                 const Half* bias, float* residual, uint32_t hidden,
                                                 uint32_t per_token) {
  float squares = 0.0f;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    const bool padding = topk_ids[0] == kNoExpert;
    float sum[8];
    load8(residual + j, sum);
    for (uint32_t first = 0; first < per_token; first += kSumAhead) {
      uint4 row[kSumAhead], more[Biased ? kSumAhead : 1];
      float share[kSumAhead];
#pragma unroll
      for (uint32_t k = 0; k < kSumAhead; ++k) {
        if (first + k >= per_token) break;
        share[k] = weight[first + k];
        row[k] = *reinterpret_cast<const uint4*>(rows + uint64_t(first + k) * hidden + j);
        if (Biased && !padding)
          more[k] = *reinterpret_cast<const uint4*>(bias + uint64_t(topk_ids[first + k]) * hidden + j);
      }
#pragma unroll
      for (uint32_t k = 0; k < kSumAhead; ++k) {
        if (first + k >= per_token || padding) break;
        const Half* value = reinterpret_cast<const Half*>(&row[k]);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const float own = Biased ? to_float(reinterpret_cast<const Half*>(&more[k])[e]) : 0.0f;
          sum[e] += Biased ? share[k] * (to_float(value[e]) + own) : share[k] * to_float(value[e]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) squares += sum[e] * sum[e];
    store8(residual + j, sum);
  }
  return squares;
}

/* grid (tokens), block (any multiple of 32). Biased: `bias` [experts][hidden] is that of down, null otherwise. */
template <typename Half, bool Biased = false>
__global__ void moe_combine_kernel(const Half* rows, const uint32_t* topk_ids, const float* weight, float* residual,
                                   uint32_t hidden, uint32_t per_token, const Half* bias) {
  allow_successor();
  wait_for_predecessor();
  const uint64_t t = blockIdx.x, first = t * per_token;
  combine_experts<Biased>(rows + first * hidden, topk_ids + first, weight + first, bias, residual + t * hidden, hidden,
                          per_token);
}

/* The same, and then the norm of what comes next: out = rmsnorm(residual). grid (tokens), block (any multiple of 32).
 * The norm's weights at the thread's first elements, all of them if hidden is at most 8 times the block, have come
 * before the rows are there. Biased: `bias`, and what the residual gets behind the norm, `adds` [hidden] (norm.h). */
template <typename Half, bool Biased = false>
__global__ void moe_combine_rmsnorm_kernel(const Half* rows, const uint32_t* topk_ids, const float* weight,
                                           float* residual, const Half* norm, float eps, Half* out, uint32_t hidden,
                                           uint32_t per_token, const Half* bias, const Half* adds) {
  __shared__ float scratch[32];
  const uint32_t begin = threadIdx.x * 8, step = blockDim.x * 8;
  allow_successor();
  uint4 early = {};
  load_weight(norm + begin, begin < hidden, early);
  wait_for_predecessor();
  const uint64_t t = blockIdx.x, first = t * per_token;
  float* row = residual + t * hidden;
  const float squares =
      combine_experts<Biased>(rows + first * hidden, topk_ids + first, weight + first, bias, row, hidden, per_token);
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / float(hidden) + eps);
  for (uint32_t j = begin; j < hidden; j += step) { /* what combine_experts wrote in this thread */
    if (j != begin) early = *reinterpret_cast<const uint4*>(norm + j);
    const Half* factor = reinterpret_cast<const Half*>(&early);
    float value[8];
    load8(row + j, value);
    if (Biased && adds) add_to(row + j, value, adds + j);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] *= scale * to_float(factor[k]);
    store8(out + t * hidden + j, value);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_COMBINE_H */
