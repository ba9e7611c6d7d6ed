/* RoPE, and attention where a sequence has one new token. Scales of keys and values are 0 where the cache holds halves.
 */
#include "kernels.h"

#include "kernels/ops/attention/attention_plan.h"
#include "kernels/ops/attention/decode_attention_sm90.h"
#include "kernels/ops/attention/rope.h"

extern "C" {

void emulate_rope(const blink_set* set, const struct blink_tables* tables, Half* qkv, const Half* bias,
                  const Half* q_norm, const Half* k_norm, float eps, const blink::RopePair* table, void* k_cache,
                  void* v_cache, float k_scale, float v_scale, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                  uint32_t tokens, uint32_t decodes, float growth_beta, uint32_t growth_context) {
  after(qkv, kHalf * tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  with_cache(k_scale, [&](auto element) {
    using Cache = decltype(element);
    with_head_dim(head_dim, [&](auto dim) {
      launch({tokens}, head_dim > 192 ? 128 : 96, [&] {
        using blink::rope_kernel;
        const auto kernel = growth_beta != 0.0f ? rope_kernel<Half, dim(), true, Cache, true>
                            : bias              ? rope_kernel<Half, dim(), true, Cache>
                                                : rope_kernel<Half, dim(), false, Cache>;
        if (growth_beta != 0.0f && !bias) emulator::fail("no such instance");
        kernel(*set, *tables, qkv, q_norm, k_norm, eps, table, static_cast<Cache*>(k_cache),
               static_cast<Cache*>(v_cache), n_heads, n_kv_heads, bias, k_scale, v_scale, decodes, growth_beta,
               growth_context);
      });
    });
  });
}

/* `window` 0 is none, here and below. */
void emulate_attention_plan(const blink_set* set, uint32_t usual, uint32_t least, uint32_t longest, uint32_t most,
                            blink::KvSplit* plan, const blink::RopePair* table, float2* turns, uint32_t head_dim,
                            uint32_t window, uint32_t most_sharing, uint32_t batch_slots) {
  const blink::KvSplitLimits cut = {usual, least, longest, most};
  launch({1 + (batch_slots * head_dim / 2 + blink::kSplitPlanThreads - 1) / blink::kSplitPlanThreads},
         blink::kSplitPlanThreads, [&] {
           using blink::attention_plan_kernel;
           const auto kernel = most_sharing > 1
                                   ? window ? attention_plan_kernel<true, true> : attention_plan_kernel<false, true>
                               : window ? attention_plan_kernel<true>
                                        : attention_plan_kernel<>;
           kernel(*set, cut, plan, table, turns, head_dim, window, most_sharing);
         });
}

/* Of one layer. */
void emulate_decode_attention(const blink_set* set, const struct blink_tables* tables, const blink::KvSplit* plan,
                              const float2* turns, const void* map, const Half* qkv, const Half* bias,
                              const Half* q_norm, const Half* k_norm, float eps, void* k_cache, void* v_cache,
                              float k_scale, float v_scale, uint32_t* partial, Half* out, uint32_t n_heads,
                              uint32_t n_kv_heads, uint32_t head_dim, uint32_t window, uint32_t most, uint32_t blocks,
                              float growth_beta, uint32_t growth_context, const Half* sinks) {
  after(qkv, kHalf * set->head->n_decode * (n_heads + 2 * n_kv_heads) * head_dim);
  const auto kernel = [&](auto dim, auto element) {
    using Cache = decltype(element);
    const auto run = [&](auto instance) {
      instance(*tables, plan, turns, map, qkv, q_norm, k_norm, eps, static_cast<Cache*>(k_cache),
               static_cast<Cache*>(v_cache), partial, out, n_kv_heads, n_heads / n_kv_heads, most, bias, window,
               k_scale, v_scale, growth_beta, growth_context, sinks);
    };
    using blink::decode_attention_kernel;
    using blink::kUnitHeads;
    if (growth_beta != 0.0f || sinks) { /* with a bias */
      if constexpr (dim() == 16) {
        if (!sinks)
          run(decode_attention_kernel<Half, dim(), true, true, Cache, false, kUnitHeads, blink::kGrowingQueries>);
        else if (window)
          run(decode_attention_kernel<Half, dim(), true, true, Cache, false, kUnitHeads, blink::kSinks>);
        else
          run(decode_attention_kernel<Half, dim(), true, false, Cache, false, kUnitHeads, blink::kSinks>);
      } else {
        emulator::fail("no such instance");
      }
    } else if (!bias && !window) {
      run(decode_attention_kernel<Half, dim(), false, false, Cache>);
    } else if constexpr (dim() == 16 || dim() == 128 || dim() == 256) { /* others take long to compile */
      if (!window)
        run(decode_attention_kernel<Half, dim(), true, false, Cache>);
      else if (!bias)
        run(decode_attention_kernel<Half, dim(), false, true, Cache>);
      else
        run(decode_attention_kernel<Half, dim(), true, true, Cache>);
    } else {
      emulator::fail("no such instance");
    }
  };
  with_cache(k_scale, [&](auto element) {
    with_head_dim(head_dim,
                  [&](auto dim) { launch({blocks}, blink::kAttentionThreads, [&] { kernel(dim, element); }, kGrid); });
  });
}
}
