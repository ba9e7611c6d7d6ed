/* RMSNorm: out[i] = x[i] / sqrt(mean(x[i]^2) + eps) * weight, and the same after adding a sublayer's output
 * to the residual.
 *
 *   residual  [tokens][hidden] fp32; with delta: residual[i] += delta[i] first
 *   delta     [tokens][hidden] half: output of the o or down projection
 *   weight    [hidden]
 *   adds      [hidden]: what the residual gets once it has been normed. The bias of attention's output projection gets
 *             there so: between a layer's first norm and the projection, which adds to the residual, nothing reads it.
 *   out       [tokens][hidden] half (fp32 on the host)
 */
#ifndef BLINK_OPS_NORM_H
#define BLINK_OPS_NORM_H

#include "kernels/primitives/common.h"

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

/* x[0..8) = value + what `adds` has there. */
template <typename Half>
__device__ __forceinline__ void add_to(float* x, const float (&value)[8], const Half* adds) {
  float sum[8];
  load8(adds, sum);
#pragma unroll
  for (int k = 0; k < 8; ++k) sum[k] += value[k];
  store8(x, sum);
}

/* One block normalises one row; hidden is a multiple of 8. The first 8 elements of a thread stay in registers: all of
 * them, if hidden is at most 8 times the block. */
template <bool Adds = false, typename Half>
__device__ __forceinline__ void rmsnorm_row(const float* x, const Half* weight, float eps, Half* out, uint32_t hidden,
                                            float* residual = nullptr, const Half* adds = nullptr) {
  __shared__ float scratch[32];
  const uint32_t first = threadIdx.x * 8, step = blockDim.x * 8;
  float value[8] = {}, factor[8] = {}, sum = 0.0f;
  if (first < hidden) load8(x + first, value), load8(weight + first, factor);
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += value[k] * value[k];
  for (uint32_t j = first + step; j < hidden; j += step) {
    float more[8];
    load8(x + j, more);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += more[k] * more[k];
  }
  const float scale = 1.0f / sqrtf(block_sum(sum, scratch) / float(hidden) + eps);
  for (uint32_t j = first; j < hidden; j += step) {
    if (j != first) load8(x + j, value), load8(weight + j, factor);
    if (Adds) add_to(residual + j, value, adds + j);
#pragma unroll
    for (int k = 0; k < 8; ++k) value[k] *= scale * factor[k];
    store8(out + j, value);
  }
}

/* grid (tokens), block (any multiple of 32). */
template <typename Half>
__global__ void rmsnorm_kernel(const float* residual, const Half* weight, float eps, Half* out, uint32_t hidden) {
  allow_successor();
  wait_for_predecessor();
  const uint64_t t = uint64_t(blockIdx.x) * hidden;
  rmsnorm_row(residual + t, weight, eps, out + t, hidden);
}

/* The same, after which residual += adds. */
template <typename Half>
__global__ void rmsnorm_adding_kernel(float* residual, const Half* weight, float eps, Half* out, uint32_t hidden,
                                      const Half* adds) {
  allow_successor();
  wait_for_predecessor();
  float* const row = residual + uint64_t(blockIdx.x) * hidden;
  rmsnorm_row<true>(row, weight, eps, out + uint64_t(blockIdx.x) * hidden, hidden, row, adds);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_NORM_H */
