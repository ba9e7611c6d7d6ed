/* Experts with many pairs each: the products of experts.h as tiles of 64 pairs x 128 rows of w, through
 * shared memory into tensor cores. Arguments and CPU twin are those of experts.h.
 */
#ifndef BLINK_OPS_EXPERTS_TILED_H
#define BLINK_OPS_EXPERTS_TILED_H

#include "experts.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTileUnit = 64;     /* pairs of a unit */
constexpr uint32_t kTileWeights = 128; /* rows of w: outputs, or half as many gate rows and their up rows */
constexpr uint32_t kTileK = 32;
constexpr uint32_t kTileStride = kTileK + 8; /* the 8 rows of a matrix lie in different banks */

/* A step along k of both operands. */
template <typename Half>
struct ExpertTile {
  Half x[kTileUnit][kTileStride];
  Half w[kTileWeights][kTileStride];
};

/* A thread's part of a step along k on its way to shared memory: one row of x, two of w, 8 k of each. Rows that
 * do not exist are null and count as zero, as does what is past n_in. */
template <typename Half>
struct ExpertFetch {
  const Half* row[3]; /* at the thread's first k */
  uint4 value[3];

  __device__ __forceinline__ void load(uint32_t k, uint32_t n_in) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      value[i] = make_uint4(0, 0, 0, 0);
      if (row[i] && k + threadIdx.x % 4 * 8 < n_in) value[i] = *reinterpret_cast<const uint4*>(row[i] + k);
    }
  }
  __device__ __forceinline__ void store(ExpertTile<Half>& tile) const {
    const uint32_t r = threadIdx.x / 4, c = threadIdx.x % 4 * 8;
    *reinterpret_cast<uint4*>(&tile.x[r][c]) = value[0];
    *reinterpret_cast<uint4*>(&tile.w[r][c]) = value[1];
    *reinterpret_cast<uint4*>(&tile.w[r + 64][c]) = value[2];
  }
};

/* Row s of the 128 of a tile: which row of the expert's w, or none. A warp's 32 rows are 16 gate rows and then
 * their up rows, so that one lane ends up with both of an output. */
template <ExpertProduct Product>
__device__ __forceinline__ bool weight_row(uint32_t tile, uint32_t s, uint32_t n_out, uint32_t& row) {
  if (Product == kDown) {
    row = tile * kTileWeights + s;
    return row < n_out;
  }
  const uint32_t o = tile * (kTileWeights / 2) + s / 32 * 16 + s % 16;
  row = s % 32 / 16 * n_out + o;
  return o < n_out;
}

/* A warp's 32 pairs x 32 rows of w. */
template <typename Half>
struct ExpertAccumulator {
  float acc[2][4][4] = {};

  __device__ __forceinline__ void add(const ExpertTile<Half>& tile, uint32_t pair, uint32_t weight) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t k = 0; k < kTileK; k += 16) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m)
        load_matrices<false>(a[m], &tile.x[pair + 16 * m + lane % 16][k + lane / 16 * 8]);
#pragma unroll
      for (uint32_t n = 0; n < 2; ++n)
        load_matrices<false>(b[n], &tile.w[weight + 16 * n + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m)
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n) mma(acc[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1], Half());
    }
  }
};

/* Two neighbouring outputs; `out` is 4-byte aligned. */
template <typename Half>
__device__ __forceinline__ void store_pair(float a, float b, Half* out) {
  uint32_t packed;
  from_float(a, reinterpret_cast<Half*>(&packed));
  from_float(b, reinterpret_cast<Half*>(&packed) + 1);
  *reinterpret_cast<uint32_t*>(out) = packed;
}

/* The warp's outputs of a tile, for the pairs that exist. */
template <typename Half, ExpertProduct Product>
__device__ __forceinline__ void store_outputs(const ExpertAccumulator<Half>& sums, const ExpertUnit& unit,
                                              const uint32_t* pairs, Half* out, uint32_t tile, uint32_t n_out) {
  const uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) { /* rows r, r + 8 of the warp's two times 16 pairs */
    const uint32_t pair = warp / 4 * 32 + i / 2 * 16 + i % 2 * 8 + r, e = i % 2 * 2;
    if (pair >= unit.count) continue;
    const uint32_t row = Product == kGateUp ? unit.first + pair : pairs[unit.first + pair];
    Half* target = out + uint64_t(row) * n_out;
    const auto& acc = sums.acc[i / 2];
#pragma unroll
    for (uint32_t n = 0; n < (Product == kGateUp ? 2 : 4); ++n) {
      if (Product == kGateUp) {
        const uint32_t o = tile * (kTileWeights / 2) + warp % 4 * 16 + n * 8 + c;
        if (o < n_out)
          store_pair(silu_mul(acc[n][e], acc[n + 2][e]), silu_mul(acc[n][e + 1], acc[n + 2][e + 1]), target + o);
      } else {
        const uint32_t o = tile * kTileWeights + warp % 4 * 32 + n * 8 + c;
        if (o < n_out) store_pair(acc[n][e], acc[n][e + 1], target + o);
      }
    }
  }
}

/* grid (any), block (kExpertThreads); units of kTileUnit pairs; n_in and n_out multiples of 8. */
template <typename Half, ExpertProduct Product>
__global__ void __launch_bounds__(kExpertThreads, 2)
    expert_tiled_kernel(const ExpertUnit* plan, const uint32_t* pairs, const Half* w, const Half* x, Half* out,
                        uint32_t n_in, uint32_t n_out, uint32_t per_token) {
  __shared__ __align__(16) ExpertTile<Half> tiles[2];
  allow_successor();
  wait_for_predecessor();
  constexpr uint32_t kOutputs = Product == kGateUp ? kTileWeights / 2 : kTileWeights;
  const uint32_t n_tiles = (n_out + kOutputs - 1) / kOutputs, n_items = plan[0].count * n_tiles;
  const uint32_t steps = (n_in + kTileK - 1) / kTileK, warp = threadIdx.x / 32;
  const uint32_t r = threadIdx.x / 4, c = threadIdx.x % 4 * 8;
  for (uint32_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const ExpertUnit unit = plan[1 + item / n_tiles];
    const uint32_t tile = item % n_tiles;
    const Half* expert = w + unit.expert * uint64_t(Product == kGateUp ? 2 * n_out : n_out) * n_in;
    ExpertFetch<Half> fetch = {};
    if (r < unit.count) {
      const uint32_t sorted = unit.first + r, from = Product == kGateUp ? pairs[sorted] / per_token : sorted;
      fetch.row[0] = x + uint64_t(from) * n_in + c;
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      uint32_t row;
      if (weight_row<Product>(tile, r + 64 * i, n_out, row)) fetch.row[1 + i] = expert + uint64_t(row) * n_in + c;
    }
    ExpertAccumulator<Half> sums;
    fetch.load(0, n_in);
    fetch.store(tiles[0]);
    __syncthreads();
    for (uint32_t step = 0; step < steps; ++step) {
      if (step + 1 < steps) fetch.load((step + 1) * kTileK, n_in);
      sums.add(tiles[step % 2], warp / 4 * 32, warp % 4 * 32);
      if (step + 1 < steps) fetch.store(tiles[(step + 1) % 2]);
      __syncthreads();
    }
    store_outputs<Half, Product>(sums, unit, pairs, out, tile, n_out);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_EXPERTS_TILED_H */
