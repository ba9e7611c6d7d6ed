/* Attention of prompts. Scales of keys and values are 0 where the cache holds halves. */
#include "kernels.h"

#include "kernels/ops/attention/flash_attention_sm90.h"
#include "kernels/ops/attention/prefill_attention.h"
#include "kernels/ops/attention/prefill_plan.h"

extern "C" {

void emulate_prefill_attention(const blink_set* set, const struct blink_tables* tables, const Half* qkv,
                               const void* k_cache, const void* v_cache, float k_scale, float v_scale, Half* out,
                               uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t window,
                               uint32_t tokens, uint32_t decodes, const Half* sinks) {
  const uint32_t tiles = (tokens + blink::kPrefillQueries - 1) / blink::kPrefillQueries;
  after(qkv, kHalf * tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  with_cache(k_scale, [&](auto element) {
    using Cache = decltype(element);
    with_head_dim(head_dim, [&](auto dim) {
      launch({tiles, n_heads}, blink::kPrefillThreads, [&] {
        const auto kernel = sinks ? blink::prefill_attention_kernel<Half, dim(), Cache, true>
                                  : blink::prefill_attention_kernel<Half, dim(), Cache>;
        kernel(*set, *tables, qkv, static_cast<const Cache*>(k_cache), static_cast<const Cache*>(v_cache), out, n_heads,
               n_kv_heads, tokens, window, k_scale, v_scale, decodes, sinks);
      });
    });
  });
}

void emulate_prefill_plan(const blink_set* set, blink::PrefillUnit* plan, uint32_t unit_tokens, uint32_t part_keys,
                          uint32_t most_parts) {
  launch({1}, blink::kPrefillPlanThreads,
         [&] { blink::prefill_plan_kernel(*set, plan, unit_tokens, part_keys, most_parts); });
}

void emulate_flash_attention(const struct blink_tables* tables, const Half* qkv, const void* cache, float k_scale,
                             float v_scale, Half* out, const blink::PrefillUnit* plan, uint32_t n_heads,
                             uint32_t n_kv_heads, uint32_t head_dim, uint32_t tokens, uint32_t cells, uint32_t pack,
                             uint32_t blocks, uint32_t after_decode, float* parts, uint32_t* arrivals,
                             uint32_t most_parts, const Half* sinks) {
  using namespace blink;
  const uint32_t heads = n_heads + 2 * n_kv_heads, columns = head_dim / 64;
  const auto bits = [](const void* p) { return static_cast<const uint16_t*>(p); };
  const TensorMap4 queries = {
      bits(qkv), {64, heads, tokens, columns}, {64, pack, 64 / pack, columns}, {head_dim, heads * head_dim, 64}};
  const TensorMap4 fresh = {
      bits(qkv), {64, heads, tokens, columns}, {64, 1, 8, columns}, {head_dim, heads * head_dim, 64}};
  const uint32_t atoms = 2 * cells * n_kv_heads / 8, words = head_dim / 2;
  const TensorMap4 of_halves = {
      bits(cache), {64, 8, columns, atoms}, {64, 8, columns, 2}, {head_dim, 64, 8 * head_dim}};
  const TensorMap4 of_fp8 = {bits(cache), {words, 8, 1, atoms}, {words, 8, 1, 2}, {words, words, 8 * words}, true};
  const TensorMap4& keys = k_scale == 0.0f ? of_halves : of_fp8;
  FlashMap maps[3];
  memcpy(maps, &queries, sizeof(queries));
  memcpy(maps + 1, &fresh, sizeof(fresh));
  memcpy(maps + 2, &keys, sizeof(keys));
  if (!after_decode) after(qkv, kHalf * tokens * heads * head_dim);
  with_cache(k_scale, [&](auto element) {
    with_constant<64, 128>(head_dim, [&](auto dim) {
      launch(
          {blocks}, k_scale == 0.0f ? kFlashThreads : kFlashFp8Threads,
          [&] {
            using Cache = decltype(element);
            const auto kernel =
                sinks ? flash_attention_kernel<Half, dim(), Cache, true> : flash_attention_kernel<Half, dim(), Cache>;
            kernel(maps[0], maps[1], maps[2], *tables, plan, out, 0, cells * n_kv_heads / 8, n_heads, n_kv_heads, pack,
                   after_decode, k_scale, v_scale, parts, arrivals, most_parts, sinks);
          },
          most_parts > 1 ? kGrid : kAlone);
    });
  });
}
}
