/* Expert sum: the weighted sum of what a token's experts put out, in the order of `choice`; zero for padding. The CPU
 * twin writes it to delta, the kernel adds it to the residual.
 *
 *   rows    [tokens][per_token][hidden] half (fp32 on the host)
 *   choice, weight  [tokens][per_token] (route.h)
 *   delta, residual [tokens][hidden] fp32
 */
#ifndef BLINK_OPS_EXPERT_SUM_H
#define BLINK_OPS_EXPERT_SUM_H

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

/* grid (tokens), block (any); hidden is a multiple of 8. */
template <typename Half>
__global__ void expert_sum_kernel(const Half* rows, const uint32_t* choice, const float* weight, float* residual,
                                  uint32_t hidden, uint32_t per_token) {
  allow_successor();
  wait_for_predecessor();
  const uint64_t first = uint64_t(blockIdx.x) * per_token;
  const uint32_t n = choice[first] == kNoExpert ? 0 : per_token;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float* target = residual + uint64_t(blockIdx.x) * hidden + j;
    float sum[8];
    load8(target, sum);
#pragma unroll 4
    for (uint32_t k = 0; k < n; ++k) {
      const float share = weight[first + k];
      float row[8];
      load8(rows + (first + k) * hidden + j, row);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] += share * row[e];
    }
    store8(target, sum);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_EXPERT_SUM_H */
