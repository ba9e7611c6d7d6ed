/* The products with a matrix, but for the wide one. */
#include "kernels.h"

#include "kernels/ops/linear_held.h"
#include "kernels/ops/linear_stream.h"
#include "kernels/ops/linear_tiled.h"

extern "C" {

void emulate_linear_stream(const Half* w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out,
                           uint32_t output, uint32_t groups, uint32_t blocks) {
  using namespace blink;
  after(x, kHalf * m * n_in);
  with_constant<kStreamHalf, kStreamFloat, kStreamAdd, kStreamSilu>(output, [&](auto kind) {
    with_constant<1, 2>(groups, [&](auto n_groups) {
      launch({blocks}, kStreamThreads,
             [&] { linear_stream_kernel<Half, kind(), n_groups()>(w, x, y, m, n_in, n_out); });
    });
  });
}

/* With `w_router`, the sums of a router. */
void emulate_linear_held(const Half* w, const void* x, const Half* norm, float eps, void* y, uint32_t m, uint32_t n_in,
                         uint32_t n_out, uint32_t blocks, const Half* router_norm, const Half* w_router, int64_t* sums,
                         uint32_t n_experts) {
  using namespace blink;
  const RouterPart router = {router_norm, w_router, sums, n_experts};
  after(x, (norm ? kFloat : kHalf) * m * n_in);
  if (!norm) after(y, kFloat * m * n_out);
  if (w_router) after(sums, sizeof(int64_t) * kSumPlaces * n_experts);
  with_constant<1, 2, 4, 8>(n_in / (2 * kStreamWarps * kStreamChunk), [&](auto chunks) {
    launch({blocks}, kStreamThreads, [&] {
      if (norm)
        linear_held_kernel<Half, kStreamHalf, chunks(), true>(w, x, norm, eps, y, m, n_out, router);
      else
        linear_held_kernel<Half, kStreamAdd, chunks(), false>(w, x, norm, eps, y, m, n_out, router);
    });
  });
}

void emulate_linear_tiled(const blink::BoxMap* w, const blink::BoxMap* x, const blink::BoxMap* y,
                          const blink::TiledCut* cut, uint32_t output, uint32_t pairs) {
  using namespace blink;
  emulator::dynamic_bytes = kTiledSharedBytes;
  after(reinterpret_cast<const void*>(x->data), kHalf * cut->m * cut->n_in);
  with_constant<kStreamAdd, kStreamSilu>(output, [&](auto kind) {
    if (kind() == kStreamAdd) after(reinterpret_cast<const void*>(y->data), kFloat * y->shape[2] * y->shape[3]);
    const auto kernel = [&] { linear_tiled_kernel<Half, kind()>(*w, *x, *y, *cut); };
    launch({2 * pairs}, kTiledThreads, kernel, kPairs);
  });
  emulator::dynamic_bytes = emulator::kMostBytes;
}
}
