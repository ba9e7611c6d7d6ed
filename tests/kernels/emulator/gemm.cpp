/* The matmuls, but for the skinny GEMM and those of gated.cpp. */
#include "kernels.h"
#include "weights.h"

#include "kernels/ops/gemm/resident_gemv.h"
#include "kernels/ops/gemm/split_sums.h"
#include "kernels/ops/gemm/tiled_fp8_gemm_sm90.h"
#include "kernels/ops/gemm/unpack.h"

extern "C" {

/* Words of fp8 as pairs of halves, [n][2], without a kernel. */
void emulate_to_halves(const uint32_t* words, uint32_t* pairs, uint32_t n, bool is_float16) {
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t* to = pairs + 2 * i;
    if (is_float16)
      blink::to_halves(words[i], to[0], to[1], __half());
    else
      blink::to_halves(words[i], to[0], to[1], __nv_bfloat16());
  }
}

/* With `w_router`, the sums of a router. Weights are halves, or narrow with scales of `form`. */
void emulate_resident_gemv(const void* w, const void* scales, const void* x, const Half* norm, float eps, void* y,
                           uint32_t m, uint32_t n_in, uint32_t n_out, uint32_t form, uint32_t blocks,
                           const Half* router_norm, const Half* w_router, int64_t* sums, uint32_t n_experts) {
  using namespace blink;
  const FusedRouter router = {router_norm, w_router, sums, n_experts};
  after(x, (norm ? kFloat : kHalf) * m * n_in);
  if (!norm) after(y, kFloat * m * n_out);
  if (w_router) after(sums, sizeof(int64_t) * kSumPlaces * n_experts);
  with_form(form, [&](auto of) {
    const auto matrix = weights_of<of()>(w, scales, form);
    with_constant<1, 2, 4, 8>(n_in / (2 * kGemvWarps * kChunkWeights<of()>), [&](auto chunks) {
      launch({blocks}, kGemvThreads, [&] {
        if (norm)
          resident_gemv_kernel<Half, kEpilogueHalf, chunks(), true, of()>(matrix, x, norm, eps, y, m, n_out, router);
        else
          resident_gemv_kernel<Half, kEpilogueAdd, chunks(), false, of()>(matrix, x, norm, eps, y, m, n_out, router);
      });
    });
  });
}

void emulate_tiled_fp8_gemm(const blink::BoxMap* w, const blink::BoxMap* x, const blink::BoxMap* y,
                            const blink::TiledParams* cut, const blink::TiledFp8Params* fp8, uint32_t output,
                            uint32_t form, uint32_t pairs) {
  using namespace blink;
  emulator::dynamic_bytes = kTiledFp8SharedBytes;
  const uint32_t blocks = form == kScaleByBlock ? (2 * cut->n_in + kScaleBlock - 1) / kScaleBlock : 1;
  after(reinterpret_cast<const void*>(x->data), 2 * cut->m * cut->n_in);
  after(fp8->x_scales, kFloat * blocks * fp8->x_stride);
  with_constant<kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu>(output, [&](auto kind) {
    if (kind() == kEpilogueAdd) after(reinterpret_cast<const void*>(y->data), kFloat * y->shape[2] * y->shape[3]);
    with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto scale) {
      with_constant<64, 80, 96, 112, 128, 176>(cut->columns, [&](auto columns) {
        const auto kernel = [&] { tiled_fp8_gemm_kernel<Half, kind(), scale(), columns()>(*w, *x, *y, *cut, *fp8); };
        launch({2 * pairs}, kTiledThreads, kernel, kPairs);
      });
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

/* A matrix of codes as halves. */
void emulate_unpack(const void* w, const void* scales, Half* out, uint32_t rows, uint32_t n_in, uint32_t form,
                    uint32_t blocks) {
  using namespace blink;
  with_constant<kInt4ByGroup, kFp4By32, kFp4By16>(form & ((1u << kFormBits) - 1), [&](auto of) {
    constexpr ScaleForm kForm = ScaleForm(of());
    launch({blocks}, kUnpackThreads,
           [&] { unpack_kernel<Half, kForm>(weights_of<kForm>(w, scales, form), out, rows, n_in); });
  });
}

void emulate_split_sums(const float* parts, void* y, uint32_t splits, uint32_t part_rows, uint32_t n, uint32_t m,
                        uint32_t output) {
  using namespace blink;
  after(parts, kFloat * splits * part_rows * n);
  if (output == kEpilogueAdd) after(y, kFloat * m * n);
  with_constant<kEpilogueHalf, kEpilogueAdd>(output, [&](auto kind) {
    launch({m, (n + 255) / 256}, 32, [&] { split_sums_kernel<Half, kind()>(parts, y, splits, part_rows, n); });
  });
}
}
