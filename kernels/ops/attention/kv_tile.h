/* A warp's part of decode_attention_sm90.h: 16 keys and values in shared memory, and the running softmax over them.
 *
 * On the tensor cores scores are [heads][keys] and the output is [dimensions][heads], with the weights where the
 * scores left them. A tile lies as one bulk copy leaves it: keys, then values, each [spans][16][span] with the
 * 16-byte units of a row swizzled (PTX manual, "Swizzling Modes"), so that ldmatrix has no bank conflicts.
 */
#ifndef BLINK_OPS_ATTENTION_KV_TILE_H
#define BLINK_OPS_ATTENTION_KV_TILE_H

#include "kernels/primitives/common.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTileKeys = 16; /* divides the page size */

/* Of a key, the dimensions that lie together in a tile: as many as the widest swizzle takes. */
template <int HeadDim>
constexpr uint32_t kSpanDims = HeadDim % 64 == 0   ? 64
                               : HeadDim % 32 == 0 ? 32
                                                   : 16;

template <int HeadDim>
constexpr uint32_t kTileBytes = 2 * 2 * kTileKeys * HeadDim;

/* Fragments of a tile in shared memory: of 16 dimensions from 16 c on. */
template <typename Half, int HeadDim>
class CopiedTile {
 public:
  __device__ __forceinline__ explicit CopiedTile(char* tile) : tile_(tile) {
    const uint32_t lane = threadIdx.x % 32, key = lane / 16 * 8 + lane % 8;
    row_ = tile + key * kSpan;
    swizzle_ = (lane / 8 % 2 ^ key * kSpan / 128 % (kSpan / 16)) * 16;
  }

  /* Keys 0..7, then 8..15, each the lower 8 dimensions and then the upper: operand b of two mma instructions. */
  __device__ __forceinline__ void keys(uint32_t c, uint32_t (&m)[4]) const { load_matrices<false>(m, at(c)); }
  /* Operand a: dimensions by keys. */
  __device__ __forceinline__ void values(uint32_t c, uint32_t (&m)[4]) const {
    load_matrices<true>(m, at(c) + kTileBytes<HeadDim> / 2);
  }

  /* Clears the values past the n_valid-th: their weight is 0, but 0 times a stale value may be NaN. Called by the warp.
   */
  __device__ __forceinline__ void clear_values(uint32_t n_valid) const {
    constexpr uint32_t units = kSpan / 16;
    const uint32_t n = (kTileKeys - n_valid) * units;
    for (uint32_t e = threadIdx.x % 32; e < HeadDim / kSpanDims<HeadDim> * n; e += 32)
      *reinterpret_cast<uint4*>(tile_ + kTileBytes<HeadDim> / 2 + e / n * kTileKeys * kSpan +
                                (n_valid + e % n / units) * kSpan + e % units * 16) = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }

 private:
  static constexpr uint32_t kSpan = 2 * kSpanDims<HeadDim>; /* bytes */

  __device__ __forceinline__ const char* at(uint32_t c) const {
    return row_ + c * 32 / kSpan * kTileKeys * kSpan + (c * 32 % kSpan ^ swizzle_);
  }

  char *tile_, *row_;
  uint32_t swizzle_;
};

/* The step's own key and value as a tile of one key. */
template <typename Half>
struct NewTile {
  const Half *key, *value;

  __device__ __forceinline__ void keys(uint32_t c, uint32_t (&m)[4]) const {
    const Half* at = key + 16 * c + 2 * (threadIdx.x % 4);
    m[0] = m[1] = m[2] = m[3] = 0;
    if (threadIdx.x % 32 >= 4) return;
    m[0] = *reinterpret_cast<const uint32_t*>(at);
    m[1] = *reinterpret_cast<const uint32_t*>(at + 8);
  }
  __device__ __forceinline__ void values(uint32_t c, uint32_t (&m)[4]) const {
    const unsigned short* at = reinterpret_cast<const unsigned short*>(value) + 16 * c + threadIdx.x % 32 / 4;
    m[0] = m[1] = m[2] = m[3] = 0;
    if (threadIdx.x % 4 == 0) m[0] = at[0], m[1] = at[8];
  }
};

/* A warp's running softmax over its tiles, for 8 query heads. Lane (r, q): maximum (log2 units) and its share of the
 * sum of head r; output[c], unnormalised, at dimensions 16c + r (elements 0, 1) and + 8 (2, 3) of heads 2q (0, 2)
 * and 2q + 1 (1, 3). */
