/* RMSNorm: out[i] = x[i] / sqrt(mean(x[i]^2) + eps) * weight, and the same after adding a sublayer's output
 * to the residual.
 *
 *   residual  [tokens][hidden] fp32; with delta: residual[i] += delta[i] first
 *   delta     [tokens][hidden] half: output of the o or down projection
 *   weight    [hidden]
 *   out       [tokens][hidden] half (fp32 on the host)
 */
#ifndef BLINK_OPS_NORM_H
#define BLINK_OPS_NORM_H

#include "common.h"

namespace blink {

#ifndef __CUDACC__

inline void rmsnorm(const float* x, const float* weight, float eps, float* out, uint32_t n) {
  float sum = 0.0f;
  for (uint32_t j = 0; j < n; ++j) sum += x[j] * x[j];
  const float scale = 1.0f / sqrtf(sum / float(n) + eps);
  for (uint32_t j = 0; j < n; ++j) out[j] = x[j] * scale * weight[j];
}

inline void residual_rmsnorm(float* residual, const float* delta, const float* weight, float eps, float* out,
                             uint32_t n) {
  for (uint32_t j = 0; j < n; ++j) residual[j] += delta[j];
  rmsnorm(residual, weight, eps, out, n);
}

#else

/* One block normalises one row; sum is the block's sum of squares. hidden is a multiple of 8. */
template <typename Half>
__device__ __forceinline__ void normalise(const float* x, float sum, const Half* weight, float eps, Half* out,
                                          uint32_t hidden) {
  const float scale = 1.0f / sqrtf(sum / float(hidden) + eps);
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float value[8], factor[8];
    load8(x + j, value);
    load8(weight + j, factor);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] = value[k] * scale * factor[k];
    store8(out + j, value);
  }
}

/* grid (tokens), block (any multiple of 32). */
template <typename Half>
__global__ void rmsnorm_kernel(const float* residual, const Half* weight, float eps, Half* out, uint32_t hidden) {
  __shared__ float scratch[32];
  const float* x = residual + uint64_t(blockIdx.x) * hidden;
  float sum = 0.0f;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float value[8];
    load8(x + j, value);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += value[k] * value[k];
  }
  normalise(x, block_sum(sum, scratch), weight, eps, out + uint64_t(blockIdx.x) * hidden, hidden);
}

/* Adds delta to one row and returns the thread's share of the sum of squares. A thread normalises the
 * elements that it added, so no fence is needed in between. */
template <typename Half>
__device__ __forceinline__ float add_residual(float* x, const Half* delta, uint32_t hidden) {
  float sum = 0.0f;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float value[8], add[8];
    load8(x + j, value);
    load8(delta + j, add);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] += add[k], sum += value[k] * value[k];
    store8(x + j, value);
  }
  return sum;
}

/* grid (tokens), block (any multiple of 32). */
template <typename Half>
__global__ void residual_rmsnorm_kernel(float* residual, const Half* delta, const Half* weight, float eps, Half* out,
                                        uint32_t hidden) {
  __shared__ float scratch[32];
  const uint64_t t = uint64_t(blockIdx.x) * hidden;
  const float sum = add_residual(residual + t, delta + t, hidden);
  normalise<Half>(residual + t, block_sum(sum, scratch), weight, eps, out + t, hidden);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_NORM_H */
