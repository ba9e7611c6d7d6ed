/* RoPE and KV write: rotates the queries in place, rotates the keys into the cache, copies the values into
 * the cache; with Qwen3's per-head RMSNorm of queries and keys first, where the model has it.
 *
 *   qkv       [tokens][n_heads + 2 n_kv_heads][head_dim] half (fp32 on the host): queries, keys, values
 *   bias      [(n_heads + 2 n_kv_heads) * head_dim] or null: of the projection, added before anything else
 *   q_norm    [head_dim] or null, k_norm likewise
 *   table     [head_dim / 2]: how each pair of dimensions turns
 *   growth    what queries are multiplied by beyond that, by their position
 *   k_cache   one layer's keys, [page][n_kv_heads][page_size][head_dim]; v_cache likewise
 *
 * Rotation is the half-split one of Hugging Face: element d pairs with d + head_dim / 2. A pair that a model does not
 * rotate has the frequency 0 and the magnitude 1. Padding tokens write nothing (E3).
 */
#ifndef BLINK_OPS_ATTENTION_ROPE_H
#define BLINK_OPS_ATTENTION_ROPE_H

#include "kv_element.h"

namespace blink {

/* (a, b) turned by the angle with cosine c and sine s. On the GPU it says itself which product is not rounded: ptxas
 * would choose one of the two that are subtracted, not the same in every kernel, and a key would have other bits in a
 * verify step than in a decode step (E16). */
BLINK_HD void turn(float& a, float& b, float c, float s) {
  const float x = a;
#ifdef __CUDACC__
  a = fmaf(x, c, -(b * s));
  b = fmaf(x, s, b * c);
#else
  a = x * c - b * s;
  b = b * c + x * s;
#endif
}

/* A pair of dimensions: its angle per position, in radians, and the factor of its cosine and sine. The factor carries
 * what a model scales queries and keys by, each by the square root of the factor that their dot product shall have:
 * YaRN's and longrope's attention factor, and a score's scale that is not 1 / sqrt(head_dim). */
struct alignas(8) RopePair {
  float frequency, magnitude;

  BLINK_HD float angle(uint32_t position) const { return float(position) * frequency; }
  BLINK_HD float cosine(uint32_t position) const { return cosf(angle(position)) * magnitude; }
  BLINK_HD float sine(uint32_t position) const { return sinf(angle(position)) * magnitude; }
};

/* What queries alone are multiplied by, so that attention stays sharp over long texts (Llama 4, Ministral 3): 1 up to
 * `context` tokens, and more with the logarithm of how often that many lie before a token. No growth has beta 0. */
struct QueryGrowth {
  float beta;
  uint32_t context; /* tokens, at least 1 */

