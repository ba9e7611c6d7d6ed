/* A warp's part of decode_attention_sm90.h: 16 keys and values in shared memory, and the running softmax over them.
 *
 * On the tensor cores scores are [heads][keys] and the output is [dimensions][heads], with the weights where the
 * scores left them. A tile lies as one bulk copy leaves it: keys, then values, each [spans][16][span] with the
 * 16-byte units of a row swizzled (PTX manual, "Swizzling Modes"), so that ldmatrix has no bank conflicts.
 */
#ifndef BLINK_OPS_ATTENTION_KV_TILE_H
#define BLINK_OPS_ATTENTION_KV_TILE_H

#include "kv_element.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTileKeys = 16;  /* divides the page size */
constexpr uint32_t kGroupHeads = 8; /* query heads that an mma takes as columns of the output */

/* Of a key, the bytes that lie together in a tile: as many as the widest swizzle takes. */
template <typename Cache, int HeadDim>
constexpr uint32_t kSpanBytes = HeadDim * sizeof(Cache) % 128 == 0  ? 128
                                : HeadDim * sizeof(Cache) % 64 == 0 ? 64
                                : HeadDim * sizeof(Cache) % 32 == 0 ? 32
                                                                    : 16;

template <typename Cache, int HeadDim>
constexpr uint32_t kTileBytes = 2 * sizeof(Cache) * kTileKeys * HeadDim;

/* Which dimensions of 16 a lane (r, q) has of a fragment: of keys and queries two from key() on and two from key() +
 * kKeyStep on, of values and the output value() and value() + kValueStep. Halves lie as the tensor cores have them; of
 * fp8, what a lane receives at once are neighbours, and both sides of a product take them in that order. */
template <typename Cache>
struct TileDims {
  static constexpr bool kFp8 = KvElement<Cache>::kFp8;
  static constexpr uint32_t kKeyStep = kFp8 ? 2 : 8, kValueStep = kFp8 ? 1 : 8;
  static constexpr int kAtOnce = kFp8 ? 2 : 1; /* times 16 dimensions that a load brings */

  /* Where dimension d, an even one, lies in a row of a matrix that ldmatrix brings in the order of keys. */
  static __device__ __forceinline__ uint32_t matrix_place(uint32_t d) {
    return kFp8 ? d / 16 * 16 + d % 4 / 2 * 8 + d % 16 / 4 * 2 : d;
  }
  static __device__ __forceinline__ uint32_t key() { return threadIdx.x % 4 * (kFp8 ? 4 : 2); }
  static __device__ __forceinline__ uint32_t value() { return threadIdx.x % 32 / 4 * (kFp8 ? 2 : 1); }
};

/* Fragments of a tile in shared memory: of 16 dimensions from 16 c on, and the next if a load brings two. */
template <typename Cache, int HeadDim>
class CopiedTile {
 public:
  static constexpr int kAtOnce = TileDims<Cache>::kAtOnce;

  __device__ __forceinline__ explicit CopiedTile(char* tile) : tile_(tile) {
    const uint32_t lane = threadIdx.x % 32, key = lane / 16 * 8 + lane % 8;
    row_ = tile + key * kSpan;
    swizzle_ = kSpan == 16 ? 0 : (lane / 8 % 2 ^ key * kSpan / 128 % (kSpan / 16)) * 16;
  }

