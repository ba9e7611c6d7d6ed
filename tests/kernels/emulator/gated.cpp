/* The kernels that end in the activation of a model, for the usual one and for others: of those, only what the
 * activation makes another is compiled. */
#include "kernels.h"
#include "weights.h"

#include "kernels/ops/activation.h"
#include "kernels/ops/gemm/code_gemv_sm90.h"
#include "kernels/ops/gemm/gemv.h"
#include "kernels/ops/gemm/tiled_gemm_sm90.h"
#include "kernels/ops/moe/expert_gemv.h"
#include "kernels/ops/moe/grouped_gemm_sm90.h"

constexpr bool kIsUsual = blink::kActivation == BLINK_SILU;

/* Calls body(constant) with the output of a matmul that `value` names. */
template <typename Body>
void with_output(uint32_t value, const Body& body) {
  using namespace blink;
  if constexpr (kIsUsual)
    with_constant<kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu>(value, body);
  else
    with_constant<kEpilogueSilu>(value, body);
}

/* The same with the form of weights. */
template <typename Body>
void with_weights(uint32_t value, const Body& body) {
  if constexpr (kIsUsual)
    with_form(value, body);
  else if (value == blink::kUnscaled)
    body(std::integral_constant<blink::ScaleForm, blink::kUnscaled>());
  else
    emulator::fail("no such instance");
}

