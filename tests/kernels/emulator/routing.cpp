/* The choice of experts, and the plan of who computes what. */
#include "kernels.h"

#include "kernels/ops/moe/expert_plan.h"
#include "kernels/ops/moe/routing.h"
#include "kernels/ops/moe/router.h"

extern "C" {

/* `bias` is null if the router has none, here and below. */
void emulate_route(const blink_set* set, const float* logits, const Half* bias, uint32_t* topk_ids, float* weight,
                   uint32_t n_experts, uint32_t per_token, uint32_t renormalise, uint32_t tokens) {
  const uint32_t warps = blink::kRouteWarps;
  after(logits, kFloat * tokens * n_experts);
  launch({(tokens + warps - 1) / warps}, 32 * warps, [&] {
    if (bias)
      blink::route_biased_kernel(*set, logits, bias, topk_ids, weight, tokens, n_experts, per_token, renormalise);
    else
      blink::route_kernel(*set, logits, topk_ids, weight, tokens, n_experts, per_token, renormalise);
  });
}

void emulate_router(const blink_set* set, const float* residual, const Half* norm, float eps, const Half* w,
                    const Half* bias, Half* normed, float* logits, uint32_t* topk_ids, float* weight, uint32_t tokens,
                    uint32_t hidden, uint32_t n_experts, uint32_t per_token, uint32_t renormalise) {
  const uint32_t tiles = (n_experts + blink::kRouterExperts - 1) / blink::kRouterExperts;
  const uint32_t groups = (tokens + blink::kRouterTokens - 1) / blink::kRouterTokens;
  std::vector<uint32_t> arrivals(groups);
  for (int twice = 0; twice < 2; ++twice) { /* the counters are zero again */
    after(residual, kFloat * tokens * hidden);
    launch({tiles, groups}, blink::kRouterThreads, [&] {
      const auto kernel = bias ? blink::router_kernel<Half, Half, true> : blink::router_kernel<Half, Half>;
      kernel(*set, residual, norm, eps, w, normed, logits, topk_ids, weight, arrivals.data(), tokens, hidden, n_experts,
             per_token, renormalise, bias);
    });
  }
}

void emulate_expert_plan(const uint32_t* topk_ids, blink::ExpertUnit* plan, uint32_t* pairs, uint32_t tokens,
                         uint32_t n_experts, uint32_t per_token, uint32_t unit_tokens) {
  after(topk_ids, sizeof(uint32_t) * tokens * per_token);
  launch({(tokens + blink::kPlanTokens - 1) / blink::kPlanTokens}, blink::kPlanThreads,
         [&] { blink::expert_plan_kernel(topk_ids, plan, pairs, tokens, n_experts, per_token, unit_tokens); });
}
}
