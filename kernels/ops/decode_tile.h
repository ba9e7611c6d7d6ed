/* A warp's part of decode attention: 16 keys and values in registers, and the running softmax over them.
 *
 * On the tensor cores scores are [heads][keys], with the keys as the 8-column operand; the output is
 * [dimensions][heads], with the values as the 16-row operand and the weights where the scores left them. Keys
 * come in 16-byte loads as they lie in memory, dimensions permuted as k is in linear_stream.h; values likewise,
 * and two keys' halves are paired in registers.
 */
#ifndef BLINK_OPS_DECODE_TILE_H
#define BLINK_OPS_DECODE_TILE_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTileKeys = 16; /* of a warp; divides the page size */

/* A block's shared memory, for up to Group query heads of a key head and so many warps. */
template <typename Half, int HeadDim, int Group, int Warps>
struct __align__(16) DecodeScratch {
  Half q[8][HeadDim + 8];      /* rotated; rows past the group's end are zero */
  Half k[HeadDim], v[HeadDim]; /* the new token's */
  float out[Warps][Group][HeadDim];
  float max[Warps][8], sum[Warps][8];
};

/* 16 keys and values in a warp's registers. A lane (r, q) has dimensions 32c + 8q.. of keys r and r + 8, and
 * dimensions 64c + 8r.. of the values of keys 2q, 2q + 1, 2q + 8 and 2q + 9. */
template <typename Half, int HeadDim>
struct DecodeTile {
  static constexpr int kKeyChunks = (HeadDim + 31) / 32, kValueChunks = (HeadDim + 63) / 64;
  static constexpr int kEarlyChunks = (kValueChunks + 1) / 2; /* of the values, requested a tile ahead */
  uint4 k[2][kKeyChunks], v[4][kValueChunks];

  static __device__ __forceinline__ uint32_t r() { return threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ uint32_t q() { return threadIdx.x % 4; }

  /* Of `n_valid` keys; what does not exist is zero: its weight is 0, and 0 times a stale value may be NaN. */
  __device__ __forceinline__ void load_keys(const Half* source, uint32_t n_valid) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int c = 0; c < kKeyChunks; ++c) {
        const uint32_t key = r() + 8 * h, d = 32 * c + 8 * q();
        k[h][c] = make_uint4(0, 0, 0, 0);
        load_weight(source + key * HeadDim + d, key < n_valid && d < HeadDim, k[h][c]);
      }
  }
  /* Chunks From .. To - 1 of the values. */
  template <int From, int To>
  __device__ __forceinline__ void load_values(const Half* source, uint32_t n_valid) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = From; c < To; ++c) {
        const uint32_t key = 2 * q() + i % 2 + i / 2 * 8, d = 64 * c + 8 * r();
        v[i][c] = make_uint4(0, 0, 0, 0);
        load_weight(source + key * HeadDim + d, key < n_valid && d < HeadDim, v[i][c]);
      }
  }
  /* The new token as a tile of one key. */
  template <typename Scratch>
  __device__ __forceinline__ void take_new(const Scratch& scratch) {
#pragma unroll
    for (int c = 0; c < kKeyChunks; ++c) {
      k[0][c] = k[1][c] = make_uint4(0, 0, 0, 0);
      if (r() == 0 && 32 * c + 8 * q() < HeadDim)
        k[0][c] = *reinterpret_cast<const uint4*>(scratch.k + 32 * c + 8 * q());
    }
#pragma unroll
    for (int c = 0; c < kValueChunks; ++c) {
      v[0][c] = v[1][c] = v[2][c] = v[3][c] = make_uint4(0, 0, 0, 0);
      if (q() == 0 && 64 * c + 8 * r() < HeadDim)
        v[0][c] = *reinterpret_cast<const uint4*>(scratch.v + 64 * c + 8 * r());
    }
  }
};

__device__ __forceinline__ uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* A warp's running softmax over its tiles, for 8 query heads. Lane (r, q): maximum (log2 units) and its share
 * of the sum of head r; output[4c + t], unnormalised, at dimensions 64c + 8r + 2t (elements 0, 1) and + 1 (2,
 * 3) of heads 2q (0, 2) and 2q + 1 (1, 3). */
/* Scores of head r to weights, in place; n_valid >= 1 keys count. A lane has keys 8h + 2q + e. The running maximum and
 * sum go on; `even` and `odd` are what earlier outputs of heads 2q and 2q + 1 shrink by. */
