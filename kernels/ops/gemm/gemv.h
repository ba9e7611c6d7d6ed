/* GEMV, for few rows: y = x w^T where reading w is all the work. CPU reference: matmul.h.
 *
 *   x  [m][n_in] half
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kEpilogueSilu: gate rows, then up rows; or fp8 with
 *      scales. code_gemv_sm90.h has codes of four bits
 *   y  [m][n_out]: kEpilogueHalf half; kEpilogueFloat fp32; kEpilogueAdd fp32, y += x w^T; kEpilogueSilu half,
 *      silu(x gate^T) * (x up^T)
 *
 * The weights are the tensor cores' 16-row operand, 8 rows of x the other. A lane loads 16 bytes of a row of
 * w straight into registers: 8 consecutive k, of which the instruction wants 4 here and 4 elsewhere. The sum
 * over k has no order, so k is permuted: lane (r, q) supplies k = 8q..8q + 7 of rows r and r + 8 of w, and of
 * row r of x, and both operands agree. Nothing is shuffled or staged.
 *
 * The warps of a block split k and add up in shared memory. The loads of kGemvDepth chunks are in flight in
 * every warp, across tiles and, before the predecessor has ended, across kernels.
 */
#ifndef BLINK_OPS_GEMM_GEMV_H
#define BLINK_OPS_GEMM_GEMV_H

#include "kernels/ops/activation.h"
#include "weight_lanes.h"

#ifdef __CUDACC__

namespace blink {

enum EpilogueOp { kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu };

constexpr uint32_t kGemvWarps = 8;
constexpr uint32_t kGemvThreads = 32 * kGemvWarps;
constexpr uint32_t kGemvBlocks = 2; /* of a multiprocessor: one alone leaves it idle at every kernel's edges */
constexpr uint32_t kGemvChunk = 32; /* k that a warp loads at once */
constexpr uint32_t kGemvRows = 16;  /* of w in a tile */
/* Chunks in flight, by groups of 8 rows of x; measured: 4 are slower for one group, and 8 for two. */
template <int Groups>
constexpr uint32_t kGemvDepth = Groups == 1 ? 8 : 4;
/* The same of weights in a form: a chunk of fp8 has twice the k. */
template <int Groups, ScaleForm Form>
constexpr uint32_t kGemvFormDepth = Form == kUnscaled ? kGemvDepth<Groups> : 4;
constexpr uint32_t kGemvRound = kGemvWarps * kGemvDepth<1> * kGemvChunk; /* k that a block loads at once */

/* Where a warp's next round of chunks comes from: this lane's two rows of w, and how many chunks exist. */
template <typename Half, ScaleForm Form>
struct WeightSource {
  typename WeightTypes<Half, Form>::Pointer low, high;
  uint32_t n_chunks;
  LaneScales<Form> scales;

  __device__ __forceinline__ void load(uint32_t slot, LaneChunk<Form>& chunk) const {
    load_weight(low + slot * kChunkWeights<Form>, slot < n_chunks, chunk.low);
    load_weight(high + slot * kChunkWeights<Form>, slot < n_chunks, chunk.high);
    scales.load(slot, slot < n_chunks, chunk);
  }
};

/* A lane's two rows of w. */
struct GemvRows {
  uint32_t low, high;
};

/* A block's place in the matmul. */
template <typename Half, int Output, ScaleForm Form>
struct GemvTiles {
  typename WeightTypes<Half, Form>::Matrix w;
  uint32_t n_in, n_out, n_tiles, first_chunk, n_chunks; /* the warp's share of k */

  static constexpr uint32_t kOutputs = Output == kEpilogueSilu ? kGemvRows / 2 : kGemvRows;

  __device__ __forceinline__ GemvTiles(const typename WeightTypes<Half, Form>::Matrix& weight, uint32_t in,
                                       uint32_t out)
      : w(weight), n_in(in), n_out(out), n_tiles((out + kOutputs - 1) / kOutputs) {
    const uint32_t all = in / kChunkWeights<Form>, share = (all + kGemvWarps - 1) / kGemvWarps;
    first_chunk = min(all, threadIdx.x / 32 * share);
    n_chunks = min(all, first_chunk + share) - first_chunk;
  }

