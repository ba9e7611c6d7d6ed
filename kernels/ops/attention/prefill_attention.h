/* Attention of a prefill step: FlashAttention-2's loop on tensor cores, 64 queries of one head a block, 16 a
 * warp. Arguments, maths and CPU reference are those of attention.h.
 */
#ifndef BLINK_OPS_ATTENTION_PREFILL_ATTENTION_H
#define BLINK_OPS_ATTENTION_PREFILL_ATTENTION_H

#include "kv_element.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kPrefillThreads = 128;
constexpr uint32_t kPrefillQueries = 64; /* of one block; 16 a warp */

/* Of one tile: as many as static shared memory has room for. */
template <int HeadDim>
constexpr uint32_t kPrefillKeys = HeadDim > 160 ? 32 : 64;

/* Keys and values of one head in shared memory; rows are 16 bytes longer than they need to be, so that the
 * 8 rows of a matrix lie in different banks. */
template <typename Half, int HeadDim>
struct KeyTile {
  static constexpr uint32_t kKeys = kPrefillKeys<HeadDim>;
  Half k[kKeys][HeadDim + 8];
  Half v[kKeys][HeadDim + 8];

  /* Keys from `end` on are zero: their weight is 0, and 0 times a stale value may be NaN. */
  template <typename Cache>
  __device__ __forceinline__ void load(const struct blink_tables& tables, const Cache* k_cache, const Cache* v_cache,
                                       uint32_t sequence, uint32_t kv_head, uint32_t n_kv_heads, uint32_t begin,
                                       uint32_t end) {
    constexpr uint32_t kVector = 16 / sizeof(Cache), kChunks = HeadDim / kVector;
    for (uint32_t e = threadIdx.x; e < kKeys * kChunks; e += kPrefillThreads) {
      const uint32_t j = e / kChunks, d = e % kChunks * kVector;
      uint4 key = make_uint4(0, 0, 0, 0), value = key;
      if (begin + j < end) {
        const uint64_t offset = cache_offset(tables, sequence, begin + j, kv_head, n_kv_heads, HeadDim) + d;
        key = *reinterpret_cast<const uint4*>(k_cache + offset);
        value = *reinterpret_cast<const uint4*>(v_cache + offset);
      }
      put<Cache>(&k[j][d], key);
      put<Cache>(&v[j][d], value);
    }
  }

 private:
  template <typename Cache>
  static __device__ __forceinline__ void put(Half* to, const uint4& x) {
    uint4* const vectors = reinterpret_cast<uint4*>(to);
    if constexpr (KvElement<Cache>::kFp8)
      to_float16s(x, vectors[0], vectors[1]);
    else
      vectors[0] = x;
  }
};

/* A warp's 16 queries: their fragments, running maxima and sums (rows r and r + 8 of a lane), and the
 * unnormalised output. */
template <typename Half, int HeadDim>
struct QueryTile {
  static constexpr uint32_t kKeys = kPrefillKeys<HeadDim>;
  uint32_t q[HeadDim / 16][4];
  float out[HeadDim / 8][4];
  float max[2], sum[2];
  int32_t first[2], position[2]; /* of the keys that it sees; position -1: no query in this row */

