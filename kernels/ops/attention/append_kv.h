/* Appends the keys and values of a verify step to the cache, of all rows before any row attends: a row attends to those
 * of its sequence's rows before it, which other blocks work on. Maths and CPU reference are those of rope.h. Keys and
 * values are what decode_attention_sm90.h makes of its row's own, bit for bit, by the same functions (HeadPairs), and
 * that writes none in such a step.
 */
#ifndef BLINK_OPS_ATTENTION_APPEND_KV_H
#define BLINK_OPS_ATTENTION_APPEND_KV_H

#include "attention_plan.h"
#include "head_pairs.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kAppendThreads = 512; /* of a block at most */

/* grid (batch slots), block (a multiple of 32): a warp makes one key or value after the other. The angles are the
 * plan's, which may be read before the wait (E15). Template arguments and operands as decode_attention_kernel's. */
template <typename Half, int HeadDim, bool Biased = false, typename Cache = Half>
__global__ void __launch_bounds__(kAppendThreads)
    append_kv_kernel(struct blink_step_set set, struct blink_tables tables, const float2* turns, const Half* qkv,
                     const Half* k_norm, float eps, Cache* k_cache, Cache* v_cache, uint32_t n_heads,
                     uint32_t n_kv_heads, const Half* bias, float k_scale, float v_scale) {
  using Pairs = HeadPairs<Half, HeadDim>;
  const uint32_t row = blockIdx.x, n_all = n_heads + 2 * n_kv_heads;
  const KvScales<Cache> scales(k_scale, v_scale);
  allow_successor();
  const bool used = row < set.head->n_decode;
  uint64_t cell = 0;
  Pairs norm;
  float4 turn[Pairs::kRounds] = {};
  if (used) {
    cell = cache_offset(tables, set.token_sequence[row], set.token_position[row], 0, n_kv_heads, HeadDim);
    if (k_norm) norm.load(k_norm);
#pragma unroll
    for (uint32_t j = 0; j < Pairs::kRounds; ++j)
      if (Pairs::used(j))
        turn[j] = *reinterpret_cast<const float4*>(turns + uint64_t(row) * (HeadDim / 2) + Pairs::d(j));
  }
  wait_for_predecessor();
  if (!used) return;
  for (uint32_t i = threadIdx.x / 32; i < 2 * n_kv_heads; i += blockDim.x / 32) {
    const bool is_key = i < n_kv_heads;
    const uint32_t head = n_heads + i, kv_head = is_key ? i : i - n_kv_heads;
    Pairs pairs, more;
    pairs.load(qkv + (uint64_t(row) * n_all + head) * HeadDim);
    if (Biased) more.load(bias + uint64_t(head) * HeadDim);
    if (is_key)
      pairs.rotate(k_norm != nullptr, norm, eps, turn, Biased ? &more : nullptr);
    else if (Biased)
      pairs.add(more);
    Cache* const cache = (is_key ? k_cache : v_cache) + cell + uint64_t(kv_head) * tables.page_size * HeadDim;
    pairs.store_cached(cache, is_key ? scales.key : scales.value);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_APPEND_KV_H */
