/* Attention of a decode step, with the RoPE of rope.h: one token a row. Maths and CPU twins are those of
 * rope.h and attention.h; the new key and value are written to the cache here.
 *
 * A row's keys are split over blocks (flash-decoding), a split's tiles of 16 keys over 4 warps. The last
 * block of a row and key head to finish combines the splits. On the tensor cores scores are [heads][keys],
 * with the keys as the 8-column operand; the output is [dimensions][heads], with the values as the 16-row
 * operand and the weights where the scores left them. Keys come in 16-byte loads as they lie in memory,
 * dimensions permuted as k is in linear_stream.h; values likewise, and two keys' halves are paired in
 * registers.
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_H
#define BLINK_OPS_ATTENTION_DECODE_H

#include "rope.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kDecodeWarps = 4, kDecodeThreads = 32 * kDecodeWarps;
constexpr uint32_t kTileKeys = 16; /* of a warp; divides the page size */
constexpr uint32_t kMinSplit = 64; /* a split shorter than this is not worth a block */

/* How a row's cached keys are split over at most gridDim.z blocks. */
struct Splits {
  uint32_t keys, used; /* keys of a split; splits */

  __device__ __forceinline__ Splits(uint32_t n_keys, uint32_t most) {
    const uint32_t share = (n_keys + most - 1) / most;
    keys = max(kMinSplit, (share + kTileKeys - 1) / kTileKeys * kTileKeys);
    used = max(1u, (n_keys + keys - 1) / keys);
  }
};

template <typename Half, int HeadDim>
struct DecodeScratch {
  Half q[8][HeadDim + 8];      /* rotated; rows past the group's end are zero */
  Half k[HeadDim], v[HeadDim]; /* the new token's */
  float out[kDecodeWarps][8][HeadDim];
  float max[kDecodeWarps][8], sum[kDecodeWarps][8];
  uint32_t is_last;
};

/* 16 keys and values in a warp's registers. A lane (r, q) has dimensions 32c + 8q.. of keys r and r + 8, and
 * dimensions 64c + 8r.. of the values of keys 2q, 2q + 1, 2q + 8 and 2q + 9. */
