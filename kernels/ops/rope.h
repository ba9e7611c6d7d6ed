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

/* (a, b) turned by the angle with cosine c and sine s. */
BLINK_HD void turn(float& a, float& b, float c, float s) {
  const float x = a;
  a = x * c - b * s;
  b = b * c + x * s;
}

/* The pair (a, b) = (x[d], x[d + head_dim / 2]) at `position`, turned by position * inv_freq[d]. */
BLINK_HD void rotate(float& a, float& b, uint32_t position, float inv_freq) {
  const float angle = float(position) * inv_freq;
  turn(a, b, cosf(angle), sinf(angle));
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

/* grid (tokens), block (a multiple of 32, at least HeadDim / 2): a token, a thread 8 pairs of a head at a time. The
 * angles are the same for all heads, and the costliest part; they come before the wait, as does all that the scheduler
 * has written (E7). Tokens of rows that decode are left to attention_stream.h. */
template <typename Half, int HeadDim>
__global__ void rope_kernel(struct blink_step_set set, struct blink_tables tables, Half* qkv, const Half* q_norm,
                            const Half* k_norm, float eps, const float* inv_freq, Half* k_cache, Half* v_cache,
                            uint32_t n_heads, uint32_t n_kv_heads) {
  constexpr uint32_t kPieces = HeadDim / 16, kLanes = kPieces > 4 ? 8 : kPieces > 2 ? 4 : kPieces;
  __shared__ __align__(16) float2 angles[HeadDim / 2];
  const uint32_t i = blockIdx.x, n_all = n_heads + 2 * n_kv_heads;
  allow_successor();
  const uint32_t row = set.token_row[i], position = set.token_position[i];
  const float frequency = threadIdx.x < HeadDim / 2 ? inv_freq[threadIdx.x] : 0.0f;
  const bool skipped = row == BLINK_NO_ROW || i < set.head->n_decode;
  const uint64_t cell = skipped ? 0 : cache_offset(tables, row, position, 0, n_kv_heads, HeadDim);
  if (threadIdx.x < HeadDim / 2) {
    const float angle = float(position) * frequency;
    angles[threadIdx.x] = make_float2(cosf(angle), sinf(angle));
  }
  __syncthreads();
  wait_for_predecessor();
  if (skipped) return;
  for (uint32_t e = threadIdx.x; e - threadIdx.x % 32 < n_all * kLanes; e += blockDim.x) { /* whole warps */
    const uint32_t head = e / kLanes, piece = e % kLanes;
    const bool mine = head < n_all && piece < kPieces, is_query = head < n_heads,
               is_value = head >= n_heads + n_kv_heads;
    Half* const x = qkv + (uint64_t(i) * n_all + head) * HeadDim + 8 * piece;
    float a[8] = {}, b[8] = {};
    if (mine) load8(x, a), load8(x + HeadDim / 2, b);
    if (q_norm) { /* both or none */
      const Half* const norm = (is_query ? q_norm : k_norm) + 8 * piece;
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
      for (int k = 0; k < 8; ++k) turn(a[k], b[k], angles[8 * piece + k].x, angles[8 * piece + k].y);
    const uint64_t kv_head = (head - n_heads) % n_kv_heads;
    Half* const out =
        is_query ? x : (is_value ? v_cache : k_cache) + cell + kv_head * tables.page_size * HeadDim + 8 * piece;
    store8(out, a);
    store8(out + HeadDim / 2, b);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ROPE_H */
