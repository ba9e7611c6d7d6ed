/* The skinny GEMM with weights in fp8. */
#include "skinny_narrow.h"

template <blink::ScaleForm Form, typename... Arguments>
void skinny_fp8(Arguments... arguments) {
  skinny_narrow_gemm<Form, Instance<16, 1, 1>, Instance<16, 2, 1>, Instance<32, 1, 8>, Instance<32, 2, 2>,
                     Instance<64, 1, 2>, Instance<64, 2, 1>, Instance<64, 2, 4>, Instance<64, 3, 1>,
                     Instance<64, 4, 1>>(arguments...);
}

extern "C" {

void emulate_skinny_fp8_gemm(const blink::BoxMap* w, const void* scales, const blink::BoxMap* x, void* y,
                             const blink::SkinnyParams* cut, const blink::FusedNorm* norm, uint32_t output,
                             uint32_t form, uint32_t columns, uint32_t tiles, uint32_t splits, uint32_t clusters,
                             uint32_t threads, uint32_t shared_bytes) {
  with_constant<blink::kScaleByRow, blink::kScaleByBlock>(form, [&](auto of) {
    skinny_fp8<blink::ScaleForm(of())>(w, scales, x, y, cut, norm, output, form, columns, tiles, splits, clusters,
                                       threads, shared_bytes);
  });
}
}
