/* The second kernel of one token's experts (single_token.h): down, and the weighted sum of what the experts put out in
 * its place in the residual.
 */
#ifndef BLINK_OPS_MOE_SINGLE_TOKEN_DOWN_H
#define BLINK_OPS_MOE_SINGLE_TOKEN_DOWN_H

#include "single_token.h"

#ifdef __CUDACC__

namespace blink {

/* Chunks in flight in every warp, of fp8 an item's in Qwen3-30B-A3B. */
template <ScaleForm Form>
constexpr uint32_t kSingleDownDepth = Form == kUnscaled ? 8 : 6;

/* A warp's expert of a down matmul, whose 16 rows for the tensor cores are the first and second halves of k of 8
 * outputs, as in resident_gemv.h. */
template <typename Half, ScaleForm Form>
struct SingleDown {
  typename WeightTypes<Half, Form>::Matrix w;
  uint64_t first_row; /* of the expert */
  bool exists;
  uint32_t n_half, n_tiles, n_chunks;

  __device__ __forceinline__ uint64_t row(uint32_t tile) const {
    return first_row + tile * kSingleOutputs + threadIdx.x % 32 / 4;
  }
  /* Chunk c of the lane's row of a tile, if there is such a chunk. */
  __device__ __forceinline__ void request(uint32_t tile, uint32_t c, LaneChunk<Form>& to) const {
    const bool wanted = exists && tile < n_tiles && c < n_chunks;
    const uint32_t k = c * kChunkWeights<Form>;
    const auto from = elements_of(w) + row(tile) * (2 * n_half) + threadIdx.x % 4 * kLaneWeights<Form> + k;
    load_weight(from, wanted, to.low);
    load_weight(from + n_half, wanted, to.high);
    LaneScales<Form>(w, row(tile), row(tile), 2 * n_half, k).load_halves(0, n_half / kChunkWeights<Form>, wanted, to);
  }
  /* What the sums of the lane's row of a tile are multiplied by at their end. */
  __device__ __forceinline__ float row_scale(uint32_t tile) const {
    if constexpr (Form != kScaleByRow) return 1.0f;
    return exists ? scales_of(w)[row(tile)] : 0.0f;
  }
  /* What is added to that. */
  __device__ __forceinline__ float row_bias(const Half* biases, uint32_t tile) const {
    return exists ? to_float(biases[row(tile)]) : 0.0f;
  }
};

/* A warp's row of x, [n_in], in shared memory: registers have no room for all that fp8 needs of it, and to wait for it
 * again and again would take as long as the weights. It is held in float16, in which fp8 is multiplied, and in which
 * not every bfloat16 has a place: so times the power of two that brings the largest near to the end of its range.
 * Returns what the row's products are multiplied by in turn. */
template <typename Half>
__device__ __forceinline__ float hold_row(const Half* x, __half* held, uint32_t n_in) {
  constexpr uint32_t kVectors = 4; /* that a lane loads together: all in Qwen3-30B-A3B */
  constexpr uint32_t kStride = kVectors * 32 * 8, kExponent = 14, kBias = 127;
  float value[kVectors][8];
  const auto load = [&](uint32_t first) {
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i) {
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) value[i][e] = 0.0f;
      if (first + i * 32 * 8 < n_in) load8(x + first + i * 32 * 8, value[i]);
    }
  };
  uint32_t largest = 0; /* of floats without their sign, whose order is that of their bits */
  for (uint32_t first = threadIdx.x % 32 * 8; first < n_in; first += kStride) {
    load(first);
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i)
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) largest = max(largest, __float_as_uint(value[i][e]) & 0x7fffffff);
  }
  const uint32_t exponent = max(__reduce_max_sync(0xffffffffu, largest) >> 23, kExponent + 1);
  const float factor = __uint_as_float((2 * kBias + kExponent - exponent) << 23);
  for (uint32_t first = threadIdx.x % 32 * 8; first < n_in; first += kStride) {
    if (n_in > kStride) load(first);
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i) {
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) value[i][e] *= factor;
      if (first + i * 32 * 8 < n_in) store8(held + first + i * 32 * 8, value[i]);
    }
  }
  __syncwarp();
  return 1.0f / factor;
}
/* The same where it is held as it is: codes become what x is. */
template <typename Half>
__device__ __forceinline__ void hold_unchanged(const Half* x, Half* held, uint32_t n_in) {
  for (uint32_t at = threadIdx.x % 32 * 8; at < n_in; at += 32 * 8)
    *reinterpret_cast<uint4*>(held + at) = *reinterpret_cast<const uint4*>(x + at);
  __syncwarp();
}

