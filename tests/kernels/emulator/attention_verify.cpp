/* Attention where a sequence has several new tokens. Operands as in attention_decode.cpp. */
#include "kernels.h"

#include "kernels/ops/attention/append_kv.h"
#include "kernels/ops/attention/decode_attention_sm90.h"

namespace {

/* The kernel whose units have so many query heads at most; of large heads there are no wide units. */
template <int HeadDim, bool Bounded, typename Cache, uint32_t Extras>
auto verify_attention_kernel(uint32_t unit_heads) {
  using blink::decode_attention_kernel, blink::kUnitHeads, blink::kWideUnitHeads;
  auto kernel = decode_attention_kernel<Half, HeadDim, Bounded, Bounded, Cache, true, kUnitHeads, Extras>;
  if constexpr (HeadDim <= blink::kLargestWideHead)
    if (unit_heads == kWideUnitHeads)
      return decode_attention_kernel<Half, HeadDim, Bounded, Bounded, Cache, true, kWideUnitHeads, Extras>;
  if (unit_heads != blink::kUnitHeads) emulator::fail("no such instance");
  return kernel;
}

}  // namespace

extern "C" {

void emulate_append_kv(const blink_set* set, const struct blink_tables* tables, const float2* turns, const Half* qkv,
                       const Half* bias, const Half* k_norm, float eps, void* k_cache, void* v_cache, float k_scale,
                       float v_scale, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t batch_slots) {
  after(qkv, kHalf * set->head->n_decode * (n_heads + 2 * n_kv_heads) * head_dim);
  with_cache(k_scale, [&](auto element) {
    using Cache = decltype(element);
    with_constant<16, 128, 256>(head_dim, [&](auto dim) {
      const auto kernel =
          bias ? blink::append_kv_kernel<Half, dim(), true, Cache> : blink::append_kv_kernel<Half, dim(), false, Cache>;
      launch({batch_slots}, 96, [&] {
        kernel(*set, *tables, turns, qkv, k_norm, eps, static_cast<Cache*>(k_cache), static_cast<Cache*>(v_cache),
               n_heads, n_kv_heads, bias, k_scale, v_scale);
      });
    });
  });
}

/* Behind the plan and the kernel above, which is the predecessor, so that the cells of this step's keys and values are
 * garbage at first. With a bias, in a window. */
void emulate_verify_attention(const blink_set* set, const struct blink_tables* tables, const blink::KvSplit* plan,
                              const float2* turns, const void* map, const Half* qkv, const Half* bias,
                              const Half* q_norm, const Half* k_norm, float eps, void* k_cache, void* v_cache,
                              float k_scale, float v_scale, uint32_t* partial, Half* out, uint32_t n_heads,
                              uint32_t n_kv_heads, uint32_t head_dim, uint32_t window, uint32_t most, uint32_t blocks,
                              uint32_t unit_heads, float growth_beta, uint32_t growth_context, const Half* sinks) {
  if (!bias != !window) emulator::fail("no such instance");
  after(qkv, kHalf * set->head->n_decode * (n_heads + 2 * n_kv_heads) * head_dim);
  with_cache(k_scale, [&](auto element) {
    using Cache = decltype(element);
    Cache *const keys = static_cast<Cache*>(k_cache), *const values = static_cast<Cache*>(v_cache);
    for (uint32_t i = 0; i < set->head->n_decode; ++i)
      for (uint32_t head = 0; head < n_kv_heads; ++head) {
        const uint64_t at =
            blink::cache_offset(*tables, set->token_sequence[i], set->token_position[i], head, n_kv_heads, head_dim);
        after(keys + at, sizeof(Cache) * head_dim), after(values + at, sizeof(Cache) * head_dim);
      }
    with_constant<16, 128, 256>(head_dim, [&](auto dim) {
      auto kernel = bias ? verify_attention_kernel<dim(), true, Cache, 0>(unit_heads)
                         : verify_attention_kernel<dim(), false, Cache, 0>(unit_heads);
      if constexpr (dim() == 16) {
        if (sinks)
          kernel = verify_attention_kernel<16, true, Cache, blink::kSinks>(unit_heads);
        else if (growth_beta != 0.0f)
          kernel = verify_attention_kernel<16, true, Cache, blink::kGrowingQueries>(unit_heads);
      }
      launch(
          {blocks}, blink::kAttentionThreads,
          [&] {
            kernel(*tables, plan, turns, map, qkv, q_norm, k_norm, eps, keys, values, partial, out, n_kv_heads,
                   n_heads / n_kv_heads, most, bias, window, k_scale, v_scale, growth_beta, growth_context, sinks);
          },
          kGrid);
    });
  });
}
}
