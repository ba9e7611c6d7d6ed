/* Linear for few rows and a matrix of few columns: y = x w^T, where x is held in shared memory. CPU twin: linear.h.
 *
 *   x  [m][n_in] half, or fp32 for a Normed product: what is multiplied is rmsnorm(x) then
 *   w  [n_out][n_in] half
 *   y  [m][n_out]: kStreamHalf half; kStreamAdd fp32, y += x w^T
 *
 * As in linear_stream.h the weights go through registers. A tile is 8 outputs, and its 16 rows for the tensor cores are
 * their first and second halves of k: twice as many tiles, which spread more evenly and are on their way at once. Each
 * half meets its own half of x; what else such a product has is not used.
 *
 * A kStreamAdd product of one row may end with its blocks' part of the router that follows (router_part.h).
 */
#ifndef BLINK_OPS_LINEAR_HELD_H
#define BLINK_OPS_LINEAR_HELD_H

#include "linear_stream.h"
#include "router_part.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kHeldTokens = 2;  /* rows of x at most: of more, linear_stream.h is faster */
constexpr uint32_t kHeldOutputs = 8; /* of a tile */
constexpr uint32_t kHeldDepth = 4;   /* chunks in flight in every warp, or a tile's if those are more */
constexpr uint32_t kHeldPad = 32;    /* elements between rows of x: two neighbours' chunks fill the banks */

struct HeldScratch {
  float2 part[2][kStreamWarps][32]; /* two tiles in turn: the warps' fragments */
  float squares[kHeldTokens][kStreamWarps];
  float sums[2][kHeldOutputs]; /* y of two tiles in turn, of one row */

  /* Output o for row `column` of x. */
  __device__ __forceinline__ float total(uint32_t buffer, uint32_t o, uint32_t column) const {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kStreamWarps; ++warp)
      sum += reinterpret_cast<const float*>(&part[buffer][warp][o * 4 + column / 2])[column % 2];
    return sum;
  }
};

/* x to `held`, by the whole block. */
template <typename Half, uint32_t Columns>
__device__ __forceinline__ void hold_rows(Half* held, const Half* x, uint32_t m) {
  constexpr uint32_t kVectors = Columns / 8, kAhead = 8; /* that a thread loads together */
  uint4 value[kAhead];
  for (uint32_t base = threadIdx.x; base < m * kVectors; base += kAhead * kStreamThreads) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t at = base + i * kStreamThreads;
      if (at < m * kVectors) value[i] = reinterpret_cast<const uint4*>(x)[at];
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t at = base + i * kStreamThreads;
      if (at < m * kVectors)
        *reinterpret_cast<uint4*>(held + at / kVectors * (Columns + kHeldPad) + at % kVectors * 8) = value[i];
    }
  }
  __syncthreads();
}

/* rmsnorm(x) to `held`, by the whole block; `factors` are the weights of the norm at the thread's columns. A thread
 * reads its elements twice, the second time near. */
template <typename Half, uint32_t Columns, uint32_t Rounds>
__device__ __forceinline__ void hold_normed(HeldScratch& scratch, Half* held, const float* x,
                                            const uint4 (&factors)[Rounds], float eps, uint32_t m) {
  float squares[kHeldTokens] = {};
#pragma unroll
  for (uint32_t t = 0; t < kHeldTokens; ++t) {
    if (t >= m) break;
#pragma unroll
    for (uint32_t i = 0; i < Rounds; ++i) {
      const uint32_t j = (i * kStreamThreads + threadIdx.x) * 8;
      float value[8];
      if (j < Columns) load8(x + uint64_t(t) * Columns + j, value);
#pragma unroll
      for (int k = 0; k < 8; ++k) squares[t] += j < Columns ? value[k] * value[k] : 0.0f;
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < kHeldTokens; ++t) {
    if (t >= m) break;
    const float sum = warp_sum(squares[t]);
    if (threadIdx.x % 32 == 0) scratch.squares[t][threadIdx.x / 32] = sum;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t t = 0; t < kHeldTokens; ++t) {
    if (t >= m) break;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kStreamWarps; ++warp) sum += scratch.squares[t][warp];
    const float scale = 1.0f / sqrtf(sum / float(Columns) + eps);
#pragma unroll
    for (uint32_t i = 0; i < Rounds; ++i) {
      const uint32_t j = (i * kStreamThreads + threadIdx.x) * 8;
      if (j >= Columns) continue;
      const Half* factor = reinterpret_cast<const Half*>(&factors[i]);
      float value[8];
      load8(x + uint64_t(t) * Columns + j, value);
#pragma unroll
      for (int k = 0; k < 8; ++k) value[k] *= scale * to_float(factor[k]);
      store8(held + t * (Columns + kHeldPad) + j, value);
    }
  }
  __syncthreads();
}

