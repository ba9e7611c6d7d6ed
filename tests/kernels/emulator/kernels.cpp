/* The CUDA kernels behind the C interface of the twins (kernels/ops/twins.cpp), launched as kernels/README.md
 * says, on the emulator. Arrays of halves are bfloat16. */
#define BLINK_PTX "emulated_ptx.h"
#include "cuda.h"

#include "kernels/decoder/decoder.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/expert_one.h"
#include "kernels/ops/expert_plan.h"
#include "kernels/ops/expert_sum.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/experts_tiled.h"
#include "kernels/ops/gate.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/linear_held.h"
#include "kernels/ops/linear_stream.h"
#include "kernels/ops/linear_tiled.h"
#include "kernels/ops/linear_wide.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/route.h"
#include "kernels/ops/router.h"
#include "kernels/ops/sample.h"

using Half = __nv_bfloat16;
using blink_set = struct blink_step_set;

/* Calls body(constant) with the template argument that `value` names. */
template <int First, int... Rest, typename Body>
void with_constant(uint32_t value, const Body& body) {
  if (value == First) {
    body(std::integral_constant<int, First>());
  } else if constexpr (sizeof...(Rest) > 0) {
    with_constant<Rest...>(value, body);
  } else {
    emulator::fail("no such instance");
  }
}

template <typename Body>
void with_head_dim(uint32_t head_dim, const Body& body) {
  with_constant<16, 48, 64, 128>(head_dim, body);
}

using emulator::after;
constexpr uint64_t kHalf = sizeof(Half), kFloat = sizeof(float);

