/* The ops' CPU references behind a C interface, one whole step at a time, so that tests can compare each with a
 * reference. */
#include <vector>

#include "kernels/ops/activation.h"
#include "kernels/ops/add_norm.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/moe/expert_plan.h"
#include "kernels/ops/moe/combine.h"
#include "kernels/ops/moe/expert_gemv.h"
#include "kernels/ops/gather.h"
#include "matmul.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/attention/rope.h"
#include "kernels/ops/moe/routing.h"
#include "kernels/ops/sampling/sample.h"

extern "C" {

void blink_reference_embed(const struct blink_step_set* set, const struct blink_tables* tables, const float* table,
                           float* residual, uint32_t hidden, float scale, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i) blink::embed(*set, *tables, table, residual, hidden, scale, i);
}

void blink_reference_residual_rmsnorm(float* residual, const float* delta, const float* weight, float eps, float* out,
                                      uint32_t hidden, uint32_t tokens) {
  for (uint64_t t = 0; t < uint64_t(tokens) * hidden; t += hidden)
    blink::residual_rmsnorm(residual + t, delta + t, weight, eps, out + t, hidden);
}

void blink_reference_add_rmsnorm(float* residual, const float* x, const float* weight, const float* next, float eps,
                                 float* out, uint32_t hidden, uint32_t tokens) {
  for (uint64_t t = 0; t < uint64_t(tokens) * hidden; t += hidden)
    blink::add_rmsnorm(residual + t, x + t, weight, next, eps, out + t, hidden);
}

void blink_reference_gather_rmsnorm(const struct blink_step_set* set, float* residual, const float* delta,
                                    const float* weight, float eps, float* out, uint32_t hidden) {
  for (uint32_t batch_slot = 0; batch_slot < set->head->batch_size; ++batch_slot)
    blink::gather_rmsnorm(*set, residual, delta, weight, eps, out, hidden, batch_slot);
}

void blink_reference_gated(const float* gate_up, float* out, uint32_t intermediate, uint32_t tokens,
                           uint32_t activation) {
  for (uint64_t i = 0; i < tokens; ++i)
    blink::gated_row(blink::Activation(activation), gate_up + i * 2 * intermediate, out + i * intermediate,
                     intermediate);
}

void blink_reference_rope(const struct blink_step_set* set, const struct blink_tables* tables, float* qkv,
                          const float* bias, const float* q_norm, const float* k_norm, float eps,
                          const blink::RopePair* table, float* k_cache, float* v_cache, float k_scale, float v_scale,
                          uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t tokens, float growth_beta,
                          uint32_t growth_context) {
  for (uint32_t i = 0; i < tokens; ++i)
    for (uint32_t head = 0; head < n_heads + 2 * n_kv_heads; ++head)
      blink::rope(*set, *tables, qkv, bias, q_norm, k_norm, eps, table, k_cache, v_cache, k_scale, v_scale, n_heads,
                  n_kv_heads, head_dim, i, head, {growth_beta, growth_context});
}

void blink_reference_attention(const struct blink_step_set* set, const struct blink_tables* tables, const float* qkv,
                               const float* k_cache, const float* v_cache, float* out, uint32_t n_heads,
                               uint32_t n_kv_heads, uint32_t head_dim, uint32_t window, const float* sinks,
                               uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i)
    for (uint32_t head = 0; head < n_heads; ++head)
      blink::attention(*set, *tables, qkv, k_cache, v_cache, out, n_heads, n_kv_heads, head_dim, window, sinks, i,
                       head);
}

void blink_reference_linear(const float* x, const float* w, float* y, uint32_t rows, uint32_t in, uint32_t out) {
  blink::linear(x, w, y, rows, in, out, 0, out);
}

void blink_reference_route(const struct blink_step_set* set, const float* logits, uint32_t* topk_ids, float* weight,
                           uint32_t n_experts, uint32_t per_token, uint32_t renormalise, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i)
    blink::route(*set, logits, topk_ids, weight, n_experts, per_token, renormalise, i);
}

void blink_reference_expert_plan(const uint32_t* topk_ids, blink::ExpertUnit* plan, uint32_t* pairs, uint32_t tokens,
                                 uint32_t n_experts, uint32_t per_token, uint32_t unit_tokens) {
  blink::plan_experts(topk_ids, plan, pairs, tokens, n_experts, per_token, unit_tokens);
}

/* rows [tokens][per_token][hidden] of the pairs that exist. */
void blink_reference_experts(const uint32_t* topk_ids, const float* gate_up, const float* gate_up_bias,
                             const float* down, const float* x, float* rows, uint32_t hidden, uint32_t intermediate,
                             uint32_t per_token, uint32_t tokens, uint32_t activation) {
  std::vector<float> scratch(3 * intermediate);
  const uint64_t size = uint64_t(hidden) * intermediate;
  for (uint64_t p = 0; p < uint64_t(tokens) * per_token; ++p)
    if (topk_ids[p] != blink::kNoExpert)
      blink::expert_mlp(x + p / per_token * hidden, gate_up + topk_ids[p] * 2 * size,
                        gate_up_bias ? gate_up_bias + topk_ids[p] * 2 * intermediate : nullptr,
                        down + topk_ids[p] * size, scratch.data(), scratch.data() + 2 * intermediate, rows + p * hidden,
                        hidden, intermediate, blink::Activation(activation));
}

void blink_reference_moe_combine(const float* rows, const uint32_t* topk_ids, const float* weight, const float* bias,
                                 float* delta, uint32_t hidden, uint32_t per_token, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i) blink::moe_combine(rows, topk_ids, weight, bias, delta, hidden, per_token, i);
}

/* As sample_kernel but for the completion: tokens into out_token and history. */
void blink_reference_sample(const struct blink_step_set* set, const struct blink_tables* tables, float* logits) {
  for (uint32_t batch_slot = 0; batch_slot < set->head->batch_size; ++batch_slot)
    if (set->batch_emit[batch_slot])
      blink::sample_slot(*set, *tables, logits + uint64_t(batch_slot) * tables->vocab_size, batch_slot);
}
}