template <typename Half, int HeadDim>
struct DecodeTile {
  static constexpr int kKeyChunks = (HeadDim + 31) / 32, kValueChunks = (HeadDim + 63) / 64;
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
  __device__ __forceinline__ void load_values(const Half* source, uint32_t n_valid) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = 0; c < kValueChunks; ++c) {
        const uint32_t key = 2 * q() + i % 2 + i / 2 * 8, d = 64 * c + 8 * r();
        v[i][c] = make_uint4(0, 0, 0, 0);
        load_weight(source + key * HeadDim + d, key < n_valid && d < HeadDim, v[i][c]);
      }
  }
  /* The new token as a tile of one key. */
  __device__ __forceinline__ void take_new(const DecodeScratch<Half, HeadDim>& scratch) {
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
template <typename Half, int HeadDim>
struct DecodeState {
  using Tile = DecodeTile<Half, HeadDim>;
  uint4 query[Tile::kKeyChunks]; /* dimensions 32c + 8q.. of head r */
  float output[4 * Tile::kValueChunks][4], max, sum;

  __device__ __forceinline__ void clear(const DecodeScratch<Half, HeadDim>& scratch) {
    max = -INFINITY;
    sum = 0.0f;
#pragma unroll
    for (int c = 0; c < Tile::kKeyChunks; ++c) {
      const uint32_t d = 32 * c + 8 * Tile::q();
      query[c] = make_uint4(0, 0, 0, 0);
      if (d < HeadDim) query[c] = *reinterpret_cast<const uint4*>(&scratch.q[Tile::r()][d]);
    }
#pragma unroll
    for (int t = 0; t < 4 * Tile::kValueChunks; ++t) output[t][0] = output[t][1] = output[t][2] = output[t][3] = 0.0f;
  }

  /* Scores of keys 8h + 2q, 8h + 2q + 1 for head r, in elements 0 and 1 of s[h]. */
  __device__ __forceinline__ void score(const Tile& tile, float (&s)[2][4]) const {
#pragma unroll
    for (int c = 0; c < Tile::kKeyChunks; ++c) {
      const uint32_t first[4] = {query[c].x, 0, query[c].y, 0}, second[4] = {query[c].z, 0, query[c].w, 0};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        mma(s[h], first, tile.k[h][c].x, tile.k[h][c].y, Half());
        mma(s[h], second, tile.k[h][c].z, tile.k[h][c].w, Half());
      }
    }
  }

  /* Scores of n_valid >= 1 keys to weights, in place. */
  __device__ __forceinline__ void weigh(float (&s)[2][4], uint32_t n_valid) {
    const float scale = kLog2E / sqrtf(float(HeadDim));
    float next = max;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[h][e] = 8 * h + 2 * Tile::q() + e < n_valid ? s[h][e] * scale : -INFINITY;
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
    const float even = __shfl_sync(0xffffffffu, shrink, 8 * Tile::q());
    const float odd = __shfl_sync(0xffffffffu, shrink, 8 * Tile::q() + 4);
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

  __device__ __forceinline__ void store(DecodeScratch<Half, HeadDim>& scratch) {
    const uint32_t warp = threadIdx.x / 32, r = Tile::r(), q = Tile::q();
    float total = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (q == 0) scratch.max[warp][r] = max, scratch.sum[warp][r] = total;
#pragma unroll
    for (int t = 0; t < 4 * Tile::kValueChunks; ++t) {
      const uint32_t d = t / 4 * 64 + 8 * r + t % 4 * 2;
      if (d >= HeadDim) continue;
      *reinterpret_cast<float2*>(&scratch.out[warp][2 * q][d]) = make_float2(output[t][0], output[t][2]);
      *reinterpret_cast<float2*>(&scratch.out[warp][2 * q + 1][d]) = make_float2(output[t][1], output[t][3]);
    }
  }
};

/* What a decode block works on: one lane's query heads head..head + n_queries of one key head. */
struct DecodePlace {
  uint32_t lane, token, row, position, kv_head, member, head, n_queries;

  __device__ __forceinline__ DecodePlace(const struct blink_step_set& set, uint32_t n_heads, uint32_t n_kv_heads,
                                         uint32_t group) {
    const uint32_t ratio = n_heads / n_kv_heads, groups = (ratio + group - 1) / group;
    lane = blockIdx.x;
    token = set.lane_last[lane];
    row = set.token_row[token];
    position = set.token_position[token];
    kv_head = blockIdx.y / groups;
    member = blockIdx.y % groups * group;
    head = kv_head * ratio + member;
    n_queries = min(group, ratio - member);
  }
};

/* The queries, and with `takes_new` the new key and value, from the qkv projection's output into scratch. */
template <typename Half, int HeadDim>
__device__ __forceinline__ void rope_decode(const DecodePlace& place, bool takes_new, const Half* qkv,
                                            const Half* q_norm, const Half* k_norm, float eps, const float* inv_freq,
                                            uint32_t n_heads, uint32_t n_kv_heads,
                                            DecodeScratch<Half, HeadDim>& scratch) {
  const Half* x = qkv + uint64_t(place.token) * (n_heads + 2 * n_kv_heads) * HeadDim;
  const uint32_t n = place.n_queries + (takes_new ? 2 : 0);
#pragma unroll 1
  for (uint32_t u = threadIdx.x / 32; u < n; u += kDecodeWarps) {
    const bool is_query = u < place.n_queries, is_value = u == place.n_queries + 1;
    const uint32_t head = is_query ? place.head + u : n_heads + place.kv_head + (is_value ? n_kv_heads : 0);
    rope_head<Half, HeadDim>(x + head * HeadDim,
                             is_query   ? q_norm
                             : is_value ? nullptr
                                        : k_norm,
                             eps, !is_value, place.position, inv_freq,
                             is_query   ? scratch.q[u]
                             : is_value ? scratch.v
                                        : scratch.k);
  }
  for (uint32_t e = threadIdx.x; e < (8 - place.n_queries) * HeadDim; e += kDecodeThreads)
    from_float(0.0f, &scratch.q[place.n_queries + e / HeadDim][e % HeadDim]);
}

/* The block's result: the output if it has all of the row's keys, or else one split's part. */
template <typename Half, int HeadDim>
__device__ __forceinline__ void combine_warps(const DecodeScratch<Half, HeadDim>& scratch, const DecodePlace& place,
                                              uint32_t split, uint32_t used, float* partial, Half* out,
                                              uint32_t n_heads) {
  for (uint32_t e = threadIdx.x; e < place.n_queries * HeadDim; e += kDecodeThreads) {
    const uint32_t g = e / HeadDim, d = e % HeadDim, head = place.head + g;
    float max = -INFINITY, sum = 0.0f, value = 0.0f;
#pragma unroll
    for (uint32_t w = 0; w < kDecodeWarps; ++w) max = fmaxf(max, scratch.max[w][g]);
#pragma unroll
    for (uint32_t w = 0; w < kDecodeWarps; ++w) {
      const float weight = exp2f(scratch.max[w][g] - max);
      value += weight * scratch.out[w][g][d];
      sum += weight * scratch.sum[w][g];
    }
    if (used == 1) {
      from_float(value / sum, out + (uint64_t(place.token) * n_heads + head) * HeadDim + d);
      continue;
    }
    float* target = partial + ((uint64_t(place.lane) * n_heads + head) * gridDim.z + split) * (HeadDim + 2);
    target[d] = value;
    if (d == 0) target[HeadDim] = max, target[HeadDim + 1] = sum;
  }
}

/* The output from all splits' parts. */
template <typename Half, int HeadDim>
__device__ __forceinline__ void combine_splits(const DecodePlace& place, uint32_t used, const float* partial, Half* out,
                                               uint32_t n_heads) {
  for (uint32_t e = threadIdx.x; e < place.n_queries * HeadDim; e += kDecodeThreads) {
    const uint32_t d = e % HeadDim, head = place.head + e / HeadDim;
    const float* source = partial + (uint64_t(place.lane) * n_heads + head) * gridDim.z * (HeadDim + 2);
    float max = -INFINITY, sum = 0.0f, value = 0.0f;
#pragma unroll 4
    for (uint32_t s = 0; s < used; ++s) max = fmaxf(max, source[s * (HeadDim + 2) + HeadDim]);
#pragma unroll 4
    for (uint32_t s = 0; s < used; ++s) {
      const float* part = source + s * (HeadDim + 2);
      const float weight = exp2f(part[HeadDim] - max);
      value += weight * part[d];
      sum += weight * part[HeadDim + 1];
    }
    from_float(value / sum, out + (uint64_t(place.token) * n_heads + head) * HeadDim + d);
  }
}

/* grid (lanes, n_kv_heads * ceil(ratio / Group), n_splits), block (kDecodeThreads), ratio = n_heads /
 * n_kv_heads. A block serves up to Group <= 8 query heads of one key head; Group = ratio reads each key once.
 *
 *   partial   [lanes][n_heads][n_splits][HeadDim + 2] fp32: unnormalised output, maximum (log2 units), sum
 *   arrivals  [lanes][gridDim.y], zero before and after
 */
template <typename Half, int HeadDim, int Group>
__global__ void __launch_bounds__(kDecodeThreads)
    attention_decode_kernel(struct blink_step_set set, struct blink_tables tables, const Half* qkv, const Half* q_norm,
                            const Half* k_norm, float eps, const float* inv_freq, Half* k_cache, Half* v_cache,
                            float* partial, uint32_t* arrivals, Half* out, uint32_t n_heads, uint32_t n_kv_heads) {
  using Tile = DecodeTile<Half, HeadDim>;
  __shared__ __align__(16) DecodeScratch<Half, HeadDim> scratch;
  allow_successor();
  wait_for_predecessor();
  const uint32_t tid = threadIdx.x, warp = tid / 32;
  if (blockIdx.x >= set.head->n_lanes) return;
  const DecodePlace place(set, n_heads, n_kv_heads, Group);
  const Splits splits(place.position, gridDim.z); /* of the keys before the new one */
  const uint32_t split = blockIdx.z;
  if (split >= splits.used) return;
  const bool takes_new = split + 1 == splits.used;
  const uint32_t begin = split * splits.keys, end = min(place.position, begin + splits.keys);
  const auto at = [&](uint32_t key) {
    return cache_offset(tables, place.row, key, place.kv_head, n_kv_heads, HeadDim);
  };

  Tile tile;
  uint32_t key = begin + warp * kTileKeys;
  if (key < end) {
    const uint64_t offset = at(key);
    tile.load_keys(k_cache + offset, end - key);
    tile.load_values(v_cache + offset, end - key);
  }
  rope_decode<Half, HeadDim>(place, takes_new, qkv, q_norm, k_norm, eps, inv_freq, n_heads, n_kv_heads, scratch);
  __syncthreads();
  if (takes_new && place.member == 0 && tid < HeadDim / 4) {
    const uint32_t d = tid % (HeadDim / 8) * 8;
    const bool is_value = tid >= HeadDim / 8;
    *reinterpret_cast<uint4*>((is_value ? v_cache : k_cache) + at(place.position) + d) =
        *reinterpret_cast<const uint4*>((is_value ? scratch.v : scratch.k) + d);
  }

  DecodeState<Half, HeadDim> state;
  state.clear(scratch);
  while (key < end) {
    const uint32_t next = key + kDecodeWarps * kTileKeys, n_next = next < end ? end - next : 0;
    const uint64_t offset = n_next ? at(next) : 0;
    float s[2][4] = {};
    state.score(tile, s);
    tile.load_keys(k_cache + offset, n_next);
    state.weigh(s, end - key);
    state.add_values(tile, s);
    tile.load_values(v_cache + offset, n_next);
    key = next;
  }
  if (takes_new && warp == 0) {
    float s[2][4] = {};
    tile.take_new(scratch);
    state.score(tile, s);
    state.weigh(s, 1);
    state.add_values(tile, s);
  }
  state.store(scratch);
  __syncthreads();
  combine_warps(scratch, place, split, splits.used, partial, out, n_heads);
  if (splits.used == 1) return;
  __syncthreads();
  if (tid == 0) {
    uint32_t* arrived = arrivals + blockIdx.x * gridDim.y + blockIdx.y;
    scratch.is_last = arrive(arrived) == splits.used - 1;
    if (scratch.is_last) *arrived = 0;
  }
  __syncthreads();
  if (scratch.is_last) combine_splits<Half, HeadDim>(place, splits.used, partial, out, n_heads);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_H */
