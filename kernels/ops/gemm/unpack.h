/* Weights in codes of four bits as a matrix of halves, for matmuls of many rows, whose kernels multiply halves.
 *
 * The values are those that kernels of few rows multiply, to the last bit, but for the GEMV of integers
 * (kernels/primitives/codes.h).
 */
#ifndef BLINK_OPS_GEMM_UNPACK_H
#define BLINK_OPS_GEMM_UNPACK_H

#include "weight_lanes.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kUnpackThreads = 256;
constexpr uint32_t kUnpackColumns = 8; /* of a thread: four neighbours share 32, and write them together */

/* grid (any), block (kUnpackThreads); w [rows][n_in] to out [rows][n_in], n_in a multiple of kCodeGroup. `out` may be
 * what an earlier kernel still reads, so it is written behind the wait; who reads it next must not start before this
 * ends, as kernels do that take it for weights (E7). */
template <typename Half, ScaleForm Form>
__global__ void __launch_bounds__(kUnpackThreads) unpack_kernel(CodeMatrix w, Half* out, uint32_t rows, uint32_t n_in) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t of_row = n_in / kUnpackColumns, stride = gridDim.x * kUnpackThreads;
  const uint64_t n = uint64_t(rows) * of_row;
  for (uint64_t at = uint64_t(blockIdx.x) * kUnpackThreads + threadIdx.x; at < n; at += stride) {
    const uint64_t row = at / of_row;
    const uint32_t part = uint32_t(at - row * of_row), p = part % 4, k = part / 4 * kCodeGroup;
    const uint4 words = *reinterpret_cast<const uint4*>(w.codes + (row * n_in + k) / 2);
    uint32_t raw = 0;
    load_unit<Form>(w, row * (n_in >> w.shift), k, true, raw);
    const CodeFactors<Half, Form> factors(raw);
    *reinterpret_cast<uint4*>(out + at * kUnpackColumns) = make_uint4(
        factors.pair(words.x, p), factors.pair(words.y, p), factors.pair(words.z, p), factors.pair(words.w, p));
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_UNPACK_H */
