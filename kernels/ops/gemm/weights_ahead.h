/* Weights ahead: what a matmul brings to L2 of the next one's weights.
 *
 * Where the input of a matmul has as many bytes as its weights, the blocks wait for the input, which comes from L2, and
 * the memory would be idle meanwhile, and until the blocks of the next kernel find room in shared memory.
 */
#ifndef BLINK_OPS_GEMM_WEIGHTS_AHEAD_H
#define BLINK_OPS_GEMM_WEIGHTS_AHEAD_H

#include "kernels/primitives/common.h"

#ifdef __CUDACC__

namespace blink {

/* Of `n_rows` rows of w, and of as many in its second part if it has two, `bytes` from each of `splits` places on. */
struct WeightsAhead {
  const char* w; /* null: nothing is wanted */
  uint64_t part_bytes;
  uint32_t n_rows, parts, splits;
  uint32_t row_bytes, split_bytes, bytes; /* bytes is a multiple of 16, as the others are */

  /* By one warp of each block. */
  __device__ __forceinline__ void request() const {
    if (!w) return;
    const uint32_t n = n_rows * parts * splits;
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x, step = 32 * gridDim.x * gridDim.y;
#pragma unroll 1
    for (uint32_t i = 32 * block + threadIdx.x % 32; i < n; i += step) {
      const uint32_t row = i / splits;
      prefetch_bytes(w + row / n_rows * part_bytes + uint64_t(row % n_rows) * row_bytes + i % splits * split_bytes,
                     bytes);
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_WEIGHTS_AHEAD_H */
