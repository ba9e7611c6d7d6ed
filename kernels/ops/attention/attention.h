/* Attention over pages: token i attends to positions 0..token_position[i] of its sequence, read through the block
 * table, in decode and prefill alike, so that chunks of a prompt and shared prefixes need no second path.
 * This step's keys and values are in the cache already, except that decode_attention_sm90.h puts them there itself,
 * unless append_kv.h has.
 *
 *   qkv       [tokens][n_heads + 2 n_kv_heads][head_dim] half (fp32 on the host): the rotated queries
 *   k_cache   one layer's keys, [page][n_kv_heads][page_size][head_dim]; v_cache likewise
 *   out       [tokens][n_heads][head_dim] half; rows of padding tokens are not written
 *
 * With a window a token attends only to the last `window` positions, its own included.
 *
 * With sinks [n_heads], each head's softmax has one score more, which takes weight and has no value (gpt-oss).
 *
 * softmax(q . k / sqrt(head_dim)) v, fp32 inside; query head h reads key head h / (n_heads / n_kv_heads).
 */
#ifndef BLINK_OPS_ATTENTION_H
#define BLINK_OPS_ATTENTION_H

#include "append_kv.h"
#include "flash_attention_sm90.h"
#include "prefill_attention.h"
#include "decode_attention_sm90.h"

namespace blink {

#ifndef __CUDACC__

constexpr uint32_t kKeyBlock = 16; /* keys that share one rescaling of the sums */

/* One head of one token: a running softmax, its sums relative to the largest score so far. */
inline void attention(const struct blink_step_set& set, const struct blink_tables& tables, const float* qkv,
                      const float* k_cache, const float* v_cache, float* out, uint32_t n_heads, uint32_t n_kv_heads,
                      uint32_t head_dim, uint32_t window, const float* sinks, uint32_t i, uint32_t head) {
  if (set.token_sequence[i] == BLINK_NO_SEQUENCE) return;
  const uint32_t kv_head = head / (n_heads / n_kv_heads), length = set.token_position[i] + 1;
  const uint32_t block = tables.page_size < kKeyBlock ? tables.page_size : kKeyBlock; /* divides the page */
  const float* q = qkv + (uint64_t(i) * (n_heads + 2 * n_kv_heads) + head) * head_dim;
  float* __restrict__ acc = out + (uint64_t(i) * n_heads + head) * head_dim;
  const float scale = 1.0f / sqrtf(float(head_dim));
  float max = sinks ? sinks[head] : -INFINITY, sum = sinks ? 1.0f : 0.0f;
  for (uint32_t d = 0; d < head_dim; ++d) acc[d] = 0.0f;
  uint32_t first = first_seen(set.token_position[i], window);
  while (first < length) {
    const uint64_t offset = cache_offset(tables, set.token_sequence[i], first, kv_head, n_kv_heads, head_dim);
    const uint32_t rest = block - first % block, n = length - first < rest ? length - first : rest;
    first += n;
    float score[kKeyBlock], next = max;
    for (uint32_t j = 0; j < n; ++j) {
      const float* k = k_cache + offset + j * head_dim;
      float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
      for (uint32_t d = 0; d < head_dim; ++d) dot += q[d] * k[d];
      score[j] = dot * scale;
      next = score[j] > next ? score[j] : next;
    }
    const float shrink = expf(max - next);
    max = next;
    sum *= shrink;
    for (uint32_t d = 0; d < head_dim; ++d) acc[d] *= shrink;
    for (uint32_t j = 0; j < n; ++j) {
      const float weight = expf(score[j] - max);
      const float* v = v_cache + offset + j * head_dim;
      sum += weight;
      for (uint32_t d = 0; d < head_dim; ++d) acc[d] += weight * v[d];
    }
  }
  for (uint32_t d = 0; d < head_dim; ++d) acc[d] /= sum;
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_H */