  /* `x`: the head's query of the warp's first token; tokens are `stride` elements apart; n of 16 exist. */
  __device__ __forceinline__ void load(const Half* x, uint32_t stride, uint32_t n, const uint32_t* token_position,
                                       uint32_t window) {
    const uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t token = r + 8 * h;
      position[h] = token < n ? int32_t(token_position[token]) : -1;
      first[h] = position[h] < 0 ? 0 : int32_t(first_seen(uint32_t(position[h]), window));
      max[h] = -INFINITY;
      sum[h] = 0.0f;
#pragma unroll
      for (int d = 0; d < HeadDim / 16; ++d) {
        const Half* source = x + uint64_t(token) * stride + d * 16 + c;
        q[d][h] = token < n ? *reinterpret_cast<const uint32_t*>(source) : 0;
        q[d][h + 2] = token < n ? *reinterpret_cast<const uint32_t*>(source + 8) : 0;
      }
    }
#pragma unroll
    for (int d = 0; d < HeadDim / 8; ++d) out[d][0] = out[d][1] = out[d][2] = out[d][3] = 0.0f;
  }

  /* Attends to the tile's keys, which are at positions begin.. of the sequence. */
  __device__ __forceinline__ void attend(const KeyTile<Half, HeadDim>& tile, uint32_t begin, float key_scale) {
    const uint32_t lane = threadIdx.x % 32, c = lane % 4 * 2;
    float s[kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < HeadDim / 16; ++d)
#pragma unroll
      for (uint32_t j = 0; j < kKeys / 8; j += 2) {
        uint32_t k[4]; /* keys 8j.. at dimensions d, d + 8; keys 8j + 8.. likewise */
        load_matrices<false>(k, &tile.k[j * 8 + lane / 16 * 8 + lane % 8][d * 16 + lane / 8 % 2 * 8]);
        mma(s[j], q[d], k[0], k[1], Half());
        mma(s[j + 1], q[d], k[2], k[3], Half());
      }
    softmax(s, begin + c, key_scale);
#pragma unroll
    for (uint32_t j = 0; j < kKeys / 16; ++j) {
      const uint32_t p[4] = {pack<Half>(s[2 * j][0], s[2 * j][1]), pack<Half>(s[2 * j][2], s[2 * j][3]),
                             pack<Half>(s[2 * j + 1][0], s[2 * j + 1][1]),
                             pack<Half>(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < HeadDim / 8; d += 2) {
        uint32_t v[4]; /* dimensions 8d.. of keys 16j, 16j + 8; dimensions 8d + 8.. likewise */
        load_matrices<true>(v, &tile.v[j * 16 + lane % 16][d * 8 + lane / 16 * 8]);
        mma(out[d], p, v[0], v[1], Half());
        mma(out[d + 1], p, v[2], v[3], Half());
      }
    }
  }

  /* Scores to weights, in place; s[j] holds keys begin + 8j and begin + 8j + 1 of the lane's two rows. */
  __device__ __forceinline__ void softmax(float (&s)[kKeys / 8][4], uint32_t begin, float key_scale) {
    const float scale = kLog2E / sqrtf(float(HeadDim)) * key_scale;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float next = max[h];
#pragma unroll
      for (uint32_t j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[j][2 * h + e];
          const int32_t key = int32_t(begin + 8 * j + e);
          x = key <= position[h] && key >= first[h] ? x * scale : -INFINITY;
          next = fmaxf(next, x);
        }
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 1));
      next = fmaxf(next, __shfl_xor_sync(0xffffffffu, next, 2));
      const float base = next == -INFINITY ? 0.0f : next; /* a row without a query never sees a key, others none
                                                               before their window */
      const float shrink = exp2f(max[h] - base);
      max[h] = next;
      sum[h] *= shrink;
#pragma unroll
      for (uint32_t j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          s[j][2 * h + e] = exp2f(s[j][2 * h + e] - base);
          sum[h] += s[j][2 * h + e];
        }
#pragma unroll
      for (int d = 0; d < HeadDim / 8; ++d) out[d][2 * h] *= shrink, out[d][2 * h + 1] *= shrink;
    }
  }

  /* `scale`: of the values. Sinks: the softmax has the score `sink`, too. */
  template <bool Sinks, typename Out>
  __device__ __forceinline__ void store(Out* target, uint32_t stride, float scale, float sink) {
    const uint32_t r = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h] + __shfl_xor_sync(0xffffffffu, sum[h], 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      if (position[h] < 0) continue;
      if (Sinks) total += exp2f(sink * kLog2E - max[h]);
#pragma unroll
      for (int d = 0; d < HeadDim / 8; ++d)
        *reinterpret_cast<uint32_t*>(target + uint64_t(r + 8 * h) * stride + d * 8 + c) =
            pack<Out>(out[d][2 * h] * scale / total, out[d][2 * h + 1] * scale / total);
    }
  }
};

