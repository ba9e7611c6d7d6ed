/* Ring turn: which stage of a ring in shared memory comes next, and the parity of its barriers' phase. Every stage is
 * passed once a round; phases alternate in parity.
 */
#ifndef BLINK_OPS_RING_TURN_H
#define BLINK_OPS_RING_TURN_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

struct RingTurn {
  uint32_t slot = 0, parity = 0;

  __device__ __forceinline__ void next(uint32_t n_slots) {
    if (++slot == n_slots) slot = 0, parity ^= 1;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_RING_TURN_H */
