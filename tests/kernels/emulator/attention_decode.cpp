/* RoPE, and attention where a sequence has one new token. */
#include "kernels.h"

#include "kernels/ops/attention_plan.h"
#include "kernels/ops/attention_stream.h"
#include "kernels/ops/rope.h"

extern "C" {

void emulate_rope(const blink_set* set, const struct blink_tables* tables, Half* qkv, const Half* q_norm,
                  const Half* k_norm, float eps, const float* inv_freq, Half* k_cache, Half* v_cache, uint32_t n_heads,
                  uint32_t n_kv_heads, uint32_t head_dim, uint32_t tokens) {
  after(qkv, kHalf * tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  with_head_dim(head_dim, [&](auto dim) {
    launch({tokens}, 96, [&] {
      blink::rope_kernel<Half, dim()>(*set, *tables, qkv, q_norm, k_norm, eps, inv_freq, k_cache, v_cache, n_heads,
                                      n_kv_heads);
    });
  });
}

/* The plan, and attention of one layer. */
void emulate_attention_stream(const blink_set* set, const struct blink_tables* tables, uint32_t usual, uint32_t least,
                              uint32_t longest, uint32_t most, blink::AttentionPiece* plan, const float* inv_freq,
                              float2* turns, const void* map, const Half* qkv, const Half* q_norm, const Half* k_norm,
                              float eps, Half* k_cache, Half* v_cache, uint32_t* partial, Half* out, uint32_t n_heads,
                              uint32_t n_kv_heads, uint32_t head_dim, uint32_t lanes, uint32_t blocks) {
  const blink::AttentionCut cut = {usual, least, longest, most};
  launch({1 + (lanes * head_dim / 2 + blink::kCutThreads - 1) / blink::kCutThreads}, blink::kCutThreads,
         [&] { blink::attention_plan_kernel(*set, cut, plan, inv_freq, turns, head_dim); });
  after(qkv, kHalf * set->head->n_decode * (n_heads + 2 * n_kv_heads) * head_dim);
  with_head_dim(head_dim, [&](auto dim) {
    const auto kernel = [&] {
      blink::attention_stream_kernel<Half, dim()>(*tables, plan, turns, map, qkv, q_norm, k_norm, eps, k_cache, v_cache,
                                                  partial, out, n_kv_heads, n_heads / n_kv_heads, most);
    };
    launch({blocks}, blink::kAttentionThreads, kernel, kGrid);
  });
}
}
