/* Resident GEMV, for few rows and a matrix of few columns: y = x w^T, where x stays in shared memory. CPU reference:
 * matmul.h.
 *
 *   x  [m][n_in] half, or fp32 for a Normed matmul, which multiplies rmsnorm(x)
 *   w  [n_out][n_in] half, or fp8 with scales by row or by block, or codes with scales by group
 *   y  [m][n_out]: kEpilogueHalf half; kEpilogueAdd fp32, y += x w^T
 *
 * As in gemv.h the weights go through registers. A tile is 8 outputs, and its 16 rows for the tensor cores are
 * their first and second halves of k: twice as many tiles, which spread more evenly and are on their way at once. Each
 * half is multiplied with its own half of x; the cross terms of the instruction's result are not used. x is held in
 * the type that its weights are multiplied in (weight_lanes.h).
 *
 * A kEpilogueAdd matmul of one row may end with its blocks' part of the router that follows (fused_router.h).
 */
#ifndef BLINK_OPS_GEMM_RESIDENT_GEMV_H
#define BLINK_OPS_GEMM_RESIDENT_GEMV_H

#include "gemv.h"
#include "weight_lanes.h"
#include "kernels/ops/moe/fused_router.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kResidentTokens = 2;  /* rows of x at most: of more, gemv.h is faster */
constexpr uint32_t kResidentOutputs = 8; /* of a tile */
constexpr uint32_t kResidentDepth = 4;   /* chunks in flight in every warp, or a tile's if those are more */
constexpr uint32_t kResidentPad = 32;    /* elements between rows of x: two neighbours' chunks fill the banks */

struct ResidentScratch {
  float2 part[2][kGemvWarps][32]; /* two tiles in turn: the warps' fragments */
  float squares[kResidentTokens][kGemvWarps];
  float sums[2][kResidentOutputs]; /* y of two tiles in turn, of one row */

  /* Output o for row `column` of x. */
  __device__ __forceinline__ float total(uint32_t buffer, uint32_t o, uint32_t column) const {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kGemvWarps; ++warp)
      sum += reinterpret_cast<const float*>(&part[buffer][warp][o * 4 + column / 2])[column % 2];
    return sum;
  }
};

/* x to `resident`, by the whole block. Without a loop, in which ptxas would wait for the weights before it loads x. */
template <typename Half, typename X, uint32_t Columns>
__device__ __forceinline__ void load_resident(X* resident, const Half* x, uint32_t m) {
  constexpr uint32_t kVectors = Columns / 8, kEach = (kResidentTokens * kVectors + kGemvThreads - 1) / kGemvThreads;
  uint4 value[kEach];
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t at = threadIdx.x + i * kGemvThreads;
    if (at < m * kVectors) value[i] = reinterpret_cast<const uint4*>(x)[at];
  }
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t at = threadIdx.x + i * kGemvThreads;
    if (at < m * kVectors)
      hold8(resident + at / kVectors * (Columns + kResidentPad) + at % kVectors * 8, value[i], Half());
  }
  __syncthreads();
}

/* rmsnorm(x) to `resident`, by the whole block; `factors` are the weights of the norm at the thread's columns. A thread
 * reads its elements twice, the second time near. */
template <typename Half, typename X, uint32_t Columns, uint32_t Rounds>
__device__ __forceinline__ void load_resident_normed(ResidentScratch& scratch, X* resident, const float* x,
                                                     const uint4 (&factors)[Rounds], float eps, uint32_t m) {
  float squares[kResidentTokens] = {};
#pragma unroll
  for (uint32_t t = 0; t < kResidentTokens; ++t) {
    if (t >= m) break;
#pragma unroll
    for (uint32_t i = 0; i < Rounds; ++i) {
      const uint32_t j = (i * kGemvThreads + threadIdx.x) * 8;
      float value[8];
      if (j < Columns) load8(x + uint64_t(t) * Columns + j, value);
#pragma unroll
      for (int k = 0; k < 8; ++k) squares[t] += j < Columns ? value[k] * value[k] : 0.0f;
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < kResidentTokens; ++t) {
    if (t >= m) break;
    const float sum = warp_sum(squares[t]);
    if (threadIdx.x % 32 == 0) scratch.squares[t][threadIdx.x / 32] = sum;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t t = 0; t < kResidentTokens; ++t) {
    if (t >= m) break;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kGemvWarps; ++warp) sum += scratch.squares[t][warp];
    const float scale = 1.0f / sqrtf(sum / float(Columns) + eps);
#pragma unroll
    for (uint32_t i = 0; i < Rounds; ++i) {
      const uint32_t j = (i * kGemvThreads + threadIdx.x) * 8;
      if (j >= Columns) continue;
      const Half* factor = reinterpret_cast<const Half*>(&factors[i]);
      float value[8];
      load8(x + uint64_t(t) * Columns + j, value);
#pragma unroll
      for (int k = 0; k < 8; ++k) value[k] *= scale * to_float(factor[k]);
      hold8(resident + t * (Columns + kResidentPad) + j, value, Half());
    }
  }
  __syncthreads();
}