  /* Keys 0..7, then 8..15, each the lower 8 dimensions and then the upper: operand b of two mma instructions. */
  __device__ __forceinline__ void keys(int c, uint32_t (&m)[kAtOnce][4]) const {
    if constexpr (kAtOnce == 1) {
      load_matrices<false>(m[0], at(c));
    } else {
      uint32_t word[4];
      load_matrices<false>(word, at(c / 2));
#pragma unroll
      for (int i = 0; i < 4; ++i) to_float16s(word[i], m[i % 2][i / 2 * 2], m[i % 2][i / 2 * 2 + 1]);
    }
  }
  /* Operand a: dimensions by keys. */
  __device__ __forceinline__ void values(int c, uint32_t (&m)[kAtOnce][4]) const {
    if constexpr (kAtOnce == 1) {
      load_matrices<true>(m[0], at(c) + kTileBytes<Cache, HeadDim> / 2);
    } else {
      constexpr uint32_t kByDimension = 0x3120; /* a word has two dimensions of a key, then of the next key */
      uint32_t word[4];
      load_matrices<true>(word, at(c / 2) + kTileBytes<Cache, HeadDim> / 2);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to_float16s(permute_bytes(word[i], kByDimension), m[i % 2][i / 2 * 2], m[i % 2][i / 2 * 2 + 1]);
    }
  }

  /* Clears the values past the n_valid-th: their weight is 0, but 0 times a stale value may be NaN. Called by the warp.
   */
  __device__ __forceinline__ void clear_values(uint32_t n_valid) const {
    constexpr uint32_t units = kSpan / 16;
    const uint32_t n = (kTileKeys - n_valid) * units;
    for (uint32_t e = threadIdx.x % 32; e < HeadDim * sizeof(Cache) / kSpan * n; e += 32)
      *reinterpret_cast<uint4*>(tile_ + kTileBytes<Cache, HeadDim> / 2 + e / n * kTileKeys * kSpan +
                                (n_valid + e % n / units) * kSpan + e % units * 16) = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }

 private:
  static constexpr uint32_t kSpan = kSpanBytes<Cache, HeadDim>;

  /* The lane's row of the 32 bytes of a key from 32 c on; the last 16 of an odd number of them once more. */
  __device__ __forceinline__ const char* at(uint32_t c) const {
    if constexpr (kSpan == 16) {
      const uint32_t span = 2 * c + threadIdx.x / 8 % 2;
      return row_ + min(span, uint32_t(HeadDim) / 16 - 1) * kTileKeys * kSpan;
    }
    return row_ + c * 32 / kSpan * kTileKeys * kSpan + (c * 32 % kSpan ^ swizzle_);
  }

  char *tile_, *row_;
  uint32_t swizzle_;
};

/* The step's own key and value as a tile of one key. */
template <typename Cache, int HeadDim>
struct NewTile {
  using Half = typename KvElement<Cache>::Half;
  using Dims = TileDims<Cache>;
  const Half *key, *value;

  __device__ __forceinline__ void keys(int c, uint32_t (&m)[Dims::kAtOnce][4]) const {
    const Half* at = key + 16 * c + Dims::key();
#pragma unroll
    for (int i = 0; i < Dims::kAtOnce; ++i, at += 16) {
      m[i][0] = m[i][1] = m[i][2] = m[i][3] = 0;
      if (threadIdx.x % 32 >= 4 || 16 * (c + i) >= HeadDim) continue;
      m[i][0] = *reinterpret_cast<const uint32_t*>(at);
      m[i][1] = *reinterpret_cast<const uint32_t*>(at + Dims::kKeyStep);
    }
  }
  __device__ __forceinline__ void values(int c, uint32_t (&m)[Dims::kAtOnce][4]) const {
    const unsigned short* at = reinterpret_cast<const unsigned short*>(value) + 16 * c + Dims::value();
#pragma unroll
    for (int i = 0; i < Dims::kAtOnce; ++i, at += 16) {
      m[i][0] = m[i][1] = m[i][2] = m[i][3] = 0;
      if (threadIdx.x % 4 == 0 && 16 * (c + i) < HeadDim) m[i][0] = at[0], m[i][1] = at[Dims::kValueStep];
    }
  }
};

/* How many keys, for a lane's head of each group. */
template <uint32_t Groups>
struct LaneKeys {
  uint32_t of[Groups];
};

