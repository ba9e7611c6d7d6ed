/* The skinny GEMM with weights in codes of four bits. */
#include "skinny_narrow.h"

template <blink::ScaleForm Form, typename... Arguments>
void skinny_codes(Arguments... arguments) {
  skinny_narrow_gemm<Form, Instance<16, 1, 1>, Instance<16, 2, 1>, Instance<16, 4, 1>, Instance<16, 1, 4>,
                     Instance<32, 1, 2>, Instance<32, 2, 2>, Instance<64, 1, 1>, Instance<64, 2, 1>, Instance<64, 3, 1>,
                     Instance<64, 4, 1>>(arguments...);
}

extern "C" {

void emulate_skinny_code_gemm(const blink::BoxMap* w, const void* scales, const blink::BoxMap* x, void* y,
                              const blink::SkinnyParams* cut, const blink::FusedNorm* norm, uint32_t output,
                              uint32_t form, uint32_t columns, uint32_t tiles, uint32_t splits, uint32_t clusters,
                              uint32_t threads, uint32_t shared_bytes) {
  using namespace blink;
  with_constant<kInt4ByGroup, kFp4By32, kFp4By16>(form & ((1u << kFormBits) - 1), [&](auto of) {
    skinny_codes<ScaleForm(of())>(w, scales, x, y, cut, norm, output, form, columns, tiles, splits, clusters, threads,
                                  shared_bytes);
  });
}
}
