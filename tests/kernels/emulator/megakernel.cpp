/* The decoder: a whole step in one kernel. */
#include "weights.h"

#include "kernels/megakernel/megakernel_sm90.h"

extern "C" {

void emulate_megakernel(const blink_set* set, const struct blink_tables* tables,
                        const struct blink_megakernel_model* model, const struct blink_megakernel_buffers* buffers,
                        uint32_t head_dim, uint32_t group, uint32_t form, uint32_t blocks) {
  using namespace blink;
  const float scale = model->cache_scales ? *model->cache_scales : 0.0f;
  with_cache(scale, [&](auto element) {
    with_constant<64, 128>(head_dim, [&](auto dim) {
      with_constant<1, 2, 4>(group, [&](auto members) {
        with_one_of<kScaleByRow, kUnscaled, kInt4ByGroup, kFp4By32, kFp4By16>(form, [&](auto constant) {
          constexpr ScaleForm kForm = constant();
          const auto kernel = [&] {
            megakernel_kernel<Half, dim(), members(), decltype(element), kForm>(*set, *tables, *model, *buffers);
          };
          launch({blocks}, kMegakernelBlock, kernel, kGrid);
        });
      });
    });
  });
}
}