/* A warp's running softmax over its tiles, for one or two groups of kGroupHeads query heads. Lane (r, q): maximum (log2
 * units) and its share of the sum of each group's head r; output[group][c], unnormalised, at dimensions 16c + value()
 * (elements 0, 1) and + kValueStep (2, 3) of heads 2q (0, 2) and 2q + 1 (1, 3). What is loaded of a tile serves both
 * groups. */
template <typename Cache, int HeadDim, uint32_t Groups = 1>
class TileSoftmax {
 public:
  static_assert(Groups == 1 || Groups == 2, "scores have two halves of rows");
  using Half = typename KvElement<Cache>::Half;
  using Dims = TileDims<Cache>;
  using Keys = LaneKeys<Groups>;
  static constexpr int kAtOnce = Dims::kAtOnce;
  static constexpr int kChunks = HeadDim / 16;
  static constexpr uint32_t kOutStride = HeadDim + 4; /* spreads the heads over the banks */
  /* Queries stay in registers, of which larger heads and a second group leave too few. */
  static constexpr bool kHeld = HeadDim <= 128 && Groups == 1;
  static constexpr bool kAsMatrices = Groups == 2; /* queries are loaded so, of fp8 in the order of matrix_place() */

  /* `queries` [Groups * kGroupHeads][stride], rotated; what lies behind the last has no influence on the others. */
  __device__ __forceinline__ TileSoftmax(const Half* queries, uint32_t stride, const KvScales<Cache>& scales)
      : scales_(scales) {
    const uint32_t lane = threadIdx.x % 32;
    row_ = queries + (kAsMatrices ? lane % 16 * stride + lane / 16 * 8 : r() * stride + Dims::key());
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      if (kHeld) query_[kHeld ? c : 0] = load_query(c);
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g) {
      max_[g] = -INFINITY, sum_[g] = 0.0f;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        output_[g][c][0] = output_[g][c][1] = output_[g][c][2] = output_[g][c][3] = 0.0f;
    }
  }

  /* Keys n_hidden to n_valid - 1 of the tile, as the head r() of each group has them. They are at least one, unless it
   * MaySeeNone: then nothing changes for the head. SeesOne: they are no more than one, which changes the head as if it
   * were the tile's first, to the last bit (E16). */
  template <bool MaySeeNone = false, bool SeesOne = false, typename Tile>
  __device__ __forceinline__ void add(const Tile& tile, const Keys& n_valid, const Keys& n_hidden = {}) {
    float s[2][4] = {};
    score(tile, s);
    uint32_t low[Groups], high[Groups];
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g) {
      weigh<MaySeeNone, SeesOne>(g, s, n_valid.of[g], n_hidden.of[g]);
      low[g] = pack<Half>(s[0][2 * g], s[0][2 * g + 1]), high[g] = pack<Half>(s[1][2 * g], s[1][2 * g + 1]);
    }
