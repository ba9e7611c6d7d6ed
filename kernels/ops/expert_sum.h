/* Expert sum: the weighted sum of what a token's experts put out, in the order of `choice`; zero for padding. The CPU
 * twin writes it to delta, the kernel adds it to the residual.
 *
 *   rows    [tokens][per_token][hidden] half (fp32 on the host)
 *   choice, weight  [tokens][per_token] (route.h)
 *   delta, residual [tokens][hidden] fp32
 */
#ifndef BLINK_OPS_EXPERT_SUM_H
#define BLINK_OPS_EXPERT_SUM_H

#include "norm.h"
#include "route.h"

namespace blink {

#ifndef __CUDACC__

inline void expert_sum(const float* rows, const uint32_t* choice, const float* weight, float* delta, uint32_t hidden,
                       uint32_t per_token, uint32_t i) {
  float* out = delta + uint64_t(i) * hidden;
  for (uint32_t j = 0; j < hidden; ++j) out[j] = 0.0f;
  for (uint64_t p = uint64_t(i) * per_token; p < uint64_t(i + 1) * per_token; ++p)
    if (choice[p] != kNoExpert)
      for (uint32_t j = 0; j < hidden; ++j) out[j] += weight[p] * rows[p * hidden + j];
}

#else

/* Adds a token's experts to its residual from j = 8 threadIdx.x on and returns the thread's sum of squares of what that
 * makes; n is 0 for padding. hidden is a multiple of 8. */
template <typename Half>
__device__ __forceinline__ float add_experts(const Half* rows, const float* weight, float* residual, uint32_t hidden,
                                             uint32_t n) {
  float squares = 0.0f;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float sum[8];
    load8(residual + j, sum);
#pragma unroll 8
    for (uint32_t k = 0; k < n; ++k) {
      const float share = weight[k];
      float row[8];
      load8(rows + uint64_t(k) * hidden + j, row);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] += share * row[e];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) squares += sum[e] * sum[e];
    store8(residual + j, sum);
  }
  return squares;
}

/* grid (tokens), block (any multiple of 32). */
template <typename Half>
__global__ void expert_sum_kernel(const Half* rows, const uint32_t* choice, const float* weight, float* residual,
                                  uint32_t hidden, uint32_t per_token) {
  allow_successor();
  wait_for_predecessor();
  const uint64_t t = blockIdx.x, first = t * per_token;
  const uint32_t n = choice[first] == kNoExpert ? 0 : per_token;
  add_experts(rows + first * hidden, weight + first, residual + t * hidden, hidden, n);
}

/* The same, and then the norm of what comes next: out = rmsnorm(residual). grid (tokens), block (any multiple of 32).
 */
template <typename Half>
__global__ void expert_sum_rmsnorm_kernel(const Half* rows, const uint32_t* choice, const float* weight,
                                          float* residual, const Half* norm, float eps, Half* out, uint32_t hidden,
                                          uint32_t per_token) {
  __shared__ float scratch[32];
  allow_successor();
  wait_for_predecessor();
  const uint64_t t = blockIdx.x, first = t * per_token;
  const uint32_t n = choice[first] == kNoExpert ? 0 : per_token;
  float* row = residual + t * hidden;
  const float squares = add_experts(rows + first * hidden, weight + first, row, hidden, n);
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / float(hidden) + eps);
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) { /* what add_experts wrote in this thread */
    float value[8], factor[8];
    load8(row + j, value);
    load8(norm + j, factor);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] *= scale * factor[k];
    store8(out + t * hidden + j, value);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_EXPERT_SUM_H */