/* grid (ceil(tokens / kPrefillQueries), n_heads), block (kPrefillThreads). `tokens` is the shape's capacity.
 * A block handles the prompts that have some of its 64 tokens one after the other; a step has each sequence at most
 * once, in consecutive tokens (E5). `window` as first_seen() has it. With `decodes` it serves the sequences that
 * decode, where decode_attention_sm90.h does not, else prompts. Cache: the elements of keys and values (kv_element.h).
 * Sinks: `sinks` as in attention.h, null otherwise.
 */
template <typename Out, int HeadDim, typename Cache = Out, bool Sinks = false>
__global__ void __launch_bounds__(kPrefillThreads)
    prefill_attention_kernel(struct blink_step_set set, struct blink_tables tables, const Out* qkv,
                             const Cache* k_cache, const Cache* v_cache, Out* out, uint32_t n_heads,
                             uint32_t n_kv_heads, uint32_t tokens, uint32_t window, float k_scale, float v_scale,
                             uint32_t decodes, const Out* sinks) {
  using Half = typename KvElement<Cache>::Half;
  const Half* const queries = reinterpret_cast<const Half*>(qkv); /* which rope.h has left so */
  const KvScales<Cache> scales(k_scale, v_scale);
  allow_successor();
  wait_for_predecessor();
  __shared__ __align__(16) KeyTile<Half, HeadDim> tile;
  constexpr uint32_t kKeys = kPrefillKeys<HeadDim>;
  const uint32_t begin = (gridDim.x - 1 - blockIdx.x) * kPrefillQueries; /* the tokens with the most keys first */
  const uint32_t n_decode = set.head->n_decode, until = decodes ? min(tokens, n_decode) : tokens;
  const uint32_t end = min(until, begin + kPrefillQueries), mine = begin + threadIdx.x;
  const uint32_t head = blockIdx.y, kv_head = head / (n_heads / n_kv_heads), warp = threadIdx.x / 32;
  const uint32_t my_sequence = mine < end ? set.token_sequence[mine] : BLINK_NO_SEQUENCE;
  const uint32_t stride = (n_heads + 2 * n_kv_heads) * HeadDim;

  for (uint32_t first = decodes ? begin : max(begin, n_decode);
       first < end && set.token_sequence[first] != BLINK_NO_SEQUENCE;) {
    const uint32_t sequence = set.token_sequence[first], n = __syncthreads_count(my_sequence == sequence);
    const uint32_t length = set.token_position[first + n - 1] + 1;
    const uint32_t offset = first + 16 * warp, n_mine = n > 16 * warp ? min(16u, n - 16 * warp) : 0;
    const uint32_t my_length = n_mine ? set.token_position[offset + n_mine - 1] + 1 : 0;
    QueryTile<Half, HeadDim> query;
    query.load(queries + uint64_t(offset) * stride + head * HeadDim, stride, n_mine, set.token_position + offset,
               window);
    const uint32_t my_first = n_mine ? first_seen(set.token_position[offset], window) : 0;
    for (uint32_t key = first_seen(set.token_position[first], window) / kKeys * kKeys; key < length; key += kKeys) {
      tile.load(tables, k_cache, v_cache, sequence, kv_head, n_kv_heads, key, length);
      __syncthreads();
      if (key < my_length && key + kKeys > my_first) query.attend(tile, key, scales.key);
      __syncthreads();
    }
    query.template store<Sinks>(out + (uint64_t(offset) * n_heads + head) * HeadDim, n_heads * HeadDim, scales.value,
                                Sinks ? to_float(sinks[head]) : 0.0f);
    first += n;
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_PREFILL_ATTENTION_H */
