/* RoPE and KV write: rotates the queries in place, rotates the keys into the cache, copies the values into
 * the cache; with Qwen3's per-head RMSNorm of queries and keys first, where the model has it.
 *
 *   qkv       [tokens][n_heads + 2 n_kv_heads][head_dim] half (fp32 on the host): queries, keys, values
 *   q_norm    [head_dim] or null, k_norm likewise
 *   inv_freq  [head_dim / 2] fp32, scaling applied (gpu_backend/model/config.py)
 *   k_cache   one layer's keys, [page][n_kv_heads][page_size][head_dim]; v_cache likewise
 *
 * Rotation is the half-split one of Hugging Face: element d pairs with d + head_dim / 2. Padding tokens write
 * nothing (E3).
 */
#ifndef BLINK_OPS_ROPE_H
#define BLINK_OPS_ROPE_H

#include "common.h"

namespace blink {

/* The pair (a, b) = (x[d], x[d + head_dim / 2]) at `position`, turned by position * inv_freq[d]. */
BLINK_HD void rotate(float& a, float& b, uint32_t position, float inv_freq) {
  const float angle = float(position) * inv_freq;
  const float c = cosf(angle), s = sinf(angle), x = a;
  a = x * c - b * s;
  b = b * c + x * s;
}

#ifndef __CUDACC__

/* One head of one token: `head` counts queries, then keys, then values. */
inline void rope(const struct blink_step_set& set, const struct blink_tables& tables, float* qkv, const float* q_norm,
                 const float* k_norm, float eps, const float* inv_freq, float* k_cache, float* v_cache,
                 uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t i, uint32_t head) {
  if (set.token_row[i] == BLINK_NO_ROW) return;
  const bool is_query = head < n_heads, is_value = head >= n_heads + n_kv_heads;
  float* x = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * head_dim;
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
      rotate(a, b, set.token_position[i], inv_freq[d]);
    }
  }
  if (is_query) return;
  const uint32_t kv_head = (head - n_heads) % n_kv_heads;
  float* out = (is_value ? v_cache : k_cache) +
               cache_offset(tables, set.token_row[i], set.token_position[i], kv_head, n_kv_heads, head_dim);
  for (uint32_t d = 0; d < head_dim; ++d) out[d] = x[d];
}

#else

constexpr uint32_t kRopeWarps = 4;

/* grid (tokens, ceil((n_heads + 2 n_kv_heads) / kRopeWarps)), block (32 * kRopeWarps): one warp a head, a
 * lane holds the pairs lane and lane + 32. */
template <typename Half, int HeadDim>
__global__ void rope_kernel(struct blink_step_set set, struct blink_tables tables, Half* qkv, const Half* q_norm,
                            const Half* k_norm, float eps, const float* inv_freq, Half* k_cache, Half* v_cache,
                            uint32_t n_heads, uint32_t n_kv_heads) {
  constexpr uint32_t kHalfDim = HeadDim / 2;
  const uint32_t i = blockIdx.x, lane = threadIdx.x % 32, head = blockIdx.y * kRopeWarps + threadIdx.x / 32;
  if (head >= n_heads + 2 * n_kv_heads || set.token_row[i] == BLINK_NO_ROW)
    return; /* whole warps: shuffles stay safe */
  const bool is_query = head < n_heads, is_value = head >= n_heads + n_kv_heads;
  const uint32_t position = set.token_position[i];
  Half* x = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * HeadDim;

  float a[2] = {}, b[2] = {}, sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const uint32_t d = lane + 32 * k;
    if (d < kHalfDim) a[k] = to_float(x[d]), b[k] = to_float(x[d + kHalfDim]);
    sum += a[k] * a[k] + b[k] * b[k];
  }
  const Half* norm = is_query ? q_norm : k_norm;
  const float scale = norm ? 1.0f / sqrtf(warp_sum(sum) / float(HeadDim) + eps) : 1.0f;

  Half* out = x;
  if (!is_query) {
    const uint32_t kv_head = (head - n_heads) % n_kv_heads;
    out =
        (is_value ? v_cache : k_cache) + cache_offset(tables, set.token_row[i], position, kv_head, n_kv_heads, HeadDim);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const uint32_t d = lane + 32 * k;
    if (d >= kHalfDim) continue;
    if (!is_value) {
      if (norm) a[k] *= scale * to_float(norm[d]), b[k] *= scale * to_float(norm[d + kHalfDim]);
      rotate(a[k], b[k], position, inv_freq[d]);
    }
    from_float(a[k], out + d);
    from_float(b[k], out + d + kHalfDim);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ROPE_H */
