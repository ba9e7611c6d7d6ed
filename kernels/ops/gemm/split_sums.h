/* The sum of a matmul's results over splits of k, in their order (E20).
 *
 *   parts  [splits][part_rows][n] fp32
 *   y      [m][n]: kEpilogueHalf half; kEpilogueAdd fp32, y += the sum
 */
#ifndef BLINK_OPS_GEMM_SPLIT_SUMS_H
#define BLINK_OPS_GEMM_SPLIT_SUMS_H

#include "gemv.h"

#ifdef __CUDACC__

namespace blink {

/* grid (m, ceil(n / (8 * block))), block (any); n is a multiple of 8. */
template <typename Half, int Output>
__global__ void split_sums_kernel(const float* parts, void* y, uint32_t splits, uint32_t part_rows, uint32_t n) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (column >= n) return;
  const uint64_t at = uint64_t(blockIdx.x) * n + column, step = uint64_t(part_rows) * n;
  float sum[8] = {};
  for (uint32_t s = 0; s < splits; ++s) {
    float part[8];
    load8(parts + s * step + at, part);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += part[i];
  }
  if (Output == kEpilogueHalf) {
    store8(static_cast<Half*>(y) + at, sum);
    return;
  }
  float* const residual = static_cast<float*>(y) + at;
  float before[8];
  load8(residual, before);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] += before[i];
  store8(residual, sum);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SPLIT_SUMS_H */