#pragma unroll
    for (int c = 0; c < kChunks; c += kAtOnce) {
      uint32_t v[kAtOnce][4];
      tile.values(c, v);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (uint32_t g = 0; g < Groups; ++g)
          if (c + i < kChunks) mma(output_[g][c + i < kChunks ? c + i : 0], v[i], low[g], high[g], Half());
    }
  }

  /* A group, to out [n_queries][kOutStride], max and sum [n_queries]. */
  __device__ __forceinline__ void store(uint32_t g, float* out, float* max, float* sum, uint32_t n_queries) const {
    float total = sum_[g] + __shfl_xor_sync(0xffffffffu, sum_[g], 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (q() == 0 && r() < n_queries) max[r()] = max_[g], sum[r()] = total;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      if (2 * q() + h >= n_queries) continue;
      float* row = out + (2 * q() + h) * kOutStride + Dims::value();
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        row[16 * c] = output_[g][c][h];
        row[16 * c + Dims::kValueStep] = output_[g][c][2 + h];
      }
    }
  }

  /* The lane's head of a group. */
  static __device__ __forceinline__ uint32_t r() { return threadIdx.x % 32 / 4; }

 private:
  static __device__ __forceinline__ uint32_t q() { return threadIdx.x % 4; }

  __device__ __forceinline__ uint2 load_query(int c) const {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(row_ + 16 * c);
    return {from[0], from[Dims::kKeyStep / 2]};
  }
  /* Operand a of scores: heads by 16 dimensions. */
  __device__ __forceinline__ void load_queries(int c, uint32_t (&a)[4]) const {
    if constexpr (kAsMatrices) {
      load_matrices<false>(a, row_ + 16 * c);
    } else {
      const uint2 query = kHeld ? query_[kHeld && c < kChunks ? c : 0] : load_query(c);
      a[0] = query.x, a[1] = 0, a[2] = query.y, a[3] = 0;
    }
  }

  /* Scores of keys 8h + 2q, 8h + 2q + 1 for head r, in elements 0 and 1 of s[h], and of the second group's in 2 and 3.
   * Even and odd chunks are summed apart: the mma instructions of one sum wait for each other. */
  template <typename Tile>
  __device__ __forceinline__ void score(const Tile& tile, float (&s)[2][4]) const {
    float odd[2][4] = {};
#pragma unroll
    for (int first = 0; first < kChunks; first += kAtOnce) {
      uint32_t k[kAtOnce][4];
      tile.keys(first, k);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int c = first + i;
        if (c >= kChunks) continue;
        uint32_t a[4];
        load_queries(c, a);
        mma(c % 2 ? odd[0] : s[0], a, k[i][0], k[i][1], Half());
        mma(c % 2 ? odd[1] : s[1], a, k[i][2], k[i][3], Half());
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (uint32_t e = 0; e < 2 * Groups; ++e) s[h][e] += odd[h][e];
  }

  /* Scores of a group's head r to weights, in place; those of keys that do not count to 0. A lane has keys 8h + 2q + e.
   */
  template <bool MaySeeNone, bool SeesOne>
  __device__ __forceinline__ void weigh(uint32_t g, float (&s)[2][4], uint32_t n_valid, uint32_t n_hidden) {
    const float scale = kLog2E / sqrtf(float(HeadDim)) * scales_.key;
    float next = max_[g];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t key = 8 * h + 2 * q() + e;
        float& score = s[h][2 * g + e];
        score = key < n_valid && key >= n_hidden ? score * scale : -INFINITY;
        next = fmaxf(next, score);
      }
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
    next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
    const float base =
        MaySeeNone && next == -INFINITY ? 0.0f : next; /* no key yet: minus infinity less itself is none */
    const float shrink = exp2f(max_[g] - base);
    max_[g] = next;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) s[h][2 * g + e] = exp2f(s[h][2 * g + e] - base);
    const float (&low)[4] = s[0], (&high)[4] = s[1];
    if (SeesOne) {
      float one = low[2 * g] + low[2 * g + 1] + high[2 * g] + high[2 * g + 1]; /* all of the lanes' but one are 0 */
      one += __shfl_xor_sync(0xffffffffu, one, 1);
      one += __shfl_xor_sync(0xffffffffu, one, 2);
      sum_[g] = fmaf(sum_[g], shrink, q() == 0 ? one : 0.0f);
    } else {
      sum_[g] = fmaf(sum_[g], shrink, low[2 * g]) + low[2 * g + 1] + high[2 * g] + high[2 * g + 1];
    }
    const float even = __shfl_sync(0xffffffffu, shrink, 8 * q()), odd = __shfl_sync(0xffffffffu, shrink, 8 * q() + 4);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float (&of)[4] = output_[g][c];
      of[0] *= even, of[1] *= odd, of[2] *= even, of[3] *= odd;
    }
  }

  const Half* row_;                  /* the queries' dimensions key().. of head r, or what load_matrices() wants */
  uint2 query_[kHeld ? kChunks : 1]; /* dimensions 16c + key().. and + kKeyStep of head r */
  float output_[Groups][kChunks][4], max_[Groups], sum_[Groups];
  const KvScales<Cache> scales_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_KV_TILE_H */
