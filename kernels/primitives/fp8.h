/* fp8 (e4m3) weights: what multiplies their elements, and how they lie in memory.
 *
 * Of each 16 consecutive columns of a row, which are 16 bytes, the bytes 4q to 4q + 3 hold the columns 2q, 2q + 1,
 * 2q + 8 and 2q + 9. A thread of the tensor cores' 16-bit operand in registers holds just these: a word of fp8 is
 * converted to two words of pairs (to_halves of fp8_sm90.h), and nothing is shuffled.
 */
#ifndef BLINK_PRIMITIVES_FP8_H
#define BLINK_PRIMITIVES_FP8_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

/* Which elements of a matrix share a scale (gpu_backend/models/quantization.py); of halves, none has one. */
enum ScaleForm { kScaleByRow, kScaleByBlock, kUnscaled };

constexpr uint32_t kScaleBlock = 128; /* rows, and columns, of a block */

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_FP8_H */
