/* Product: y = x w^T of up to BLINK_DECODER_TOKENS tokens, a block its tiles of w, over the weight stream.
 *
 * x comes from buffers that other blocks wrote: it is loaded after a meeting of the grid, once for a pass. What
 * is computed for tokens past the last one is never stored.
 */
#ifndef BLINK_DECODER_PRODUCT_H
#define BLINK_DECODER_PRODUCT_H

#include "weight_stream.h"

#ifdef __CUDACC__

namespace blink {

/* What the warps of a block add up: the fragments of each. They stay in shared memory and not in registers,
 * which would have to be named: the loop over a pass's tiles would become code for each, more than the
 * multiprocessor's instruction cache holds. */
struct ProductSums {
  float4 part[kPassTiles][kDecoderWarps][32];

  /* Row `row` of a tile for `token`. */
  __device__ __forceinline__ float total(uint32_t tile, uint32_t row, uint32_t token) const {
    const uint32_t lane = row % 8 * 4 + token / 2, e = row / 8 * 2 + token % 2;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kDecoderWarps; ++warp)
      sum += reinterpret_cast<const float*>(&part[tile][warp][lane])[e];
    return sum;
  }
};

/* Rows of x, [tokens][n_in] half. A token that does not exist is another: a branch would make the loads wait for each
 * other. */
template <typename Half>
struct HalfRows {
  using Raw = uint4;
  static constexpr bool kAhead = true; /* there are registers to load a stage's share while the one before is used */
  const Half* x;
  uint32_t n_in, n_tokens;

  /* 8 elements of `token` from k on, as they lie in memory; and as the product takes them. */
  __device__ __forceinline__ Raw load(uint32_t token, uint32_t k) const {
    return *reinterpret_cast<const uint4*>(x + uint64_t(min(token, n_tokens - 1)) * n_in + k);
  }
  __device__ __forceinline__ uint4 convert(const Raw& raw, uint32_t) const { return raw; }
};

/* Rows of x that are normalised as they are loaded: x[i] * scale[token] * weight[i]. */
template <typename Half>
struct NormedRows {
  struct Raw {
    float4 low, high;
    uint4 weight;
  };
  static constexpr bool kAhead = false;
  const float* residual; /* [tokens][n_in] */
  const Half* weight;
  const float* scale; /* [tokens], in shared memory */
  uint32_t n_in, n_tokens;

  __device__ __forceinline__ Raw load(uint32_t token, uint32_t k) const {
    const float4* at = reinterpret_cast<const float4*>(residual + uint64_t(min(token, n_tokens - 1)) * n_in + k);
    return {at[0], at[1], *reinterpret_cast<const uint4*>(weight + k)};
  }
  __device__ __forceinline__ uint4 convert(const Raw& raw, uint32_t token) const {
    const float by = scale[min(token, n_tokens - 1)];
    const Half* factor = reinterpret_cast<const Half*>(&raw.weight);
    const auto pair = [&](float a, float b, int i) {
      return pack<Half>(a * by * to_float(factor[i]), b * by * to_float(factor[i + 1]));
    };
    return make_uint4(pair(raw.low.x, raw.low.y, 0), pair(raw.low.z, raw.low.w, 2), pair(raw.high.x, raw.high.y, 4),
                      pair(raw.high.z, raw.high.w, 6));
  }
};

/* A stage's share of x: what a lane needs of it. */
template <typename Rows>
struct StageRows {
  typename Rows::Raw raw[kStageChunks];

  /* From the warp's k + done on; past its end, which only a stage that does not exist reaches, the last again. */
  __device__ __forceinline__ void load(const Rows& rows, const BlockTiles& tiles, uint32_t done) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t c = 0; c < kStageChunks; ++c) {
      const uint32_t k = min(done + c * kStreamChunk, tiles.share() - kStreamChunk);
      raw[c] = rows.load(lane / 4, tiles.first_k() + k + lane % 4 * 8);
    }
  }
  __device__ __forceinline__ void convert(const Rows& rows, uint4 (&x)[kStageChunks]) const {
#pragma unroll
    for (uint32_t c = 0; c < kStageChunks; ++c) x[c] = rows.convert(raw[c], threadIdx.x % 32 / 4);
  }
};

/* By the whole block, for the next matrix of the stream. store(tile, token, row, low, high) receives rows `row`
 * and `row` + 8 of a tile from 8 consecutive threads, row = 0..7, for every token up to the capacity. */
template <typename Half, typename Stream, typename Rows, typename Store>
__device__ __forceinline__ void multiply(Stream& stream, const BlockTiles& tiles, const Rows& rows, ProductSums& sums,
                                         const Store& store) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (uint32_t pass = 0; pass < tiles.count; pass += kPassTiles) {
    const uint32_t n = min(kPassTiles, tiles.count - pass);
    StageRows<Rows> next;
    if (Rows::kAhead) next.load(rows, tiles, 0);
    __syncthreads(); /* the sums of the pass before have been read */
#pragma unroll 1
    for (uint32_t done = 0; done < tiles.share(); done += tiles.stage_k()) {
      uint4 x[kStageChunks];
      if (!Rows::kAhead) next.load(rows, tiles, done);
      next.convert(rows, x);
      if (Rows::kAhead) next.load(rows, tiles, done + tiles.stage_k());
#pragma unroll 1
      for (uint32_t t = 0; t < n; ++t) {
        float4& sum = sums.part[t][warp][lane];
        float acc[4] = {};
        if (done) acc[0] = sum.x, acc[1] = sum.y, acc[2] = sum.z, acc[3] = sum.w;
        stream.add(acc, x, tiles.stage_chunks);
        sum = make_float4(acc[0], acc[1], acc[2], acc[3]);
      }
    }
    __syncthreads();
    constexpr uint32_t kTileThreads = 8 * BLINK_DECODER_TOKENS;
    const uint32_t token = threadIdx.x % kTileThreads / 8, row = threadIdx.x % 8;
    for (uint32_t tile = threadIdx.x / kTileThreads; tile < n; tile += kDecoderThreads / kTileThreads)
      store(tiles.index(pass + tile), token, row, sums.total(tile, row, token), sums.total(tile, row + 8, token));
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_PRODUCT_H */