template <typename Half, int HeadDim>
class TileSoftmax {
 public:
  static constexpr int kChunks = HeadDim / 16;
  static constexpr uint32_t kOutStride = HeadDim + 4; /* spreads the heads over the banks */
  static constexpr bool kHeld = HeadDim <= 128;       /* queries stay in registers, which larger heads do not leave */

  /* `queries` [8][stride], rotated; what lies behind the group's end has no influence on the others. */
  __device__ __forceinline__ TileSoftmax(const Half* queries, uint32_t stride) {
    row_ = queries + r() * stride + 2 * q();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (kHeld) query_[kHeld ? c : 0] = load_query(c);
      output_[c][0] = output_[c][1] = output_[c][2] = output_[c][3] = 0.0f;
    }
  }

  /* Keys n_hidden to n_valid - 1 of the tile, at least one. */
  template <typename Tile>
  __device__ __forceinline__ void add(const Tile& tile, uint32_t n_valid, uint32_t n_hidden = 0) {
    float s[2][4] = {};
    score(tile, s);
    weigh(s, n_valid, n_hidden);
    const uint32_t low = pack<Half>(s[0][0], s[0][1]), high = pack<Half>(s[1][0], s[1][1]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t v[4];
      tile.values(c, v);
      mma(output_[c], v, low, high, Half());
    }
  }

  /* To out [n_queries][kOutStride], max and sum [n_queries]. */
  __device__ __forceinline__ void store(float* out, float* max, float* sum, uint32_t n_queries) const {
    float total = sum_ + __shfl_xor_sync(0xffffffffu, sum_, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (q() == 0 && r() < n_queries) max[r()] = max_, sum[r()] = total;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (2 * q() + h >= n_queries) continue;
      float* row = out + (2 * q() + h) * kOutStride + r();
#pragma unroll
      for (int c = 0; c < kChunks; ++c) row[16 * c] = output_[c][h], row[16 * c + 8] = output_[c][2 + h];
    }
  }

 private:
  static __device__ __forceinline__ uint32_t r() { return threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ uint32_t q() { return threadIdx.x % 4; }

  __device__ __forceinline__ uint2 load_query(int c) const {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(row_ + 16 * c);
    return {from[0], from[4]};
  }

  /* Scores of keys 8h + 2q, 8h + 2q + 1 for head r, in elements 0 and 1 of s[h]. Even and odd chunks are summed
   * apart: the mma instructions of one sum wait for each other. */
  template <typename Tile>
  __device__ __forceinline__ void score(const Tile& tile, float (&s)[2][4]) const {
    float odd[2][4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t k[4];
      tile.keys(c, k);
      const uint2 query = kHeld ? query_[kHeld ? c : 0] : load_query(c);
      const uint32_t a[4] = {query.x, 0, query.y, 0};
      mma(c % 2 ? odd[0] : s[0], a, k[0], k[1], Half());
      mma(c % 2 ? odd[1] : s[1], a, k[2], k[3], Half());
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) s[h][0] += odd[h][0], s[h][1] += odd[h][1];
  }

  /* Scores of head r to weights, in place; those of keys that do not count to 0. A lane has keys 8h + 2q + e. */
  __device__ __forceinline__ void weigh(float (&s)[2][4], uint32_t n_valid, uint32_t n_hidden) {
    const float scale = kLog2E / sqrtf(float(HeadDim));
    float next = max_;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t key = 8 * h + 2 * q() + e;
        s[h][e] = key < n_valid && key >= n_hidden ? s[h][e] * scale : -INFINITY;
        next = fmaxf(next, s[h][e]);
      }
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
    const float shrink = exp2f(max_ - next);
    max_ = next;
    sum_ *= shrink;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[h][e] = exp2f(s[h][e] - next);
        sum_ += s[h][e];
      }
    const float even = __shfl_sync(0xffffffffu, shrink, 8 * q()), odd = __shfl_sync(0xffffffffu, shrink, 8 * q() + 4);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      output_[c][0] *= even, output_[c][1] *= odd, output_[c][2] *= even, output_[c][3] *= odd;
  }

  const Half* row_;                  /* the queries' dimensions 2q.. of head r */
  uint2 query_[kHeld ? kChunks : 1]; /* dimensions 16c + 2q.. and + 8 of head r */
  float output_[kChunks][4], max_ = -INFINITY, sum_ = 0.0f;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_KV_TILE_H */
