/* Attention of prompts. */
#include "kernels.h"

#include "kernels/ops/attention/flash_attention_sm90.h"
#include "kernels/ops/attention/prefill_attention.h"
#include "kernels/ops/attention/prefill_plan.h"

extern "C" {

void emulate_prefill_attention(const blink_set* set, const struct blink_tables* tables, const Half* qkv,
                               const Half* k_cache, const Half* v_cache, Half* out, uint32_t n_heads,
                               uint32_t n_kv_heads, uint32_t head_dim, uint32_t window, uint32_t tokens) {
  const uint32_t tiles = (tokens + blink::kPrefillQueries - 1) / blink::kPrefillQueries;
  after(qkv, kHalf * tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  with_head_dim(head_dim, [&](auto dim) {
    launch({tiles, n_heads}, blink::kPrefillThreads, [&] {
      blink::prefill_attention_kernel<Half, dim()>(*set, *tables, qkv, k_cache, v_cache, out, n_heads, n_kv_heads,
                                                   tokens, window);
    });
  });
}

void emulate_prefill_plan(const blink_set* set, blink::PrefillUnit* plan, uint32_t unit_tokens) {
  launch({1}, blink::kPrefillPlanThreads, [&] { blink::prefill_plan_kernel(*set, plan, unit_tokens); });
}

void emulate_flash_attention(const struct blink_tables* tables, const Half* qkv, const Half* cache, Half* out,
                             const blink::PrefillUnit* plan, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                             uint32_t tokens, uint32_t cells, uint32_t pack, uint32_t blocks, uint32_t after_decode) {
  using namespace blink;
  const uint32_t heads = n_heads + 2 * n_kv_heads, columns = head_dim / 64;
  const auto bits = [](const Half* p) { return reinterpret_cast<const uint16_t*>(p); };
  const TensorMap4 queries = {
      bits(qkv), {64, heads, tokens, columns}, {64, pack, 64 / pack, columns}, {head_dim, heads * head_dim, 64}};
  const TensorMap4 keys = {
      bits(cache), {64, 8, columns, 2 * cells * n_kv_heads / 8}, {64, 8, columns, 2}, {head_dim, 64, 8 * head_dim}};
  FlashMap maps[2];
  memcpy(maps, &queries, sizeof(queries));
  memcpy(maps + 1, &keys, sizeof(keys));
  if (!after_decode) after(qkv, kHalf * tokens * heads * head_dim);
  with_constant<64, 128>(head_dim, [&](auto dim) {
    launch({blocks}, kFlashThreads, [&] {
      flash_attention_kernel<Half, dim()>(maps[0], maps[1], *tables, plan, out, 0, cells * n_kv_heads / 8, n_heads,
                                          n_kv_heads, pack, after_decode);
    });
  });
}
}