/* grid (at most the tiles), block (kStreamThreads), m * (n_in + kHeldPad) halves of dynamic shared memory; n_in is
 * 2 * kStreamWarps * Chunks * kStreamChunk, m at most kHeldTokens, n_out a multiple of kHeldOutputs. Blocks take tiles
 * blockIdx.x, blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, int Chunks, bool Normed>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    linear_held_kernel(const Half* w, const void* x, const Half* norm, float eps, void* y, uint32_t m, uint32_t n_out,
                       const __grid_constant__ RouterPart router) {
  constexpr uint32_t n_half = kStreamWarps * Chunks * kStreamChunk, n_in = 2 * n_half;
  constexpr uint32_t kAbreast = Chunks < kHeldDepth ? kHeldDepth / Chunks : 1; /* tiles in flight */
  constexpr uint32_t kRounds = (n_in / 8 + kStreamThreads - 1) / kStreamThreads;
  static_assert(kAbreast == 1 || kHeldDepth % Chunks == 0, "tiles in flight are whole");
  static_assert(kPartOutputs == kHeldOutputs, "a tile's outputs are a part");
  __shared__ HeldScratch scratch;
  Half* held = reinterpret_cast<Half*>(dynamic_shared());
  allow_successor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4;
  const uint32_t k = warp * Chunks * kStreamChunk + lane % 4 * 8, n_tiles = n_out / kHeldOutputs;
  WeightChunk chunk[kAbreast][Chunks] = {};
  const auto request = [&](uint32_t tile, WeightChunk(&to)[Chunks]) {
    const Half* row = w + uint64_t(min(tile, n_tiles - 1) * kHeldOutputs + r) * n_in + k;
#pragma unroll
    for (uint32_t c = 0; c < Chunks; ++c) {
      load_weight(row + c * kStreamChunk, tile < n_tiles, to[c].low);
      load_weight(row + n_half + c * kStreamChunk, tile < n_tiles, to[c].high);
    }
  };
#pragma unroll
  for (uint32_t i = 0; i < kAbreast; ++i) request(blockIdx.x + i * gridDim.x, chunk[i]);
  ExpertPart<Half> part(router, n_out);
  if (Output == kStreamAdd) part.request(blockIdx.x, blockIdx.x < n_tiles);
  if constexpr (Normed) {
    uint4 factors[kRounds] = {};
#pragma unroll
    for (uint32_t i = 0; i < kRounds; ++i) {
      const uint32_t j = (i * kStreamThreads + threadIdx.x) * 8;
      load_weight(norm + j, j < n_in, factors[i]);
    }
    wait_for_predecessor();
    hold_normed<Half, n_in, kRounds>(scratch, held, static_cast<const float*>(x), factors, eps, m);
  } else {
    wait_for_predecessor();
    hold_rows<Half, n_in>(held, static_cast<const Half*>(x), m);
  }

  const Half* row =
      held + min(r, m - 1) * (n_in + kHeldPad) + k; /* what is computed for rows past the end is not used */
  uint32_t buffer = 0;
  for (uint32_t first = blockIdx.x; first < n_tiles; first += kAbreast * gridDim.x) {
#pragma unroll
    for (uint32_t i = 0; i < kAbreast; ++i, buffer ^= 1) {
      const uint32_t tile = first + i * gridDim.x;
      if (tile >= n_tiles) break;
      const uint32_t o = threadIdx.x % kHeldOutputs, column = threadIdx.x / kHeldOutputs;
      const uint64_t at = uint64_t(column) * n_out + tile * kHeldOutputs + o;
      const bool stores = column < m;
      float before = 0.0f;
      if (Output == kStreamAdd && stores) before = static_cast<const float*>(y)[at];
      float low[4] = {}, high[4] = {};
#pragma unroll
      for (uint32_t c = 0; c < Chunks; ++c) {
        add_chunk<Half>(low, chunk[i][c], *reinterpret_cast<const uint4*>(row + c * kStreamChunk));
        add_chunk<Half>(high, chunk[i][c], *reinterpret_cast<const uint4*>(row + n_half + c * kStreamChunk));
      }
      request(tile + kAbreast * gridDim.x, chunk[i]);
      scratch.part[buffer][warp][lane] = make_float2(low[0] + high[2], low[1] + high[3]);
      __syncthreads(); /* also: all have read the other buffer's sums */
      const float sum = before + (stores ? scratch.total(buffer, o, column) : 0.0f);
      if (Output == kStreamHalf && stores) from_float(sum, static_cast<Half*>(y) + at);
      if (Output == kStreamAdd && stores) static_cast<float*>(y)[at] = sum;
      if (Output != kStreamAdd || !router.w) continue;
      if (stores) scratch.sums[buffer][o] = sum;
      __syncthreads();
      part.add(scratch.sums[buffer]);
      part.request(tile + gridDim.x, tile + gridDim.x < n_tiles);
    }
  }
  if (Output == kStreamAdd) part.finish();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_LINEAR_HELD_H */
