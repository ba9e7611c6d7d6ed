/* Product: y = x w^T of up to 8 * Groups tokens, a block its tiles of w, over the weight stream.
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
template <int Groups>
struct ProductSums {
  float4 part[kPassTiles<Groups>][Groups][kDecoderWarps][32];

  /* Row `row` of a tile for `token`. */
  __device__ __forceinline__ float total(uint32_t tile, uint32_t row, uint32_t token) const {
    const uint32_t lane = row % 8 * 4 + token % 8 / 2, e = row / 8 * 2 + token % 2;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kDecoderWarps; ++warp)
      sum += reinterpret_cast<const float*>(&part[tile][token / 8][warp][lane])[e];
    return sum;
  }
};

/* Rows of x, [tokens][n_in] half. A token that does not exist is another: a branch would make the loads wait for each
 * other. */
template <typename Half>
struct HalfRows {
  using Raw = uint4;
  static constexpr bool kAhead = true; /* registers suffice to load a stage's share while the one before is used */
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
template <int Groups, typename Rows>
struct StageRows {
  typename Rows::Raw raw[kStageChunks][Groups];

  /* From the warp's k + done on; past its end, which only a stage that does not exist reaches, the last again. */
  __device__ __forceinline__ void load(const Rows& rows, const BlockTiles& tiles, uint32_t done) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t c = 0; c < kStageChunks; ++c)
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const uint32_t k = min(done + c * kStreamChunk, tiles.share() - kStreamChunk);
        raw[c][g] = rows.load(lane / 4 + 8 * g, tiles.first_k() + k + lane % 4 * 8);
      }
  }
  __device__ __forceinline__ void convert(const Rows& rows, uint4 (&x)[kStageChunks][Groups]) const {
#pragma unroll
    for (uint32_t c = 0; c < kStageChunks; ++c)
#pragma unroll
      for (int g = 0; g < Groups; ++g) x[c][g] = rows.convert(raw[c][g], threadIdx.x % 32 / 4 + 8 * g);
  }
};

/* By the whole block, for the next matrix of the stream. prepare() makes what the rows' conversion needs, while the
 * first loads are under way. store(tile, token, row, low, high) receives rows `row`
 * and `row` + 8 of a tile from 8 consecutive threads, row = 0..7, for every token up to 8 * Groups. */
template <typename Half, int Groups, typename Stream, typename Rows, typename Prepare, typename Store>
__device__ __forceinline__ void multiply(Stream& stream, const BlockTiles& tiles, const Rows& rows,
                                         ProductSums<Groups>& sums, const Prepare& prepare, const Store& store) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (uint32_t pass = 0; pass < tiles.count; pass += kPassTiles<Groups>) {
    const uint32_t n = min(kPassTiles<Groups>, tiles.count - pass);
    StageRows<Groups, Rows> next;
    next.load(rows, tiles, 0);
    __syncthreads(); /* the sums of the pass before have been read */
    if (pass == 0) prepare();
#pragma unroll 1
    for (uint32_t done = 0; done < tiles.share(); done += tiles.stage_k()) {
      uint4 x[kStageChunks][Groups];
      if (!Rows::kAhead && done) next.load(rows, tiles, done);
      next.convert(rows, x);
      if (Rows::kAhead) next.load(rows, tiles, done + tiles.stage_k());
#pragma unroll 1
      for (uint32_t t = 0; t < n; ++t) {
        float acc[Groups][4] = {};
#pragma unroll
        for (int g = 0; g < Groups; ++g)
          if (done) {
            const float4 sum = sums.part[t][g][warp][lane];
            acc[g][0] = sum.x, acc[g][1] = sum.y, acc[g][2] = sum.z, acc[g][3] = sum.w;
          }
        stream.add(acc, x, tiles.stage_chunks);
#pragma unroll
        for (int g = 0; g < Groups; ++g)
          sums.part[t][g][warp][lane] = make_float4(acc[g][0], acc[g][1], acc[g][2], acc[g][3]);
      }
    }
    __syncthreads();
    const uint32_t token = threadIdx.x / 8 % (8 * Groups), row = threadIdx.x % 8;
    for (uint32_t tile = threadIdx.x / (64 * Groups); tile < n; tile += kDecoderThreads / (64 * Groups))
      store(tiles.first + pass + tile, token, row, sums.total(tile, row, token), sums.total(tile, row + 8, token));
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_PRODUCT_H */
