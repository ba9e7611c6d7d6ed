/* The products of experts, but for those of gated.cpp, and their sums. */
#include "kernels.h"
#include "weights.h"

#include "kernels/ops/moe/single_token_codes.h"
#include "kernels/ops/moe/single_token_down.h"
#include "kernels/ops/moe/combine.h"
#include "kernels/ops/moe/grouped_codes_gemm_sm90.h"
#include "kernels/ops/moe/grouped_fp8_gemm_sm90.h"

extern "C" {

/* Both products of one token, from a router's sums to the residual. Weights are halves, or narrow with scales of
 * `form`; `product` lies between them. Biases are those of the router, of gate_up and of down, or all null. */
void emulate_moe_single_token(uint32_t* token_sequence, int64_t* sums, uint32_t* topk_ids, float* weight,
                              const Half* norm, float eps, const void* gate_up, const void* gate_up_scales,
                              const void* down, const void* down_scales, const Half* router_bias,
                              const Half* gate_up_bias, const Half* down_bias, Half* product, float* residual,
                              uint32_t n_experts, uint32_t hidden, uint32_t intermediate, uint32_t per_token,
                              uint32_t renormalise, uint32_t form, uint32_t blocks) {
  using namespace blink;
  blink_set set = {};
  set.token_sequence = token_sequence;
  const SingleTokenRouting routing = {set, sums, topk_ids, weight, n_experts, renormalise};
  const uint32_t n_sums = kSumPlaces * n_experts;
  with_form(form, [&](auto of) {
    const auto w = weights_of<of()>(gate_up, gate_up_scales, form), w_down = weights_of<of()>(down, down_scales, form);
    after(residual, kFloat * hidden);
    after(sums, sizeof(int64_t) * n_sums);
    const auto run = [&](auto gate_up_kernel, auto down_kernel, uint32_t gate_up_bytes, uint32_t down_bytes) {
      emulator::dynamic_bytes = gate_up_bytes;
      launch({blocks}, kGemvThreads, [&] {
        gate_up_kernel(routing, residual, norm, eps, w, product, hidden, intermediate, per_token, router_bias,
                       gate_up_bias);
      });
      after(product, kHalf * per_token * intermediate);
      after(residual, kFloat * hidden);
      after(sums, sizeof(int64_t) * n_sums);
      emulator::dynamic_bytes = down_bytes;
      launch({blocks}, kGemvThreads, [&] {
        down_kernel(topk_ids, weight, sums, n_sums, w_down, product, residual, intermediate, hidden, per_token,
                    down_bias);
      });
    };
    const uint32_t x_bytes = kHalf * hidden, product_bytes = of() == kUnscaled ? 0 : kHalf * per_token * intermediate;
    if (!router_bias)
      run(moe_single_token_gate_up_kernel<Half, of()>, moe_single_token_down_kernel<Half, of()>, x_bytes,
          product_bytes);
    else if constexpr (of() == kUnscaled)
      run(moe_single_token_gate_up_kernel<Half, of(), true>, moe_single_token_down_kernel<Half, of(), true>, x_bytes,
          product_bytes);
    else if constexpr (kIsCodes<of()>)
      run(moe_single_codes_gate_up_kernel<Half, of()>, moe_single_codes_down_kernel<Half, of()>,
          kExpertRingBytes + x_bytes, kFewDownBytes);
    else
      emulator::fail("no such instance");
    emulator::dynamic_bytes = emulator::kMostBytes;
  });
}

/* Both products of many tokens by a plan, with weights in codes of four bits; `product` lies between them. `bias`: of
 * gate_up, or null. */
void emulate_moe_grouped_codes_gemm(const blink::ExpertUnit* plan, const uint32_t* pairs, const uint8_t* gate_up,
                                    const void* gate_up_scales, const uint8_t* down, const void* down_scales,
                                    const Half* bias, const Half* x, Half* product, Half* rows, uint32_t tokens,
                                    uint32_t hidden, uint32_t intermediate, uint32_t per_token, uint32_t form,
                                    uint32_t blocks) {
  using namespace blink;
  const auto words = [](const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); };
  constexpr uint32_t kBox = kGroupedCodesK / 4;
  const TensorMap gate_up_map = {words(gate_up), intermediate, hidden / 4, kGroupedWeights / 2, kBox};
  const TensorMap down_map = {words(down), hidden, intermediate / 4, kGroupedWeights, kBox};
  emulator::dynamic_bytes = kGroupedCodesSharedBytes;
  with_constant<kInt4ByGroup, kFp4By32, kFp4By16>(form & ((1u << kFormBits) - 1), [&](auto of) {
    constexpr ScaleForm kForm = ScaleForm(of());
    after(x, kHalf * tokens * hidden);
    launch({blocks}, kGroupedThreads, [&] {
      const auto kernel = bias ? moe_grouped_codes_gemm_kernel<Half, kGateUp, kForm, true>
                               : moe_grouped_codes_gemm_kernel<Half, kGateUp, kForm>;
      kernel(plan, pairs, gate_up_map, weights_of<kForm>(gate_up, gate_up_scales, form), x, product, hidden,
             intermediate, per_token, bias);
    });
    after(product, kHalf * tokens * per_token * intermediate);
    launch({blocks}, kGroupedThreads, [&] {
      moe_grouped_codes_gemm_kernel<Half, kDown, kForm>(plan, pairs, down_map,
                                                        weights_of<kForm>(down, down_scales, form), product, rows,
                                                        intermediate, hidden, per_token, nullptr);
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

/* One of both, of fp8 with fp8. `out`: halves of down, or the quantised product and its scales [][pairs]. */
void emulate_moe_grouped_fp8_gemm(const blink::ExpertUnit* plan, const uint32_t* pairs, const uint8_t* w,
                                  const float* w_scales, const uint8_t* x, const float* x_scales, uint32_t x_stride,
                                  void* out, float* out_scales, uint32_t n_pairs, uint32_t x_rows, uint32_t n_in,
                                  uint32_t n_out, uint32_t per_token, uint32_t down, uint32_t form, uint32_t blocks) {
  using namespace blink;
  const uint32_t rows = down ? kGroupedWeights : kGroupedWeights / 2;
  const TensorMap map = {reinterpret_cast<const uint16_t*>(w), n_out, n_in / 2, rows, kGroupedFp8K / 2};
  const GroupedFp8Input input = {x, x_scales, x_stride};
  const QuantizedProduct<kGroupedFp8Unit> product = {static_cast<uint8_t*>(out), out_scales, n_pairs};
  emulator::dynamic_bytes = kGroupedFp8SharedBytes;
  after(x, uint64_t(x_rows) * n_in);
  after(x_scales, kFloat * x_stride * (down || form == kScaleByBlock ? (n_in + kScaleBlock - 1) / kScaleBlock : 1));
  with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto scale) {
    constexpr ScaleForm kForm = ScaleForm(scale());
    launch({blocks}, kGroupedThreads, [&] {
      if (down)
        moe_grouped_fp8_gemm_kernel<Half, kDown, kForm>(plan, pairs, map, w_scales, input, static_cast<Half*>(out),
                                                        n_in, n_out, per_token);
      else
        moe_grouped_fp8_gemm_kernel<Half, kGateUp, kForm>(plan, pairs, map, w_scales, input, product, n_in, n_out,
                                                          per_token);
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

/* `bias` of down, or null; `adds` only beside one. */
void emulate_moe_combine_rmsnorm(const Half* rows, const uint32_t* topk_ids, const float* weight, const Half* bias,
                                 float* residual, const Half* norm, float eps, Half* out, const Half* adds,
                                 uint32_t hidden, uint32_t per_token, uint32_t tokens) {
  after(rows, kHalf * tokens * per_token * hidden);
  launch({tokens}, 64, [&] {
    const auto kernel = bias ? blink::moe_combine_rmsnorm_kernel<Half, true> : blink::moe_combine_rmsnorm_kernel<Half>;
    kernel(rows, topk_ids, weight, residual, norm, eps, out, hidden, per_token, bias, adds);
  });
}

void emulate_moe_combine(const Half* rows, const uint32_t* topk_ids, const float* weight, const Half* bias,
                         float* residual, uint32_t hidden, uint32_t per_token, uint32_t tokens) {
  after(rows, kHalf * tokens * per_token * hidden);
  launch({tokens}, 64, [&] {
    const auto kernel = bias ? blink::moe_combine_kernel<Half, true> : blink::moe_combine_kernel<Half>;
    kernel(rows, topk_ids, weight, residual, hidden, per_token, bias);
  });
}
}