  BLINK_HD float factor(uint32_t position) const { return 1.0f + beta * logf(float(1 + position / context)); }
};

#ifndef __CUDACC__

/* One head of one token: `head` counts queries, then keys, then values. The scales are those of cached_value(). */
inline void rope(const struct blink_step_set& set, const struct blink_tables& tables, float* qkv, const float* bias,
                 const float* q_norm, const float* k_norm, float eps, const RopePair* table, float* k_cache,
                 float* v_cache, float k_scale, float v_scale, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                 uint32_t i, uint32_t head, QueryGrowth growth = {0.0f, 1}) {
  if (set.token_sequence[i] == BLINK_NO_SEQUENCE) return;
  const bool is_query = head < n_heads, is_value = head >= n_heads + n_kv_heads;
  float* x = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * head_dim;
  if (bias)
    for (uint32_t d = 0; d < head_dim; ++d) x[d] += bias[uint64_t(head) * head_dim + d];
  if (!is_value) {
    const float* norm = is_query ? q_norm : k_norm;
    float scale = 1.0f;
    if (norm) {
      float sum = 0.0f;
      for (uint32_t d = 0; d < head_dim; ++d) sum += x[d] * x[d];
      scale = 1.0f / sqrtf(sum / float(head_dim) + eps);
    }
    for (uint32_t d = 0; d < head_dim / 2; ++d) {
      float &a = x[d], &b = x[d + head_dim / 2];
      if (norm) a *= scale * norm[d], b *= scale * norm[d + head_dim / 2];
      turn(a, b, table[d].cosine(set.token_position[i]), table[d].sine(set.token_position[i]));
    }
  }
  if (is_query) {
    const float factor = growth.factor(set.token_position[i]);
    for (uint32_t d = 0; d < head_dim; ++d) x[d] *= factor;
    return;
  }
  const uint32_t kv_head = (head - n_heads) % n_kv_heads;
  float* out = (is_value ? v_cache : k_cache) +
               cache_offset(tables, set.token_sequence[i], set.token_position[i], kv_head, n_kv_heads, head_dim);
  for (uint32_t d = 0; d < head_dim; ++d) out[d] = cached_value(x[d], is_value ? v_scale : k_scale);
}

#else

/* grid (tokens), block (a multiple of 32, at least HeadDim / 2): a token, a thread 8 pairs of a head at a time. The
 * angles are the same for all heads, and the costliest part; they come before the wait, as does all that the scheduler
 * has written (E7). It serves prompts' tokens, or with `decodes` those of sequences that decode, where
 * decode_attention_sm90.h does not. `bias` is null unless Biased, and queries grow only if Growing.
 * Cache: the elements of keys and values; queries become what these are multiplied by (kv_element.h). With a cache in
 * fp8 keys and values become, in qkv, what attention would make of the cache's (flash_fp8_sm90.h reads them there). */
template <typename Half, int HeadDim, bool Biased = false, typename Cache = Half, bool Growing = false>
__global__ void rope_kernel(struct blink_step_set set, struct blink_tables tables, Half* qkv, const Half* q_norm,
                            const Half* k_norm, float eps, const RopePair* table, Cache* k_cache, Cache* v_cache,
                            uint32_t n_heads, uint32_t n_kv_heads, const Half* bias, float k_scale, float v_scale,
                            uint32_t decodes, float growth_beta, uint32_t growth_context) {
  constexpr uint32_t kVectors = HeadDim / 16;
  constexpr uint32_t kLanes = kVectors > 8 ? 16 : kVectors > 4 ? 8 : kVectors > 2 ? 4 : kVectors;
  static_assert(HeadDim % 16 == 0 && HeadDim <= 256, "lanes of 8 pairs, at most 16");
  __shared__ __align__(16) float2 angles[HeadDim / 2];
  const uint32_t i = blockIdx.x, n_all = n_heads + 2 * n_kv_heads;
  allow_successor();
  const uint32_t sequence = set.token_sequence[i], position = set.token_position[i];
  const RopePair pair = threadIdx.x < HeadDim / 2 ? table[threadIdx.x] : RopePair{};
  const bool skipped = sequence == BLINK_NO_SEQUENCE || (i < set.head->n_decode) != bool(decodes);
  const uint64_t cell = skipped ? 0 : cache_offset(tables, sequence, position, 0, n_kv_heads, HeadDim);
  if (threadIdx.x < HeadDim / 2) angles[threadIdx.x] = make_float2(pair.cosine(position), pair.sine(position));
  __syncthreads();
  wait_for_predecessor();
  if (skipped) return;
  for (uint32_t e = threadIdx.x; e - threadIdx.x % 32 < n_all * kLanes; e += blockDim.x) { /* whole warps */
    const uint32_t head = e / kLanes, vector = e % kLanes;
    const bool mine = head < n_all && vector < kVectors, is_query = head < n_heads,
               is_value = head >= n_heads + n_kv_heads;
    Half* const x = qkv + (uint64_t(i) * n_all + head) * HeadDim + 8 * vector;
    float a[8] = {}, b[8] = {};
    if (mine) load8(x, a), load8(x + HeadDim / 2, b);
    if (Biased && mine) {
      const Half* const of_head = bias + uint64_t(head) * HeadDim + 8 * vector;
      float low[8], high[8];
      load8(of_head, low), load8(of_head + HeadDim / 2, high);
#pragma unroll
      for (int k = 0; k < 8; ++k) a[k] += low[k], b[k] += high[k];
    }
    if (q_norm) { /* both or none */
      const Half* const norm = (is_query ? q_norm : k_norm) + 8 * vector;
      const bool normed = mine && !is_value;
      uint4 low = {}, high = {};
      if (normed)
        low = *reinterpret_cast<const uint4*>(norm), high = *reinterpret_cast<const uint4*>(norm + HeadDim / 2);
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += a[k] * a[k] + b[k] * b[k];
#pragma unroll
      for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      const float scale = 1.0f / sqrtf(sum / float(HeadDim) + eps);
      const Half *by_low = reinterpret_cast<const Half*>(&low), *by_high = reinterpret_cast<const Half*>(&high);
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (normed) a[k] *= scale * to_float(by_low[k]), b[k] *= scale * to_float(by_high[k]);
    }
    if (!mine) continue;
    if (!is_value)
#pragma unroll
      for (int k = 0; k < 8; ++k) turn(a[k], b[k], angles[8 * vector + k].x, angles[8 * vector + k].y);
    const uint64_t kv_head = (head - n_heads) % n_kv_heads;
    if (is_query) {
      if constexpr (Growing) {
        const float growth = QueryGrowth{growth_beta, growth_context}.factor(position);
#pragma unroll
        for (int k = 0; k < 8; ++k) a[k] *= growth, b[k] *= growth;
      }
      store_query8<Cache>(x, a);
      store_query8<Cache>(x + HeadDim / 2, b);
      continue;
    }
    Cache* const out = (is_value ? v_cache : k_cache) + cell + kv_head * tables.page_size * HeadDim + 8 * vector;
    const KvScales<Cache> scales(k_scale, v_scale);
    const float scale = is_value ? scales.value : scales.key;
    store_cached8(out, x, a, scale);
    store_cached8(out + HeadDim / 2, x + HeadDim / 2, b, scale);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_ROPE_H */