  /* Of a tile; those past the end are the last one again. */
  __device__ __forceinline__ GemvRows rows(uint32_t tile) const {
    const uint32_t r = tile * kOutputs + threadIdx.x % 32 / 4, low = min(n_out - 1, r);
    return {low, Output == kEpilogueSilu ? n_out + low : min(n_out - 1, r + 8)};
  }

  /* The chunks from `done` on of the warp's share of a tile. */
  __device__ __forceinline__ WeightSource<Half, Form> source(uint32_t tile, uint32_t done) const {
    const uint32_t first_k = (first_chunk + done) * kChunkWeights<Form>;
    const uint64_t k = uint64_t(first_k) + threadIdx.x % 4 * kLaneWeights<Form>;
    const auto [low, high] = rows(tile);
    const bool exists = tile < n_tiles && done < n_chunks;
    const auto elements = elements_of(w);
    return {elements + uint64_t(low) * n_in + k, elements + uint64_t(high) * n_in + k, exists ? n_chunks - done : 0,
            LaneScales<Form>(w, low, high, n_in, first_k)};
  }

  /* What the sums of the thread's output of a tile, and for kEpilogueSilu of its up row, are multiplied by. */
  __device__ __forceinline__ OutputScales output_scales(uint32_t tile) const {
    if constexpr (Form != kScaleByRow) return {1.0f, 1.0f};
    const float* of = scales_of(w) + min(n_out - 1, tile * kOutputs + threadIdx.x % kOutputs);
    return {of[0], Output == kEpilogueSilu ? of[n_out] : 1.0f};
  }
};

/* What the warps of a block add up: the fragments of each, of several tiles in turn. */
template <int Groups, uint32_t Buffers = 2>
struct GemvSums {
  float4 part[Buffers][kGemvWarps][Groups][32];

  /* Row `row` of the tile for row `column` of x. */
  __device__ __forceinline__ float total(uint32_t buffer, uint32_t row, uint32_t column) const {
    const uint32_t group = column / 8, lane = row % 8 * 4 + column % 8 / 2, e = row / 8 * 2 + column % 2;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kGemvWarps; ++warp)
      sum += reinterpret_cast<const float*>(&part[buffer][warp][group][lane])[e];
    return sum;
  }
};

/* Writes the sum of the tile's output o for row `column` of x, to place `at` of y. */
template <typename Half, int Output, typename Sums>
__device__ __forceinline__ void store_gemv(const Sums& sums, uint32_t buffer, void* y, uint32_t o, uint32_t column,
                                           uint64_t at, const OutputScales& scale) {
  const float sum = scale.low * sums.total(buffer, o, column);
  if (Output == kEpilogueHalf) from_float(sum, static_cast<Half*>(y) + at);
  if (Output == kEpilogueFloat) static_cast<float*>(y)[at] = sum;
  if (Output == kEpilogueAdd) static_cast<float*>(y)[at] += sum;
  if (Output == kEpilogueSilu)
    from_float(gated(sum, scale.high * sums.total(buffer, o + 8, column)), static_cast<Half*>(y) + at);
}

/* A round of chunks: adds them to acc and puts those of `next` in their place; of fp8 by row before they are
 * multiplied, as expert_round does (kernels/ops/moe/expert_stream.h). `row` is the lane's row of x in each group of 8,
 * at the round's first k. */
