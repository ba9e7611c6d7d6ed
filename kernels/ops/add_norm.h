/* Add norm: what stands between a sublayer and the next where a model norms a sublayer's output, too, as Gemma 3 does
 * (sandwich norms): residual[t] += rmsnorm(x[t]) * weight, and of the sum out[t] = rmsnorm(residual[t]) * next.
 *
 *   x             [tokens][hidden] half (fp32 on the host): output of the o or down projection
 *   residual      [tokens][hidden] fp32
 *   weight, next  [hidden]; next may be null, and out is not written then
 *   out           [tokens][hidden] half (fp32 on the host)
 */
#ifndef BLINK_OPS_ADD_NORM_H
#define BLINK_OPS_ADD_NORM_H

#include "norm.h"

namespace blink {

#ifndef __CUDACC__

inline void add_rmsnorm(float* residual, const float* x, const float* weight, const float* next, float eps, float* out,
                        uint32_t n) {
  float sum = 0.0f;
  for (uint32_t j = 0; j < n; ++j) sum += x[j] * x[j];
  const float scale = 1.0f / sqrtf(sum / float(n) + eps);
  for (uint32_t j = 0; j < n; ++j) residual[j] += x[j] * scale * weight[j];
  if (next) rmsnorm(residual, next, eps, out, n);
}

#else

/* grid (tokens), block (any multiple of 32); hidden is a multiple of 8. What both norms share is the row: each thread
 * reads again only what it has written itself. */
template <typename Half>
__global__ void add_rmsnorm_kernel(float* residual, const Half* x, const Half* weight, const Half* next, float eps,
                                   Half* out, uint32_t hidden) {
  __shared__ float scratch[32];
  allow_successor();
  wait_for_predecessor();
  const uint64_t t = uint64_t(blockIdx.x) * hidden;
  const uint32_t first = threadIdx.x * 8, step = blockDim.x * 8;
  float squares = 0.0f;
  for (uint32_t j = first; j < hidden; j += step) {
    float value[8];
    load8(x + t + j, value);
#pragma unroll
    for (int k = 0; k < 8; ++k) squares += value[k] * value[k];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / float(hidden) + eps);
  squares = 0.0f;
  for (uint32_t j = first; j < hidden; j += step) {
    float value[8], factor[8], sum[8];
    load8(x + t + j, value), load8(weight + j, factor), load8(residual + t + j, sum);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      sum[k] += value[k] * scale * factor[k];
      squares += sum[k] * sum[k];
    }
    store8(residual + t + j, sum);
  }
  if (!next) return;
  const float of_sum = 1.0f / sqrtf(block_sum(squares, scratch) / float(hidden) + eps);
  for (uint32_t j = first; j < hidden; j += step) {
    float value[8], factor[8];
    load8(residual + t + j, value), load8(next + j, factor);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] *= of_sum * factor[k];
    store8(out + t + j, value);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ADD_NORM_H */
