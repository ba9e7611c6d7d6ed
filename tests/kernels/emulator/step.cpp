/* The kernels around a step's matrices, but for the activation: its gate, the embedding, the norms, the rows that are
 * gathered, and the quantisation of activations. */
#include "kernels.h"

#include "kernels/ops/add_norm.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/gate.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/norm_quantize.h"
#include "kernels/ops/quantize_weight.h"
#include "kernels/ops/page_copy.h"

extern "C" {

void emulate_gate(const blink_set* set, const struct blink_tables* tables) {
  launch({1}, 1, [&] {
    blink::gate_kernel(*set, *tables);
    emulator::block->has_waited = true; /* it starts when the kernel before has ended */
  });
}

void emulate_copy_pages(const blink_set* set, const struct blink_tables* tables, unsigned char* cache,
                        unsigned char* host, uint32_t total_pages, uint32_t parts, uint32_t part_bytes) {
  launch({blink::kCopyBlocks}, blink::kCopyThreads, [&] {
    blink::copy_pages_kernel(*set, *tables, cache, host, total_pages, parts, part_bytes);
    emulator::block->has_waited = true; /* it starts when the gate has ended */
  });
}

void emulate_embed(const blink_set* set, const struct blink_tables* tables, const Half* table, float* residual,
                   uint32_t hidden, float scale, uint32_t tokens) {
  launch({tokens}, 64, [&] { blink::embed_kernel(*set, *tables, table, residual, hidden, scale); });
}

void emulate_rmsnorm(const float* residual, const Half* weight, float eps, Half* out, uint32_t hidden,
                     uint32_t tokens) {
  after(residual, kFloat * tokens * hidden);
  launch({tokens}, 96, [&] { blink::rmsnorm_kernel(residual, weight, eps, out, hidden); });
}

void emulate_rmsnorm_adding(float* residual, const Half* weight, float eps, Half* out, uint32_t hidden,
                            const Half* adds, uint32_t tokens) {
  after(residual, kFloat * tokens * hidden);
  launch({tokens}, 96, [&] { blink::rmsnorm_adding_kernel(residual, weight, eps, out, hidden, adds); });
}

void emulate_add_rmsnorm(float* residual, const Half* x, const Half* weight, const Half* next, float eps, Half* out,
                         uint32_t hidden, uint32_t tokens) {
  after(x, kHalf * tokens * hidden);
  after(residual, kFloat * tokens * hidden);
  launch({tokens}, 96, [&] { blink::add_rmsnorm_kernel(residual, x, weight, next, eps, out, hidden); });
}

void emulate_gather_rmsnorm(const blink_set* set, const float* residual, const Half* weight, float eps, Half* out,
                            uint32_t hidden, uint32_t batch_slots) {
  launch({batch_slots}, 64, [&] { blink::gather_rmsnorm_kernel(*set, residual, weight, eps, out, hidden); });
}

void emulate_gather_last(const blink_set* set, const float* residual, const Half* attention, float* last_residual,
                         Half* last_attention, uint32_t hidden, uint32_t width, uint32_t batch_slots) {
  launch({batch_slots}, 64,
         [&] { blink::gather_last_kernel(*set, residual, attention, last_residual, last_attention, hidden, width); });
}

void emulate_quantize(const Half* x, uint8_t* out, float* scales, uint32_t k, uint32_t stride, uint32_t rows,
                      uint32_t form, uint32_t held, uint32_t threads) {
  using namespace blink;
  after(x, kHalf * rows * k);
  with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto of) {
    with_constant<1, 2, 4>(held, [&](auto groups) {
      launch({rows}, threads, [&] { quantize_kernel<Half, of(), groups()>(x, out, scales, k, stride); });
    });
  });
}

void emulate_quantize_weight(const Half* w, uint8_t* out, float* scales, uint32_t rows, uint32_t columns) {
  using namespace blink;
  launch({(columns + kScaleBlock - 1) / kScaleBlock, (rows + kScaleBlock - 1) / kScaleBlock}, kWeightThreads, [&] {
    quantize_weight_kernel(w, out, scales, rows, columns);
    emulator::block->has_waited = true; /* nothing runs before it */
  });
}

void emulate_rmsnorm_quantize(const float* residual, const Half* weight, float eps, uint8_t* out, float* scales,
                              uint32_t hidden, uint32_t stride, uint32_t tokens, uint32_t form, uint32_t threads) {
  using namespace blink;
  after(residual, kFloat * tokens * hidden);
  with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto constant) {
    launch({tokens}, threads,
           [&] { rmsnorm_quantize_kernel<Half, constant()>(residual, weight, eps, out, scales, hidden, stride); });
  });
}

void emulate_add_rmsnorm_quantize(float* residual, const Half* x, const Half* weight, const Half* next, float eps,
                                  uint8_t* out, float* scales, uint32_t hidden, uint32_t stride, uint32_t tokens,
                                  uint32_t form, uint32_t threads) {
  using namespace blink;
  after(x, kHalf * tokens * hidden);
  after(residual, kFloat * tokens * hidden);
  with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto constant) {
    launch({tokens}, threads, [&] {
      add_rmsnorm_quantize_kernel<Half, constant()>(residual, x, weight, next, eps, out, scales, hidden, stride);
    });
  });
}
}
