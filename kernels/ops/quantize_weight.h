/* Rounding of a matrix of weights to fp8 (e4m3) with a scale for each block of 128 x 128 elements, while a model is
 * loaded. With a scale for each row, quantize_kernel does it (quantize.h). Reference: gpu_backend/models/fp8.py, which
 * it agrees with to the last bit.
 *
 *   w       [rows][columns] half or fp32, columns a multiple of 16
 *   out     [rows][columns] fp8, w = out * scale, its columns in the order of kernels/primitives/fp8.h
 *   scales  [ceil(rows / 128)][ceil(columns / 128)] fp32: the block's largest element / 448, and 1 where all are zero
 */
#ifndef BLINK_OPS_QUANTIZE_WEIGHT_H
#define BLINK_OPS_QUANTIZE_WEIGHT_H

#include "kernels/ops/quantize.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kWeightThreads = 256; /* of a block */

/* grid (blocks of columns, blocks of rows), block (kWeightThreads). A thread has the same 16 columns of every 32nd row,
 * and reads them twice: the second time from the cache. */
template <typename Element>
__global__ void quantize_weight_kernel(const Element* w, uint8_t* out, float* scales, uint32_t rows, uint32_t columns) {
  constexpr uint32_t kGroups = kScaleBlock / kFp8Group, kStep = kWeightThreads / kGroups;
  __shared__ float scratch[32];
  const uint32_t column = blockIdx.x * kScaleBlock + threadIdx.x % kGroups * kFp8Group;
  const uint32_t first = blockIdx.y * kScaleBlock, end = column < columns ? min(first + kScaleBlock, rows) : 0;
  float most = 0.0f, value[kFp8Group];
  for (uint32_t row = first + threadIdx.x / kGroups; row < end; row += kStep) {
    load_group(w + uint64_t(row) * columns + column, value);
    most = fmaxf(most, largest_of(value));
  }
  const float scale = fp8_scale(largest_of_block(most, scratch));
  for (uint32_t row = first + threadIdx.x / kGroups; row < end; row += kStep) {
    const uint64_t at = uint64_t(row) * columns + column;
    load_group(w + at, value);
    store_group(out + at, value, 1.0f / scale);
  }
  if (threadIdx.x == 0) scales[blockIdx.y * gridDim.x + blockIdx.x] = scale;
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_QUANTIZE_WEIGHT_H */
