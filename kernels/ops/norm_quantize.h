/* RMSNorm (norm.h), and that of a sum (add_norm.h), whose result is quantised to fp8 (quantize.h) and left in that form
 * alone.
 *
 *   residual     [tokens][hidden] fp32, hidden a multiple of 16
 *   x            [tokens][hidden] half, whose norm is added to the residual first
 *   weight       [hidden] half; `next`: of the sum
 *   out, scales  as those of quantize.h. The norm is not rounded to half in between
 */
#ifndef BLINK_OPS_NORM_QUANTIZE_H
#define BLINK_OPS_NORM_QUANTIZE_H

#include "add_norm.h"
#include "quantize.h"

#ifdef __CUDACC__

namespace blink {

/* 1 / the root of a row's mean square, of which a thread has 16 elements. By a whole block; `scratch` as block_sum has
 * it. */
__device__ __forceinline__ float norm_factor(const float (&x)[kFp8Group], float eps, uint32_t hidden, float* scratch) {
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) sum += x[i] * x[i];
  return 1.0f / sqrtf(block_sum(sum, scratch) / float(hidden) + eps);
}

/* Leaves x times both factors, of which a thread has 16 elements, of the block's row. */
template <int Form>
__device__ __forceinline__ void quantize_norm(float (&x)[kFp8Group], float factor, const float (&weight)[kFp8Group],
                                              uint8_t* out, float* scales, uint32_t hidden, uint32_t stride,
                                              float* scratch) {
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) x[i] *= factor * weight[i];
  float most = 0.0f;
  if (Form == kScaleByRow) most = largest_of_block(largest_of(x), scratch);
  const uint32_t row = blockIdx.x;
  quantize_group<Form>(x, threadIdx.x * kFp8Group, hidden, most, out + uint64_t(row) * hidden, scales, row, stride);
}

/* Both kernels: grid (tokens), block (a multiple of 32, at least hidden / 16): a thread has 16 elements in registers.
 */
template <typename Half, int Form>
__global__ void __launch_bounds__(kQuantizeThreads)
    rmsnorm_quantize_kernel(const float* residual, const Half* weight, float eps, uint8_t* out, float* scales,
                            uint32_t hidden, uint32_t stride) {
  __shared__ float scratch[32];
  allow_successor();
  const uint32_t first = threadIdx.x * kFp8Group;
  float value[kFp8Group] = {}, factor[kFp8Group] = {};
  if (first < hidden) load_group(weight + first, factor);
  wait_for_predecessor();
  if (first < hidden) load_group(residual + uint64_t(blockIdx.x) * hidden + first, value);
  const float of_value = norm_factor(value, eps, hidden, scratch);
  quantize_norm<Form>(value, of_value, factor, out, scales, hidden, stride, scratch);
}

template <typename Half, int Form>
__global__ void __launch_bounds__(kQuantizeThreads)
    add_rmsnorm_quantize_kernel(float* residual, const Half* x, const Half* weight, const Half* next, float eps,
                                uint8_t* out, float* scales, uint32_t hidden, uint32_t stride) {
  __shared__ float scratch[32];
  allow_successor();
  wait_for_predecessor();
  const uint32_t first = threadIdx.x * kFp8Group;
  const uint64_t at = uint64_t(blockIdx.x) * hidden + first;
  float value[kFp8Group] = {}, factor[kFp8Group] = {}, sum[kFp8Group] = {};
  if (first < hidden) load_group(x + at, value), load_group(weight + first, factor), load_group(residual + at, sum);
  const float of_value = norm_factor(value, eps, hidden, scratch);
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) sum[i] += value[i] * of_value * factor[i];
  if (first < hidden) {
    store8(residual + at, reinterpret_cast<float (&)[8]>(sum[0]));
    store8(residual + at + 8, reinterpret_cast<float (&)[8]>(sum[8]));
    load_group(next + first, factor);
  }
  const float of_sum = norm_factor(sum, eps, hidden, scratch);
  quantize_norm<Form>(sum, of_sum, factor, out, scales, hidden, stride, scratch);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_NORM_QUANTIZE_H */
