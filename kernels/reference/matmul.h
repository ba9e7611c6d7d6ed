/* Matmul: y = x w^T. CPU only; the GPU's GEMMs are cuBLAS's.
 *
 *   x  [rows][in] fp32
 *   w  [out][in] fp32
 *   y  [rows][out] fp32
 *
 * Register tiles of 4 x 4 dot products, vectorised along `in`. Rows are handled in blocks that stay in the L2
 * cache while the weights stream past, so that a decode step reads each weight once.
 */
#ifndef BLINK_REFERENCE_MATMUL_H
#define BLINK_REFERENCE_MATMUL_H

#include "kernels/primitives/common.h"

#ifndef __CUDACC__
#include <string.h>

namespace blink {

#if defined(__AVX512F__)
constexpr uint32_t kVectorBytes = 64, kTileRows = 4;
#elif defined(__AVX__)
constexpr uint32_t kVectorBytes = 32, kTileRows = 2;
#else
constexpr uint32_t kVectorBytes = 16, kTileRows = 2;
#endif
constexpr uint32_t kTileOutputs = 4;
constexpr uint32_t kVector = kVectorBytes / sizeof(float);
constexpr uint32_t kBlockFloats = 65536; /* of x in one block of rows: 256 KiB */

typedef float Vector __attribute__((vector_size(kVectorBytes)));

inline Vector load_vector(const float* p) {
  Vector v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* y[0..Rows)[0..Outputs). */
template <uint32_t Rows, uint32_t Outputs>
inline void linear_tile(const float* x, const float* w, float* y, uint32_t in, uint32_t out) {
  Vector acc[Rows][Outputs] = {};
  uint32_t k = 0;
  for (; k + kVector <= in; k += kVector) {
    Vector a[Rows];
    for (uint32_t r = 0; r < Rows; ++r) a[r] = load_vector(x + uint64_t(r) * in + k);
    for (uint32_t o = 0; o < Outputs; ++o) {
      const Vector b = load_vector(w + uint64_t(o) * in + k);
      for (uint32_t r = 0; r < Rows; ++r) acc[r][o] += a[r] * b;
    }
  }
  for (uint32_t r = 0; r < Rows; ++r)
    for (uint32_t o = 0; o < Outputs; ++o) {
      float sum = 0.0f;
      for (uint32_t e = 0; e < kVector; ++e) sum += acc[r][o][e];
      for (uint32_t j = k; j < in; ++j) sum += x[uint64_t(r) * in + j] * w[uint64_t(o) * in + j];
      y[uint64_t(r) * out + o] = sum;
    }
}

template <uint32_t Outputs>
inline void linear_rows(const float* x, const float* w, float* y, uint32_t rows, uint32_t in, uint32_t out) {
  uint32_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    linear_tile<kTileRows, Outputs>(x + uint64_t(r) * in, w, y + uint64_t(r) * out, in, out);
  for (; r < rows; ++r) linear_tile<1, Outputs>(x + uint64_t(r) * in, w, y + uint64_t(r) * out, in, out);
}

/* Computes outputs [begin, end) of all rows. */
inline void linear(const float* x, const float* w, float* y, uint32_t rows, uint32_t in, uint32_t out, uint32_t begin,
                   uint32_t end) {
  const uint32_t block = kBlockFloats / in < kTileRows ? kTileRows : kBlockFloats / in / kTileRows * kTileRows;
  for (uint32_t r = 0; r < rows; r += block) {
    const uint32_t n = rows - r < block ? rows - r : block;
    const float* x_block = x + uint64_t(r) * in;
    float* y_block = y + uint64_t(r) * out;
    uint32_t o = begin;
    for (; o + kTileOutputs <= end; o += kTileOutputs)
      linear_rows<kTileOutputs>(x_block, w + uint64_t(o) * in, y_block + o, n, in, out);
    for (; o < end; ++o) linear_rows<1>(x_block, w + uint64_t(o) * in, y_block + o, n, in, out);
  }
}

}  // namespace blink
#endif /* __CUDACC__ */

#endif /* BLINK_REFERENCE_MATMUL_H */
