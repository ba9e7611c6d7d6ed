/* Pipeline state: which stage of a pipeline in shared memory comes next, and the parity of its barriers' phase. Every
 * stage is passed once a round; phases alternate in parity.
 */
#ifndef BLINK_PRIMITIVES_PIPELINE_STATE_H
#define BLINK_PRIMITIVES_PIPELINE_STATE_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

struct PipelineState {
  uint32_t index = 0, phase = 0;

  __device__ __forceinline__ void next(uint32_t n_stages) {
    if (++index == n_stages) index = 0, phase ^= 1;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_PIPELINE_STATE_H */
