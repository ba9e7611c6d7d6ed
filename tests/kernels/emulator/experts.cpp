/* The products of experts, and their sums. */
#include "kernels.h"

#include "kernels/ops/expert_one.h"
#include "kernels/ops/expert_sum.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/experts_tiled.h"

extern "C" {

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
}