template <int HeadDim>
__device__ __forceinline__ void weigh_scores(float (&s)[2][4], uint32_t n_valid, uint32_t q, float& max, float& sum,
                                             float& even, float& odd) {
  const float scale = kLog2E / sqrtf(float(HeadDim));
  float next = max;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[h][e] = 8 * h + 2 * q + e < n_valid ? s[h][e] * scale : -INFINITY;
      next = fmaxf(next, s[h][e]);
    }
  next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
  next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
  const float shrink = exp2f(max - next);
  max = next;
  sum *= shrink;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[h][e] = exp2f(s[h][e] - next);
      sum += s[h][e];
    }
  even = __shfl_sync(0xffffffffu, shrink, 8 * q);
  odd = __shfl_sync(0xffffffffu, shrink, 8 * q + 4);
}

template <typename Half, int HeadDim>
struct DecodeState {
  using Tile = DecodeTile<Half, HeadDim>;
  float output[4 * Tile::kValueChunks][4], max, sum;

  __device__ __forceinline__ void clear() {
    max = -INFINITY;
    sum = 0.0f;
#pragma unroll
    for (int t = 0; t < 4 * Tile::kValueChunks; ++t) output[t][0] = output[t][1] = output[t][2] = output[t][3] = 0.0f;
  }

  /* Scores of keys 8h + 2q, 8h + 2q + 1 for head r, in elements 0 and 1 of s[h]. The queries are loaded for every tile:
   * there are no registers to keep them. */
  template <typename Scratch>
  __device__ __forceinline__ void score(const Tile& tile, const Scratch& scratch, float (&s)[2][4]) const {
    __syncwarp();
#pragma unroll
    for (int c = 0; c < Tile::kKeyChunks; ++c) {
      const uint32_t d = 32 * c + 8 * Tile::q();
      uint4 query = make_uint4(0, 0, 0, 0);
      if (d < HeadDim) query = *reinterpret_cast<const uint4*>(&scratch.q[Tile::r()][d]);
      const uint32_t first[4] = {query.x, 0, query.y, 0}, second[4] = {query.z, 0, query.w, 0};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        mma(s[h], first, tile.k[h][c].x, tile.k[h][c].y, Half());
        mma(s[h], second, tile.k[h][c].z, tile.k[h][c].w, Half());
      }
    }
  }

  /* Scores of n_valid >= 1 keys to weights, in place. */
  __device__ __forceinline__ void weigh(float (&s)[2][4], uint32_t n_valid) {
    float even, odd;
    weigh_scores<HeadDim>(s, n_valid, Tile::q(), max, sum, even, odd);
#pragma unroll
    for (int t = 0; t < 4 * Tile::kValueChunks; ++t)
      output[t][0] *= even, output[t][1] *= odd, output[t][2] *= even, output[t][3] *= odd;
  }

  __device__ __forceinline__ void add_values(const Tile& tile, const float (&s)[2][4]) {
    const uint32_t low = pack<Half>(s[0][0], s[0][1]), high = pack<Half>(s[1][0], s[1][1]);
#pragma unroll
    for (int c = 0; c < Tile::kValueChunks; ++c)
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const uint32_t v[4] = {word(tile.v[0][c], t), word(tile.v[1][c], t), word(tile.v[2][c], t),
                               word(tile.v[3][c], t)};
        const uint32_t a[4] = {__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[0], v[1], 0x7632),
                               __byte_perm(v[2], v[3], 0x5410), __byte_perm(v[2], v[3], 0x7632)};
        mma(output[4 * c + t], a, low, high, Half());
      }
  }

  template <int Group, int Warps>
  __device__ __forceinline__ void store(DecodeScratch<Half, HeadDim, Group, Warps>& scratch) {
    const uint32_t warp = threadIdx.x / 32, r = Tile::r(), q = Tile::q();
    float total = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (q == 0) scratch.max[warp][r] = max, scratch.sum[warp][r] = total;
#pragma unroll
    for (int t = 0; t < 4 * Tile::kValueChunks; ++t) {
      const uint32_t d = t / 4 * 64 + 8 * r + t % 4 * 2;
      if (d >= HeadDim) continue;
      if (2 * q < Group)
        *reinterpret_cast<float2*>(&scratch.out[warp][2 * q][d]) = make_float2(output[t][0], output[t][2]);
      if (2 * q + 1 < Group)
        *reinterpret_cast<float2*>(&scratch.out[warp][2 * q + 1][d]) = make_float2(output[t][1], output[t][3]);
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_DECODE_TILE_H */