template <typename Half, int Groups, bool Full, ScaleForm Form, uint32_t kDepth>
__device__ __forceinline__ void gemv_round(float (&acc)[Groups][4], LaneChunk<Form> (&chunk)[kDepth],
                                           const Half* const (&row)[Groups], uint32_t k, uint32_t n_chunks,
                                           const WeightSource<Half, Form>& next) {
  constexpr uint32_t kVectors = kLaneVectors<Form>;
  constexpr uint32_t kAhead = Groups == 1 ? 2 : 1;            /* chunks whose x is loaded together */
  constexpr bool kEarly = Form == kScaleByRow && Groups == 1; /* others have no registers for it */
#pragma unroll
  for (uint32_t first = 0; first < kDepth; first += kAhead) {
    uint4 x[kAhead][Groups][kVectors];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i)
#pragma unroll
      for (int g = 0; g < Groups; ++g)
#pragma unroll
        for (uint32_t v = 0; v < kVectors; ++v) {
          if (!Full && kEarly) x[i][g][v] = make_uint4(0, 0, 0, 0);
          if (Full || first + i < n_chunks)
            x[i][g][v] = *reinterpret_cast<const uint4*>(row[g] + k + (first + i) * kChunkWeights<Form> + 8 * v);
        }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if constexpr (kEarly) {
        const LaneChunk<Form> taken = chunk[first + i];
        next.load(first + i, chunk[first + i]);
        multiply_chunk<Half, Form, Groups>(acc, taken, x[i]);
        __syncwarp();
      } else {
        if (Full || first + i < n_chunks) multiply_chunk<Half, Form, Groups>(acc, chunk[first + i], x[i]);
        next.load(first + i, chunk[first + i]);
      }
    }
  }
}

/* grid (at most the tiles), block (kGemvThreads); m at most 8 * Groups, n_in a multiple of kChunkWeights<Form>.
 * Blocks take tiles blockIdx.x, blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, int Groups, ScaleForm Form = kUnscaled>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    gemv_kernel(typename WeightTypes<Half, Form>::Matrix w, const Half* x, void* y, uint32_t m, uint32_t n_in,
                uint32_t n_out) {
  using Tiles = GemvTiles<Half, Output, Form>;
  constexpr uint32_t kDepth = kGemvFormDepth<Groups, Form>;
  __shared__ GemvSums<Groups> sums;
  allow_successor();
  const Tiles tiles(w, n_in, n_out);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t rounds = (tiles.n_chunks + kDepth - 1) / kDepth;
  LaneChunk<Form> chunk[kDepth] = {};
  WeightSource<Half, Form> source = tiles.source(blockIdx.x, 0);
  /* The first tile's scales are requested here, and the next tile's at the end of each. At the head of the loop, ptxas
   * would first wait for the weights, which have the same scoreboard (kernels/ops/moe/expert_ring.h), and so it would
   * request x too late. */
  OutputScales scale = tiles.output_scales(blockIdx.x);
#pragma unroll
  for (uint32_t slot = 0; slot < kDepth; ++slot) source.load(slot, chunk[slot]);
  wait_for_predecessor();

  const Half* row[Groups]; /* of x; what is computed for rows past the end is not stored */
#pragma unroll
  for (int g = 0; g < Groups; ++g)
    row[g] = x + uint64_t(min(m - 1, lane / 4 + 8 * g)) * n_in + lane % 4 * kLaneWeights<Form>;
  uint32_t buffer = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles.n_tiles; tile += gridDim.x, buffer ^= 1) {
    float acc[Groups][4] = {};
    for (uint32_t round = 0; round < rounds; ++round) {
      const bool last = round + 1 == rounds;
      const WeightSource<Half, Form> next =
          tiles.source(last ? tile + gridDim.x : tile, last ? 0 : (round + 1) * kDepth);
      const uint32_t k = (tiles.first_chunk + round * kDepth) * kChunkWeights<Form>;
      if (source.n_chunks >= kDepth)
        gemv_round<Half, Groups, true, Form>(acc, chunk, row, k, kDepth, next);
      else
        gemv_round<Half, Groups, false, Form>(acc, chunk, row, k, source.n_chunks, next);
      source = next;
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g)
      sums.part[buffer][warp][g][lane] = make_float4(acc[g][0], acc[g][1], acc[g][2], acc[g][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    for (uint32_t e = threadIdx.x; e < m * Tiles::kOutputs; e += kGemvThreads) {
      const uint32_t o = e % Tiles::kOutputs, column = e / Tiles::kOutputs, out = tile * Tiles::kOutputs + o;
      if (out < n_out) store_gemv<Half, Output>(sums, buffer, y, o, column, uint64_t(column) * n_out + out, scale);
    }
    scale = tiles.output_scales(tile + gridDim.x);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_GEMV_H */
