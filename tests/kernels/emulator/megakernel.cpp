/* The decoder: a whole step in one kernel. */
#include "kernels.h"

#include "kernels/megakernel/megakernel_sm90.h"

extern "C" {

void emulate_megakernel(const blink_set* set, const struct blink_tables* tables,
                        const struct blink_megakernel_model* model, const struct blink_megakernel_buffers* buffers,
                        uint32_t head_dim, uint32_t group, uint32_t blocks) {
  using blink::kScaleByRow, blink::kUnscaled;
  const float scale = model->cache_scales ? *model->cache_scales : 0.0f;
  with_cache(scale, [&](auto element) {
    with_constant<64, 128>(head_dim, [&](auto dim) {
      with_constant<1, 2, 4>(group, [&](auto members) {
        with_constant<kScaleByRow, kUnscaled>(model->weight_scales ? kScaleByRow : kUnscaled, [&](auto scales) {
          constexpr blink::ScaleForm kForm = blink::ScaleForm(scales());
          const auto kernel = [&] {
            blink::megakernel_kernel<Half, dim(), members(), decltype(element), kForm>(*set, *tables, *model, *buffers);
          };
          launch({blocks}, blink::kMegakernelBlock, kernel, kGrid);
        });
      });
    });
  });
}
}
