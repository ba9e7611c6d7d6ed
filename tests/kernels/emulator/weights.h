/* Matrices of weights as kernels take them: halves, or fp8 with scales. */
#ifndef BLINK_EMULATOR_WEIGHTS_H
#define BLINK_EMULATOR_WEIGHTS_H

#include "kernels.h"

#include "kernels/ops/gemm/weight_lanes.h"

/* Calls body(constant) with the form of scales that `value` names. */
template <typename Body>
void with_form(uint32_t value, const Body& body) {
  with_constant<blink::kScaleByRow, blink::kScaleByBlock, blink::kUnscaled>(
      value, [&](auto form) { body(std::integral_constant<blink::ScaleForm, blink::ScaleForm(form())>()); });
}

template <blink::ScaleForm Form>
typename blink::WeightTypes<Half, Form>::Matrix weights_of(const void* elements, const float* scales) {
  if constexpr (Form == blink::kUnscaled)
    return static_cast<const Half*>(elements);
  else
    return {static_cast<const uint8_t*>(elements), scales};
}

#endif /* BLINK_EMULATOR_WEIGHTS_H */
