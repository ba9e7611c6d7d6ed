/* Quantisation of activations to fp8 (e4m3), for products of many rows with weights in fp8. Reference:
 * gpu_backend/models/fp8.py, of which it has the rounding and the order of columns in memory.
 *
 *   x       [rows][k] half, or of a checkpoint fp32; k a multiple of 16
 *   out     [rows][k] fp8, x = out * scale, its columns in the order of kernels/primitives/fp8.h
 *   scales  [1][stride] fp32 for weights with scales by row: one of each row of x; [ceil(k / 128)][stride] for weights
 *           with scales by block: one of each row and 128 columns. The rows of x lie side by side, as products read
 *           them; stride is at least the number of rows
 *
 * The scale is the largest element / 448, and 1 where all are zero. A row is quantised by itself: one with NaNs or
 * infinities gives outputs that are NaN, and hurts no other.
 */
#ifndef BLINK_OPS_QUANTIZE_H
#define BLINK_OPS_QUANTIZE_H

#include "kernels/primitives/fp8.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kQuantizeThreads = 1024; /* of a block, at most */
constexpr uint32_t kQuantizeHeld = 4;       /* groups of columns that a thread of quantize_kernel has, at most */
constexpr float kFp8Largest = 448.0f;
constexpr float kLeastMost = 0x1p-100f; /* below, 1 / scale might be infinite */

/* `most`: the size of the largest element. */
__device__ __forceinline__ float fp8_scale(float most) {
  return most > 0.0f ? fmaxf(most, kLeastMost) / kFp8Largest : 1.0f;
}

/* Not a NaN, which fmaxf passes over. */
__device__ __forceinline__ float largest_of(const float (&x)[kFp8Group]) {
  float most = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kFp8Group; ++i) most = fmaxf(most, fabsf(x[i]));
  return most;
}

template <uint32_t Lanes>
__device__ __forceinline__ float largest_of_lanes(float x) {
#pragma unroll
  for (uint32_t offset = Lanes / 2; offset > 0; offset >>= 1)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, int(offset)));
  return x;
}

/* Of a block of whole warps, the same in every thread. `scratch` holds 32 floats of shared memory. */
__device__ __forceinline__ float largest_of_block(float x, float* scratch) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = largest_of_lanes<32>(x);
  __syncthreads(); /* the scratch of an earlier call may still be read */
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return largest_of_lanes<32>(lane < blockDim.x / 32 ? scratch[lane] : 0.0f);
}

template <typename Element>
__device__ __forceinline__ void load_group(const Element* p, float (&x)[kFp8Group]) {
  float (&low)[8] = reinterpret_cast<float (&)[8]>(x[0]), (&high)[8] = reinterpret_cast<float (&)[8]>(x[8]);
  load8(p, low), load8(p + 8, high);
}

/* `inverse`: of the scale. */
__device__ __forceinline__ void store_group(uint8_t* to, const float (&x)[kFp8Group], float inverse) {
  uint32_t word[4];
#pragma unroll
  for (uint32_t q = 0; q < 4; ++q)
    word[q] = to_e4m3(x[2 * q] * inverse, x[2 * q + 1] * inverse, x[2 * q + 8] * inverse, x[2 * q + 9] * inverse);
  *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
}

/* A thread's group of columns from `column` on, if they exist, of row `row`, whose bytes begin at `out`. By whole
 * warps, whose lanes have neighbouring columns. `most`: the row's largest element, for scales by row. */
template <int Form>
__device__ __forceinline__ void quantize_group(const float (&x)[kFp8Group], uint32_t column, uint32_t k, float most,
                                               uint8_t* out, float* scales, uint32_t row, uint32_t stride) {
  constexpr uint32_t kLanes = kScaleBlock / kFp8Group;
  if (Form == kScaleByBlock) most = largest_of_lanes<kLanes>(largest_of(x));
  const float scale = fp8_scale(most);
  if (column >= k) return;
  store_group(out + column, x, 1.0f / scale);
  if (Form == kScaleByBlock && column % kScaleBlock == 0) scales[uint64_t(column / kScaleBlock) * stride + row] = scale;
  if (Form == kScaleByRow && column == 0) scales[row] = scale;
}

/* A group of columns as it lies in memory. */
template <typename Element>
using HeldGroup = uint4[kFp8Group * sizeof(Element) / sizeof(uint4)];

/* Its values. The compiler would keep those of all groups, twice as large as halves, from one call to the next, if it
 * knew that they are the same. */
template <typename Element>
__device__ __forceinline__ void values_of(HeldGroup<Element>& held, float (&x)[kFp8Group]) {
#pragma unroll
  for (uint32_t i = 0; i < sizeof(held) / sizeof(uint4); ++i)
    asm volatile("" : "+r"(held[i].x), "+r"(held[i].y), "+r"(held[i].z), "+r"(held[i].w));
  load_group(reinterpret_cast<const Element*>(held), x);
}

/* grid (rows), block (a multiple of 32, up to kQuantizeThreads; at least k / (16 * Held)). Held is up to
 * kQuantizeHeld. A thread requests all its columns at once and holds them: few threads a row let a
 * multiprocessor work at several rows, so that some load while others wait for their largest element. */
template <typename Element, int Form, uint32_t Held>
__global__ void __launch_bounds__(kQuantizeThreads)
    quantize_kernel(const Element* x, uint8_t* out, float* scales, uint32_t k, uint32_t stride) {
  __shared__ float scratch[32];
  allow_successor();
  wait_for_predecessor();
  const uint32_t first = threadIdx.x * kFp8Group, step = blockDim.x * kFp8Group, row = blockIdx.x;
  x += uint64_t(row) * k, out += uint64_t(row) * k;
  HeldGroup<Element> held[Held] = {};
#pragma unroll
  for (uint32_t i = 0; i < Held; ++i) {
    if (first + i * step >= k) continue;
    const uint4* const from = reinterpret_cast<const uint4*>(x + first + i * step);
#pragma unroll
    for (uint32_t j = 0; j < sizeof(held[i]) / sizeof(uint4); ++j) held[i][j] = from[j];
  }
  float value[kFp8Group], most = 0.0f;
  if (Form == kScaleByRow) {
#pragma unroll
    for (uint32_t i = 0; i < Held; ++i) {
      values_of<Element>(held[i], value);
      most = fmaxf(most, largest_of(value));
    }
    most = largest_of_block(most, scratch);
  }
#pragma unroll
  for (uint32_t i = 0; i < Held; ++i) { /* by whole warps, whose lanes exchange their largest */
    if (i * step >= k) break;
    values_of<Element>(held[i], value);
    quantize_group<Form>(value, first + i * step, k, most, out, scales, row, stride);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_QUANTIZE_H */