extern "C" {

void emulate_gate(const blink_set* set, const struct blink_tables* tables) {
  launch({1}, 1, [&] {
    blink::gate_kernel(*set, *tables);
    emulator::block->has_waited = true; /* it starts when the kernel before has ended */
  });
}

void emulate_embed(const blink_set* set, const struct blink_tables* tables, const Half* table, float* residual,
                   uint32_t hidden, uint32_t tokens) {
  launch({tokens}, 64, [&] { blink::embed_kernel(*set, *tables, table, residual, hidden); });
}

void emulate_rmsnorm(const float* residual, const Half* weight, float eps, Half* out, uint32_t hidden,
                     uint32_t tokens) {
  after(residual, kFloat * tokens * hidden);
  launch({tokens}, 96, [&] { blink::rmsnorm_kernel(residual, weight, eps, out, hidden); });
}

void emulate_gather_rmsnorm(const blink_set* set, const float* residual, const Half* weight, float eps, Half* out,
                            uint32_t hidden, uint32_t lanes) {
  launch({lanes}, 64, [&] { blink::gather_rmsnorm_kernel(*set, residual, weight, eps, out, hidden); });
}

void emulate_gather_last(const blink_set* set, const float* residual, const Half* attention, float* last_residual,
                         Half* last_attention, uint32_t hidden, uint32_t width, uint32_t lanes) {
  launch({lanes}, 64,
         [&] { blink::gather_last_kernel(*set, residual, attention, last_residual, last_attention, hidden, width); });
}

void emulate_linear_stream(const Half* w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out,
                           uint32_t output, uint32_t groups, uint32_t blocks) {
  using namespace blink;
  after(x, kHalf * m * n_in);
  with_constant<kStreamHalf, kStreamFloat, kStreamAdd, kStreamSilu>(output, [&](auto kind) {
    with_constant<1, 2>(groups, [&](auto n_groups) {
      launch({blocks}, kStreamThreads,
             [&] { linear_stream_kernel<Half, kind(), n_groups()>(w, x, y, m, n_in, n_out); });
    });
  });
}

/* With `w_router`, the sums of a router. */
void emulate_linear_held(const Half* w, const void* x, const Half* norm, float eps, void* y, uint32_t m, uint32_t n_in,
                         uint32_t n_out, uint32_t blocks, const Half* router_norm, const Half* w_router, int64_t* sums,
                         uint32_t n_experts) {
  using namespace blink;
  const RouterPart router = {router_norm, w_router, sums, n_experts};
  after(x, (norm ? kFloat : kHalf) * m * n_in);
  if (!norm) after(y, kFloat * m * n_out);
  if (w_router) after(sums, sizeof(int64_t) * kSumPlaces * n_experts);
  with_constant<1, 2, 4, 8>(n_in / (2 * kStreamWarps * kStreamChunk), [&](auto chunks) {
    launch({blocks}, kStreamThreads, [&] {
      if (norm)
        linear_held_kernel<Half, kStreamHalf, chunks(), true>(w, x, norm, eps, y, m, n_out, router);
      else
        linear_held_kernel<Half, kStreamAdd, chunks(), false>(w, x, norm, eps, y, m, n_out, router);
    });
  });
}

void emulate_linear_wide(const blink::BoxMap* w, const blink::BoxMap* x, void* y, const blink::WideCut* cut,
                         const blink::WideNorm* norm, uint32_t output, uint32_t columns, uint32_t tiles,
                         uint32_t splits, uint32_t clusters, uint32_t threads, uint32_t shared_bytes) {
  using namespace blink;
  emulator::dynamic_bytes = shared_bytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * x->shape[2] * x->shape[3]);
  after(norm->sums_in, kFloat * norm->n_sums * columns);
  with_constant<kStreamHalf, kStreamFloat, kStreamAdd, kStreamSilu>(output, [&](auto kind) {
    with_constant<16, 32, 64>(columns, [&](auto n_columns) {
      with_constant<1, 2, 3, 4>(tiles, [&](auto n_tiles) {
        with_constant<1, 2, 4, 8>(splits, [&](auto n_splits) {
          constexpr bool is_usual =
              n_tiles() <= 2 || (n_columns() == 64 && n_splits() == 1); /* others take long to compile */
          if constexpr (is_usual && kWideFits<kind(), n_columns(), n_tiles()>)
            launch(
                {splits, clusters}, threads,
                [&] { linear_wide_kernel<Half, kind(), n_columns(), n_tiles(), n_splits()>(*w, *x, y, *cut, *norm); },
                kClusters);
          else
            emulator::fail("a wide product that the engine has no instance of");
        });
      });
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

void emulate_linear_tiled(const blink::BoxMap* w, const blink::BoxMap* x, const blink::BoxMap* y,
                          const blink::TiledCut* cut, uint32_t output, uint32_t pairs) {
  using namespace blink;
  emulator::dynamic_bytes = kTiledSharedBytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * cut->m * cut->n_in);
  with_constant<kStreamAdd, kStreamSilu>(output, [&](auto kind) {
    if (kind() == kStreamAdd) after(reinterpret_cast<const void*>(y->data), kFloat * y->shape[2] * y->shape[3]);
    const auto kernel = [&] { linear_tiled_kernel<Half, kind()>(*w, *x, *y, *cut); };
    launch({2 * pairs}, kTiledThreads, kernel, kPairs);
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

void emulate_silu_mul(const Half* gate_up, Half* out, uint32_t intermediate, uint32_t tokens) {
  after(gate_up, kHalf * 2 * tokens * intermediate);
  launch({tokens, (intermediate + 255) / 256}, 32, [&] { blink::silu_mul_kernel(gate_up, out, intermediate); });
}

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

/* From now on; kAny is all, 1 round as fast as any other. */
void emulate_slow(uint32_t block, uint32_t warp, uint32_t rounds) {
  emulator::slow = {block, warp, rounds};
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

void emulate_decoder(const blink_set* set, const struct blink_tables* tables, const struct blink_decoder_model* model,
                     const struct blink_decoder_buffers* buffers, uint32_t head_dim, uint32_t group, uint32_t blocks) {
  with_constant<64, 128>(head_dim, [&](auto dim) {
    with_constant<1, 2, 4>(group, [&](auto members) {
      const auto kernel = [&] { blink::decoder_kernel<Half, dim(), members()>(*set, *tables, *model, *buffers); };
      launch({blocks}, blink::kDecoderBlock, kernel, kGrid);
    });
  });
}

void emulate_attention_prefill(const blink_set* set, const struct blink_tables* tables, const Half* qkv,
                               const Half* k_cache, const Half* v_cache, Half* out, uint32_t n_heads,
                               uint32_t n_kv_heads, uint32_t head_dim, uint32_t tokens) {
  const uint32_t tiles = (tokens + blink::kPrefillQueries - 1) / blink::kPrefillQueries;
  after(qkv, kHalf * tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  with_head_dim(head_dim, [&](auto dim) {
    launch({tiles, n_heads}, blink::kPrefillThreads, [&] {
      blink::attention_prefill_kernel<Half, dim()>(*set, *tables, qkv, k_cache, v_cache, out, n_heads, n_kv_heads,
                                                   tokens);
    });
  });
}

void emulate_prefill_plan(const blink_set* set, blink::PrefillUnit* plan, uint32_t unit_tokens) {
  launch({1}, blink::kPrefillPlanThreads, [&] { blink::prefill_plan_kernel(*set, plan, unit_tokens); });
}

void emulate_attention_flash(const struct blink_tables* tables, const Half* qkv, const Half* cache, Half* out,
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
      attention_flash_kernel<Half, dim()>(maps[0], maps[1], *tables, plan, out, 0, cells * n_kv_heads / 8, n_heads,
                                          n_kv_heads, pack, after_decode);
    });
  });
}

void emulate_route(const blink_set* set, const float* logits, uint32_t* choice, float* weight, uint32_t n_experts,
                   uint32_t per_token, uint32_t renormalise, uint32_t tokens) {
  const uint32_t warps = blink::kRouteWarps;
  after(logits, kFloat * tokens * n_experts);
  launch({(tokens + warps - 1) / warps}, 32 * warps,
         [&] { blink::route_kernel(*set, logits, choice, weight, tokens, n_experts, per_token, renormalise); });
}

void emulate_router(const blink_set* set, const float* residual, const Half* norm, float eps, const Half* w,
                    Half* normed, float* logits, uint32_t* choice, float* weight, uint32_t tokens, uint32_t hidden,
                    uint32_t n_experts, uint32_t per_token, uint32_t renormalise) {
  const uint32_t tiles = (n_experts + blink::kRouterExperts - 1) / blink::kRouterExperts;
  const uint32_t groups = (tokens + blink::kRouterTokens - 1) / blink::kRouterTokens;
  std::vector<uint32_t> arrivals(groups);
  for (int twice = 0; twice < 2; ++twice) { /* the counters are zero again */
    after(residual, kFloat * tokens * hidden);
    launch({tiles, groups}, blink::kRouterThreads, [&] {
      blink::router_kernel(*set, residual, norm, eps, w, normed, logits, choice, weight, arrivals.data(), tokens,
                           hidden, n_experts, per_token, renormalise);
    });
  }
}

void emulate_expert_plan(const uint32_t* choice, blink::ExpertUnit* plan, uint32_t* pairs, uint32_t tokens,
                         uint32_t n_experts, uint32_t per_token, uint32_t unit_tokens) {
  after(choice, sizeof(uint32_t) * tokens * per_token);
  launch({(tokens + blink::kPlanTokens - 1) / blink::kPlanTokens}, blink::kPlanThreads,
         [&] { blink::expert_plan_kernel(choice, plan, pairs, tokens, n_experts, per_token, unit_tokens); });
}

/* Both products; `product` lies between them. */
void emulate_experts_stream(uint32_t* token_row, const float* logits, uint32_t* choice, float* weight,
                            const Half* gate_up, const Half* down, const Half* x, Half* product, Half* rows,
                            uint32_t tokens, uint32_t n_experts, uint32_t hidden, uint32_t intermediate,
                            uint32_t per_token, uint32_t blocks) {
  using namespace blink;
  blink_set set = {};
  set.token_row = token_row;
  const Routing routing = {set, logits, choice, weight, n_experts, 1};
  after(x, kHalf * tokens * hidden);
  after(logits, kFloat * tokens * n_experts);
  launch({blocks}, kExpertThreads, [&] {
    if (tokens <= kFewTokens)
      expert_stream_kernel<Half, kGateUp, kOfFew>(routing, gate_up, x, product, tokens, hidden, intermediate,
                                                  per_token);
    else
      expert_stream_kernel<Half, kGateUp, kMade>(routing, gate_up, x, product, tokens, hidden, intermediate, per_token);
  });
  after(product, kHalf * tokens * per_token * intermediate);
  launch({blocks}, kExpertThreads, [&] {
    expert_stream_kernel<Half, kDown, kMade>(routing, down, product, rows, tokens, intermediate, hidden, per_token);
  });
}

/* The same of one token, from a router's sums to the residual. */
void emulate_experts_one(uint32_t* token_row, int64_t* sums, uint32_t* choice, float* weight, const Half* norm,
                         float eps, const Half* gate_up, const Half* down, Half* product, float* residual,
                         uint32_t n_experts, uint32_t hidden, uint32_t intermediate, uint32_t per_token,
                         uint32_t renormalise, uint32_t blocks) {
  using namespace blink;
  blink_set set = {};
  set.token_row = token_row;
  const OneRouting routing = {set, sums, choice, weight, n_experts, renormalise};
  const uint32_t n_sums = kSumPlaces * n_experts;
  after(residual, kFloat * hidden);
  after(sums, sizeof(int64_t) * n_sums);
  launch({blocks}, kStreamThreads, [&] {
    expert_one_gate_up_kernel<Half>(routing, residual, norm, eps, gate_up, product, hidden, intermediate, per_token);
  });
  after(product, kHalf * per_token * intermediate);
  after(residual, kFloat * hidden);
  after(sums, sizeof(int64_t) * n_sums);
  launch({blocks}, kStreamThreads, [&] {
    expert_one_down_kernel<Half>(choice, weight, sums, n_sums, down, product, residual, intermediate, hidden,
                                 per_token);
  });
}

/* The same for many tokens, by a plan. */
void emulate_experts_tiled(const blink::ExpertUnit* plan, const uint32_t* pairs, const Half* gate_up, const Half* down,
                           const Half* x, Half* product, Half* rows, uint32_t tokens, uint32_t hidden,
                           uint32_t intermediate, uint32_t per_token, uint32_t blocks) {
  using namespace blink;
  const auto bits = [](const Half* p) { return reinterpret_cast<const uint16_t*>(p); };
  const TensorMap gate_up_map = {bits(gate_up), intermediate, hidden, kTileWeights / 2, kTileK};
  const TensorMap down_map = {bits(down), hidden, intermediate, kTileWeights, kTileK};
  emulator::dynamic_bytes = kTileSharedBytes;
  after(x, kHalf * tokens * hidden);
  launch({blocks}, kTileThreads, [&] {
    expert_tiled_kernel<Half, kGateUp>(plan, pairs, gate_up_map, x, product, hidden, intermediate, per_token);
  });
  after(product, kHalf * tokens * per_token * intermediate);
  launch({blocks}, kTileThreads, [&] {
    expert_tiled_kernel<Half, kDown>(plan, pairs, down_map, product, rows, intermediate, hidden, per_token);
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

void emulate_expert_sum_rmsnorm(const Half* rows, const uint32_t* choice, const float* weight, float* residual,
                                const Half* norm, float eps, Half* out, uint32_t hidden, uint32_t per_token,
                                uint32_t tokens) {
  after(rows, kHalf * tokens * per_token * hidden);
  launch({tokens}, 64,
         [&] { blink::expert_sum_rmsnorm_kernel(rows, choice, weight, residual, norm, eps, out, hidden, per_token); });
}

void emulate_expert_sum(const Half* rows, const uint32_t* choice, const float* weight, float* residual, uint32_t hidden,
                        uint32_t per_token, uint32_t tokens) {
  after(rows, kHalf * tokens * per_token * hidden);
  launch({tokens}, 64, [&] { blink::expert_sum_kernel(rows, choice, weight, residual, hidden, per_token); });
}

void emulate_sample(const blink_set* set, const struct blink_tables* tables, float* logits, uint32_t lanes,
                    uint32_t blocks) {
  after(logits, kFloat * set->head->n_lanes * tables->vocab_size);
  launch({blocks, lanes}, blink::kSampleThreads, [&] { blink::sample_kernel(*set, *tables, logits); }, kClusters);
}
}
