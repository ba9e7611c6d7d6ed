/* The skinny GEMM with weights in fp8. */
#include "weights.h"

#include "kernels/ops/gemm/skinny_gemm_sm90.h"

/* Columns, tiles and splits of an instance. */
template <int Columns, int Tiles, int Splits>
struct Instance {
  static constexpr int kColumns = Columns, kTiles = Tiles, kSplits = Splits;

  static bool is(uint32_t columns, uint32_t tiles, uint32_t splits) {
    return columns == uint32_t(Columns) && tiles == uint32_t(Tiles) && splits == uint32_t(Splits);
  }
};

/* Calls body(instance) with one of these, of which the engine has more. */
template <typename First, typename... Rest, typename Body>
void with_instance(uint32_t columns, uint32_t tiles, uint32_t splits, const Body& body) {
  if (First::is(columns, tiles, splits)) {
    body(First());
  } else if constexpr (sizeof...(Rest) > 0) {
    with_instance<Rest...>(columns, tiles, splits, body);
  } else {
    emulator::fail("no such instance");
  }
}

extern "C" {

void emulate_skinny_fp8_gemm(const blink::BoxMap* w, const float* scales, const blink::BoxMap* x, void* y,
                             const blink::SkinnyParams* cut, const blink::FusedNorm* norm, uint32_t output,
                             uint32_t form, uint32_t columns, uint32_t tiles, uint32_t splits, uint32_t clusters,
                             uint32_t threads, uint32_t shared_bytes) {
  using namespace blink;
  emulator::dynamic_bytes = shared_bytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * x->shape[2] * x->shape[3]);
  after(norm->sums_in, kFloat * norm->n_sums * columns);
  with_constant<kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu>(output, [&](auto kind) {
    with_instance<Instance<16, 1, 1>, Instance<16, 2, 1>, Instance<32, 1, 8>, Instance<32, 2, 2>, Instance<64, 1, 2>,
                  Instance<64, 2, 1>, Instance<64, 2, 4>, Instance<64, 3, 1>, Instance<64, 4, 1>>(
        columns, tiles, splits, [&](auto instance) {
          using Sizes = decltype(instance);
          with_constant<kScaleByRow, kScaleByBlock>(form, [&](auto of_scales) {
            constexpr ScaleForm kForm = ScaleForm(of_scales());
            if constexpr (kSkinnyFits<kind(), Sizes::kColumns, Sizes::kTiles>) {
              const SkinnyFactors<kForm> factors = {*norm, scales};
              launch(
                  {splits, clusters}, threads,
                  [&] {
                    skinny_gemm_kernel<Half, kind(), Sizes::kColumns, Sizes::kTiles, Sizes::kSplits, kForm>(
                        *w, *x, y, *cut, factors, {});
                  },
                  kClusters);
            } else {
              emulator::fail("a skinny GEMM that the engine has no instance of");
            }
          });
        });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}
}