/* grid (any), block (kGemvThreads), of narrow weights per_token * n_in halves of dynamic shared memory; per_token at
 * most kSingleExperts, n_in a multiple of 2 * kChunkWeights, n_out of kSingleOutputs. Its predecessor is gate_up, which
 * lets it start when the routing is there (E14), and leaves it n_sums sums to clear. A tile is 8 outputs of all
 * experts, a warp's each, and x the first two columns. The bias is null unless it is Biased. */
template <typename Half, ScaleForm Form = kUnscaled, bool Biased = false>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    moe_single_token_down_kernel(const uint32_t* topk_ids, const float* weight, int64_t* sums, uint32_t n_sums,
                                 typename WeightTypes<Half, Form>::Matrix w, const Half* x, float* residual,
                                 uint32_t n_in, uint32_t n_out, uint32_t per_token, const Half* bias) {
  static_assert(!Biased || Form == kUnscaled, "no such kernel");
  constexpr uint32_t kDepth = kSingleDownDepth<Form>, kVectors = kLaneVectors<Form>;
  constexpr uint32_t kAhead = Form == kUnscaled ? kDepth : 2; /* chunks whose x is loaded together */
  using X = typename Multiplied<Half, Form>::Type;
  __shared__ float part[2][kSingleExperts][kSingleOutputs]; /* two tiles in turn */
  __shared__ float share[kSingleExperts];
  allow_successor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, n_half = n_in / 2;
  const uint32_t n_tiles = n_out / kSingleOutputs, n_chunks = n_half / kChunkWeights<Form>;
  const uint32_t expert = warp < per_token ? load_relaxed32(topk_ids + warp) : kNoExpert;
  const bool exists = expert != kNoExpert;
  const SingleDown<Half, Form> stream = {w, exists ? uint64_t(expert) * n_out : 0, exists, n_half, n_tiles, n_chunks};
  LaneChunk<Form> chunk[kDepth] = {};
#pragma unroll
  for (uint32_t i = 0; i < kDepth; ++i) stream.request(blockIdx.x, i, chunk[i]);
  wait_for_predecessor();
  if (blockIdx.x + 1 == gridDim.x)
    for (uint32_t i = threadIdx.x; i < n_sums; i += kGemvThreads) sums[i] = 0;
  const bool ends = threadIdx.x < kSingleOutputs;
  if (threadIdx.x < kSingleExperts) share[threadIdx.x] = threadIdx.x < per_token ? weight[threadIdx.x] : 0.0f;
  const X* row;
  float row_factor = 1.0f;
  if constexpr (Form == kUnscaled) {
    row = x + uint64_t(warp) * n_in;
  } else {
    X* held = reinterpret_cast<X*>(dynamic_shared()) + warp * n_in;
    if constexpr (kIsCodes<Form>) {
      if (exists) hold_unchanged(x + uint64_t(warp) * n_in, held, n_in);
    } else {
      if (exists) row_factor = hold_row(x + uint64_t(warp) * n_in, held, n_in);
    }
    row = held; /* also where nothing is read: the compiler must know that all reads are from shared memory */
  }
  row += r * n_half + lane % 4 * kLaneWeights<Form>; /* of two columns */
  uint32_t buffer = 0;
  for (uint32_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x, buffer ^= 1) {
    const uint32_t at = tile * kSingleOutputs + threadIdx.x;
    const float before = ends ? residual[at] : 0.0f, row_scale = row_factor * stream.row_scale(tile);
    float row_bias = 0.0f;
    if constexpr (Biased) row_bias = stream.row_bias(bias, tile);
    float acc[1][4] = {};
    for (uint32_t done = 0; done < n_chunks; done += kDepth) {
      const bool last = done + kDepth >= n_chunks;
#pragma unroll
      for (uint32_t first = 0; first < kDepth; first += kAhead) {
        uint4 value[kAhead][1][kVectors];
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i)
#pragma unroll
          for (uint32_t v = 0; v < kVectors; ++v) {
            value[i][0][v] = make_uint4(0, 0, 0, 0);
            const uint32_t c = done + first + i;
            if (exists && r < 2 && c < n_chunks)
              value[i][0][v] = *reinterpret_cast<const uint4*>(row + c * kChunkWeights<Form> + 8 * v);
          }
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const uint32_t slot = first + i;
          multiply_chunk<X, Form, 1>(acc, chunk[slot], value[i]);
          stream.request(last ? tile + gridDim.x : tile, last ? slot : done + kDepth + slot, chunk[slot]);
        }
      }
    }
    if (lane % 4 == 0) part[buffer][warp][r] = row_scale * (acc[0][0] + acc[0][3]);
    if (Biased && lane % 4 == 0) part[buffer][warp][r] += row_bias;
    __syncthreads(); /* also: all have read the other buffer */
    if (!ends) continue;
    float sum = before;
#pragma unroll
    for (uint32_t e = 0; e < kSingleExperts; ++e) sum += share[e] * part[buffer][e][threadIdx.x];
    residual[at] = sum;
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_SINGLE_TOKEN_DOWN_H */
