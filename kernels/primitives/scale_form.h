/* How a matrix of weights is stored: what its elements are, and which of them share a scale.
 */
#ifndef BLINK_PRIMITIVES_SCALE_FORM_H
#define BLINK_PRIMITIVES_SCALE_FORM_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

/* gpu_backend/models/quantization.py has the same forms. Elements of the first two are fp8 (fp8.h), kUnscaled says that
 * a matrix is of halves, which are the values themselves, and the others are codes of four bits (codes.h). */
enum ScaleForm { kScaleByRow, kScaleByBlock, kUnscaled, kInt4ByGroup, kFp4By32, kFp4By16 };

template <ScaleForm Form>
constexpr bool kIsFp8 = Form == kScaleByRow || Form == kScaleByBlock;
template <ScaleForm Form>
constexpr bool kIsCodes = Form == kInt4ByGroup || Form == kFp4By32 || Form == kFp4By16;

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_SCALE_FORM_H */
