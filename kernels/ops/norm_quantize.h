/* RMSNorm (norm.h) whose result is quantised to fp8 (quantize.h) and left in that form alone.
 *
 *   residual     [tokens][hidden] fp32, hidden a multiple of 16
 *   weight       [hidden] half
 *   out, scales  as those of quantize.h. The norm is not rounded to half in between
 */
#ifndef BLINK_OPS_NORM_QUANTIZE_H
#define BLINK_OPS_NORM_QUANTIZE_H

#include "norm.h"
#include "quantize.h"

#ifdef __CUDACC__

namespace blink {

/* grid (tokens), block (a multiple of 32, at least hidden / 16): a thread has 16 elements in registers. */
template <typename Half, int Form>
__global__ void rmsnorm_quantize_kernel(const float* residual, const Half* weight, float eps, uint8_t* out,
                                        float* scales, uint32_t hidden, uint32_t stride) {
  __shared__ float scratch[32];
  allow_successor();
  const uint32_t first = threadIdx.x * kFp8Group, row = blockIdx.x;
  float value[kFp8Group] = {}, factor[kFp8Group] = {}, sum = 0.0f;
  if (first < hidden) load_group(weight + first, factor);
  wait_for_predecessor();
  if (first < hidden) load_group(residual + uint64_t(row) * hidden + first, value);
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) sum += value[i] * value[i];
  const float scale = 1.0f / sqrtf(block_sum(sum, scratch) / float(hidden) + eps);
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) value[i] *= scale * factor[i];
  float most = 0.0f;
  if (Form == kScaleByRow) most = largest_of_block(largest_of(value), scratch);
  quantize_group<Form>(value, first, hidden, most, out + uint64_t(row) * hidden, scales, row, stride);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_NORM_QUANTIZE_H */
