/* The skinny GEMM with narrow weights, for the files that make it of some forms. */
#ifndef BLINK_EMULATOR_SKINNY_NARROW_H
#define BLINK_EMULATOR_SKINNY_NARROW_H

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

/* One launch of an instance of these sizes. */
template <blink::ScaleForm Form, typename... Sizes>
void skinny_narrow_gemm(const blink::BoxMap* w, const void* scales, const blink::BoxMap* x, void* y,
                        const blink::SkinnyParams* cut, const blink::FusedNorm* norm, uint32_t output, uint32_t form,
                        uint32_t columns, uint32_t tiles, uint32_t splits, uint32_t clusters, uint32_t threads,
                        uint32_t shared_bytes) {
  using namespace blink;
  emulator::dynamic_bytes = shared_bytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * x->shape[2] * x->shape[3]);
  after(norm->sums_in, kFloat * norm->n_sums * columns);
  SkinnyFactors<Form> factors = {};
  static_cast<FusedNorm&>(factors) = *norm;
  if constexpr (kIsCodes<Form>)
    factors.weights = weights_of<Form>(nullptr, scales, form);
  else
    factors.weight_scales = static_cast<const float*>(scales);
  with_constant<kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu>(output, [&](auto kind) {
    with_instance<Sizes...>(columns, tiles, splits, [&](auto instance) {
      using Of = decltype(instance);
      if constexpr (kSkinnyFits<kind(), Of::kColumns, Of::kTiles>)
        launch(
            {splits, clusters}, threads,
            [&] {
              skinny_gemm_kernel<Half, kind(), Of::kColumns, Of::kTiles, Of::kSplits, Form>(*w, *x, y, *cut, factors,
                                                                                            {});
            },
            kClusters);
      else
        emulator::fail("a skinny GEMM that the engine has no instance of");
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}

#endif /* BLINK_EMULATOR_SKINNY_NARROW_H */