extern "C" {

/* Weights are halves, or narrow with scales of `form`. */
void emulate_gemv(const void* w, const void* scales, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out,
                  uint32_t output, uint32_t groups, uint32_t form, uint32_t blocks) {
  using namespace blink;
  after(x, kHalf * m * n_in);
  with_weights(form, [&](auto of) {
    const auto matrix = weights_of<of()>(w, scales, form);
    with_output(output, [&](auto kind) {
      with_constant<1, 2>(groups, [&](auto n_groups) {
        const uint32_t stages = (n_in + kCodeGemvColumns - 1) / kCodeGemvColumns;
        if (kIsCodes<of()>)
          emulator::dynamic_bytes =
              of() == kInt4ByGroup ? kCodeGemvIntegerBytes + stages * kCodeChunks * kCodeGemvSumBytes : kCodeGemvBytes;
        launch({blocks}, kGemvThreads, [&] {
          if constexpr (!kIsCodes<of()>)
            gemv_kernel<Half, kind(), n_groups(), of()>(matrix, x, y, m, n_in, n_out);
          else if (n_in <= kCodeGemvHeldStages * kCodeGemvColumns)
            code_gemv_kernel<Half, kind(), true, of()>(matrix, x, y, m, n_in, n_out);
          else
            code_gemv_kernel<Half, kind(), false, of()>(matrix, x, y, m, n_in, n_out);
        });
        emulator::dynamic_bytes = emulator::kMostBytes;
      });
    });
  });
}

void emulate_tiled_gemm(const blink::BoxMap* w, const blink::BoxMap* x, const blink::BoxMap* y,
                        const blink::TiledParams* cut, uint32_t output, uint32_t pairs) {
  using namespace blink;
  emulator::dynamic_bytes = kTiledSharedBytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * cut->m * cut->n_in);
  with_constant<kEpilogueAdd, kEpilogueSilu>(output, [&](auto kind) {
    if (kind() == kEpilogueAdd) after(reinterpret_cast<const void*>(y->data), kFloat * y->shape[2] * y->shape[3]);
    const auto kernel = [&] { tiled_gemm_kernel<Half, kind()>(*w, *x, *y, *cut); };
    launch({2 * pairs}, kTiledThreads, kernel, kPairs);
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

/* Both products of experts; `product` lies between them. Weights are halves, or fp8 with scales of `form`. `bias`: of
 * gate_up, or null; here and below. */
void emulate_moe_gemv(uint32_t* token_sequence, const float* logits, uint32_t* topk_ids, float* weight,
                      const void* gate_up, const void* gate_up_scales, const void* down, const void* down_scales,
                      const Half* bias, const Half* x, Half* product, Half* rows, uint32_t tokens, uint32_t n_experts,
                      uint32_t hidden, uint32_t intermediate, uint32_t per_token, uint32_t form, uint32_t blocks) {
  using namespace blink;
  blink_set set = {};
  set.token_sequence = token_sequence;
  const Routing routing = {set, logits, topk_ids, weight, n_experts, 1};
  with_weights(form, [&](auto of) {
    const auto w = weights_of<of()>(gate_up, gate_up_scales, form), w_down = weights_of<of()>(down, down_scales, form);
    emulator::dynamic_bytes = of() == kUnscaled ? 0 : kExpertRingBytes;
    after(logits, kFloat * tokens * n_experts);
    std::vector<ExpertInput<Half, kGateUp, of()>> converted(tokens * hidden);
    for (uint32_t i = 0; i < tokens * hidden; ++i) from_float(to_float(x[i]), &converted[i]);
    const auto* input = converted.data();
    after(input, kHalf * tokens * hidden);
    const auto gate_up_kernel = [&](auto source) {
      const auto run = [&](auto kernel) {
        kernel(routing, w, input, product, tokens, hidden, intermediate, per_token, bias);
      };
      if (!bias)
        run(moe_gemv_kernel<Half, kGateUp, RoutingSource(source()), of()>);
      else if constexpr (!kIsFp8<of()>)
        run(moe_gemv_kernel<Half, kGateUp, RoutingSource(source()), of(), true>);
      else
        emulator::fail("no such instance");
    };
    launch({blocks}, kExpertThreads, [&] {
      with_constant<kRoutingGiven, kRoutingFused>(tokens <= kFewTokens ? kRoutingFused : kRoutingGiven, gate_up_kernel);
    });
    after(product, kHalf * tokens * per_token * intermediate);
    const bool is_long = kIsCodes<of()> && intermediate > (kLongDownChunks - 1) * kChunkWeights<of()>;
    with_constant<kDown, kLongDown>(is_long ? kLongDown : kDown, [&](auto matmul) {
      constexpr auto kernel = moe_gemv_kernel<Half, ExpertMatmul(matmul()), kRoutingGiven, of()>;
      const auto run = [&] {
        kernel(routing, w_down, product, rows, tokens, intermediate, hidden, per_token, nullptr);
      };
      launch({blocks}, kExpertThreads, run);
    });
    emulator::dynamic_bytes = emulator::kMostBytes;
  });
}

/* Both products of experts for many tokens, by a plan. */
void emulate_moe_grouped_gemm(const blink::ExpertUnit* plan, const uint32_t* pairs, const Half* gate_up,
                              const Half* down, const Half* bias, const Half* x, Half* product, Half* rows,
                              uint32_t tokens, uint32_t hidden, uint32_t intermediate, uint32_t per_token,
                              uint32_t blocks) {
  using namespace blink;
  const auto bits = [](const Half* p) { return reinterpret_cast<const uint16_t*>(p); };
  const TensorMap gate_up_map = {bits(gate_up), intermediate, hidden, kGroupedWeights / 2, kGroupedK};
  const TensorMap down_map = {bits(down), hidden, intermediate, kGroupedWeights, kGroupedK};
  emulator::dynamic_bytes = kGroupedSharedBytes;
  after(x, kHalf * tokens * hidden);
  launch({blocks}, kGroupedThreads, [&] {
    const auto kernel = bias ? moe_grouped_gemm_kernel<Half, kGateUp, true> : moe_grouped_gemm_kernel<Half, kGateUp>;
    kernel(plan, pairs, gate_up_map, x, product, hidden, intermediate, per_token, bias);
  });
  after(product, kHalf * tokens * per_token * intermediate);
  launch({blocks}, kGroupedThreads, [&] {
    moe_grouped_gemm_kernel<Half, kDown>(plan, pairs, down_map, product, rows, intermediate, hidden, per_token,
                                         nullptr);
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

void emulate_silu_mul(const Half* gate_up, Half* out, uint32_t intermediate, uint32_t tokens) {
  after(gate_up, kHalf * 2 * tokens * intermediate);
  launch({tokens, (intermediate + 255) / 256}, 32, [&] { blink::silu_mul_kernel(gate_up, out, intermediate); });
}
}
