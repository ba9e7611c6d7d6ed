/* The skinny GEMM, whose instances take longest to compile. */
#include "kernels.h"

#include "kernels/ops/gemm/skinny_gemm_sm90.h"

extern "C" {

void emulate_skinny_gemm(const blink::BoxMap* w, const blink::BoxMap* x, void* y, const blink::SkinnyParams* cut,
                         const blink::FusedNorm* norm, uint32_t output, uint32_t columns, uint32_t tiles,
                         uint32_t splits, uint32_t clusters, uint32_t threads, uint32_t shared_bytes) {
  using namespace blink;
  emulator::dynamic_bytes = shared_bytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * x->shape[2] * x->shape[3]);
  after(norm->sums_in, kFloat * norm->n_sums * columns);
  with_constant<kEpilogueHalf, kEpilogueFloat, kEpilogueAdd, kEpilogueSilu>(output, [&](auto kind) {
    with_constant<16, 32, 64>(columns, [&](auto n_columns) {
      with_constant<1, 2, 3, 4>(tiles, [&](auto n_tiles) {
        with_constant<1, 2, 4, 8>(splits, [&](auto n_splits) {
          /* More take long to compile. Of another activation, one shows that the kernel ends in it. */
          constexpr bool is_made = kActivation == BLINK_SILU ? n_tiles() <= 2 || (n_columns() == 64 && n_splits() == 1)
                                                             : kind() == kEpilogueSilu && n_columns() == 32 &&
                                                                   n_tiles() == 1 && n_splits() == 1;
          if constexpr (is_made && kSkinnyFits<kind(), n_columns(), n_tiles()>)
            launch(
                {splits, clusters}, threads,
                [&] {
                  skinny_gemm_kernel<Half, kind(), n_columns(), n_tiles(), n_splits()>(*w, *x, y, *cut, {*norm}, {});
                },
                kClusters);
          else
            emulator::fail("a skinny GEMM that the engine has no instance of");
        });
      });
    });
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}
}
