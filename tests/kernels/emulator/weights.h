/* Matrices of weights as kernels take them: halves, or fp8 or codes of four bits with scales. */
#ifndef BLINK_EMULATOR_WEIGHTS_H
#define BLINK_EMULATOR_WEIGHTS_H

#include "kernels.h"

#include "kernels/ops/gemm/weight_lanes.h"

constexpr uint32_t kFormBits = 8; /* of what names a form: above them is the shift of codes to their scales */

/* Calls body(constant) with the form of scales that `value` names, one of `Forms`. */
template <blink::ScaleForm... Forms, typename Body>
void with_one_of(uint32_t value, const Body& body) {
  with_constant<Forms...>(value & ((1u << kFormBits) - 1), [&](auto form) {
    body(std::integral_constant<blink::ScaleForm, blink::ScaleForm(form())>());
  });
}
template <typename Body>
void with_form(uint32_t value, const Body& body) {
  using namespace blink;
  with_one_of<kScaleByRow, kScaleByBlock, kUnscaled, kInt4ByGroup, kFp4By32, kFp4By16>(value, body);
}

template <blink::ScaleForm Form>
typename blink::WeightTypes<Half, Form>::Matrix weights_of(const void* elements, const void* scales, uint32_t form) {
  if constexpr (Form == blink::kUnscaled)
    return static_cast<const Half*>(elements);
  else if constexpr (blink::kIsCodes<Form>)
    return {static_cast<const uint8_t*>(elements), scales, form >> kFormBits};
  else
    return {static_cast<const uint8_t*>(elements), static_cast<const float*>(scales)};
}

#endif /* BLINK_EMULATOR_WEIGHTS_H */