/* grid (at most the tiles), block (kGemvThreads), m * (n_in + kResidentPad) halves of dynamic shared memory; n_in is
 * 2 * kGemvWarps * Chunks * kChunkWeights<Form>, m at most kResidentTokens, n_out a multiple of kResidentOutputs.
 * Blocks take tiles blockIdx.x, blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, int Chunks, bool Normed, ScaleForm Form = kUnscaled>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    resident_gemv_kernel(typename WeightTypes<Half, Form>::Matrix w, const void* x, const Half* norm, float eps,
                         void* y, uint32_t m, uint32_t n_out, const __grid_constant__ FusedRouter router) {
  constexpr uint32_t kChunk = kChunkWeights<Form>, n_half = kGemvWarps * Chunks * kChunk, n_in = 2 * n_half;
  constexpr uint32_t kAbreast = Chunks < kResidentDepth ? kResidentDepth / Chunks : 1; /* tiles in flight */
  constexpr uint32_t kRounds = (n_in / 8 + kGemvThreads - 1) / kGemvThreads;
  static_assert(kAbreast == 1 || kResidentDepth % Chunks == 0, "tiles in flight are whole");
  static_assert(kFusedRouterOutputs == kResidentOutputs, "a tile's outputs are a part");
  using X = typename Multiplied<Half, Form>::Type;
  __shared__ ResidentScratch scratch;
  X* resident = reinterpret_cast<X*>(dynamic_shared());
  allow_successor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4;
  const uint32_t first_k = warp * Chunks * kChunk, k = first_k + lane % 4 * kLaneWeights<Form>;
  const uint32_t n_tiles = n_out / kResidentOutputs;
  LaneChunk<Form> chunk[kAbreast][Chunks] = {};
  const auto request = [&](uint32_t tile, LaneChunk<Form>(&to)[Chunks]) {
    const uint64_t of = min(tile, n_tiles - 1) * kResidentOutputs + r;
    const auto row = elements_of(w) + of * n_in + k;
    const LaneScales<Form> scales(w, of, of, n_in, first_k);
#pragma unroll
    for (uint32_t c = 0; c < Chunks; ++c) {
      load_weight(row + c * kChunk, tile < n_tiles, to[c].low);
      load_weight(row + n_half + c * kChunk, tile < n_tiles, to[c].high);
      scales.load_halves(c, n_half / kChunk, tile < n_tiles, to[c]);
    }
  };
#pragma unroll
  for (uint32_t i = 0; i < kAbreast; ++i) request(blockIdx.x + i * gridDim.x, chunk[i]);
  PartialLogit<Half> part(router, n_out);
  if (Output == kEpilogueAdd) part.request(blockIdx.x, blockIdx.x < n_tiles);
  if constexpr (Normed) {
    uint4 factors[kRounds] = {};
#pragma unroll
    for (uint32_t i = 0; i < kRounds; ++i) {
      const uint32_t j = (i * kGemvThreads + threadIdx.x) * 8;
      load_weight(norm + j, j < n_in, factors[i]);
    }
    wait_for_predecessor();
    load_resident_normed<Half, X, n_in, kRounds>(scratch, resident, static_cast<const float*>(x), factors, eps, m);
  } else {
    wait_for_predecessor();
    load_resident<Half, X, n_in>(resident, static_cast<const Half*>(x), m);
  }

  const X* row =
      resident + min(r, m - 1) * (n_in + kResidentPad) + k; /* what is computed for rows past the end is not used */
  uint32_t buffer = 0;
  for (uint32_t first = blockIdx.x; first < n_tiles; first += kAbreast * gridDim.x) {
#pragma unroll
    for (uint32_t i = 0; i < kAbreast; ++i, buffer ^= 1) {
      const uint32_t tile = first + i * gridDim.x;
      if (tile >= n_tiles) break;
      const uint32_t o = threadIdx.x % kResidentOutputs, column = threadIdx.x / kResidentOutputs;
      const uint64_t at = uint64_t(column) * n_out + tile * kResidentOutputs + o;
      const bool stores = column < m;
      float before = 0.0f, scale = 1.0f;
      if (Output == kEpilogueAdd && stores) before = static_cast<const float*>(y)[at];
      if (Form == kScaleByRow) scale = scales_of(w)[tile * kResidentOutputs + o];
      float acc[2][4] = {}; /* of each half of k */
#pragma unroll
      for (uint32_t c = 0; c < Chunks; ++c) {
        uint4 x_part[2][kLaneVectors<Form>];
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h)
#pragma unroll
          for (uint32_t v = 0; v < kLaneVectors<Form>; ++v)
            x_part[h][v] = *reinterpret_cast<const uint4*>(row + h * n_half + c * kChunk + 8 * v);
        multiply_chunk<X, Form, 2>(acc, chunk[i][c], x_part);
      }
      request(tile + kAbreast * gridDim.x, chunk[i]);
      scratch.part[buffer][warp][lane] = make_float2(acc[0][0] + acc[1][2], acc[0][1] + acc[1][3]);
      __syncthreads(); /* also: all have read the other buffer's sums */
      const float sum = before + (stores ? scale * scratch.total(buffer, o, column) : 0.0f);
      if (Output == kEpilogueHalf && stores) from_float(sum, static_cast<Half*>(y) + at);
      if (Output == kEpilogueAdd && stores) static_cast<float*>(y)[at] = sum;
      if (Output != kEpilogueAdd || !router.w) continue;
      if (stores) scratch.sums[buffer][o] = sum;
      __syncthreads();
      part.add(scratch.sums[buffer]);
      part.request(tile + gridDim.x, tile + gridDim.x < n_tiles);
    }
  }
  if (Output == kEpilogueAdd) part.finish();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_RESIDENT_GEMV_H */
