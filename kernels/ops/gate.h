/* Gate: the first node of every step's graph. Holds the step back until the step before it has published its
 * completion, so that the scheduler can launch a step while the last one still runs (E2).
 *
 * It has no CPU reference: the reference engine runs steps in order on one thread.
 */
#ifndef BLINK_OPS_GATE_H
#define BLINK_OPS_GATE_H

#include "kernels/primitives/common.h"

#ifdef __CUDACC__
namespace blink {

/* Far beyond any step, and beyond what the scheduler waits for one (step_timeout_ns): of a step that does not end,
 * it hears first. */
constexpr uint64_t kGateTimeoutNs = 30000000000ull;

/* A thread's: as many as a block of the megakernel leaves on its multiprocessor (E9). */
constexpr int kGateRegisters = 32;

/* grid (1), block (1). Writes head->start_ns and, when the wait ran out, head->fault. */
template <typename = void>
__global__ void __maxnreg__(kGateRegisters) gate_kernel(struct blink_step_set set, struct blink_tables tables) {
  const uint64_t before = set.head->id - 1;
  const uint64_t begin = global_ns();
  uint64_t now = begin, fault = 0;
  while (load_acquire(tables.completed) < before) {
    now = global_ns();
    if (now - begin > kGateTimeoutNs) {
      fault = 1;
      break;
    }
  }
  allow_successor(); /* which may be on its way while this is written */
  set.head->start_ns = global_ns();
  set.head->fault = fault;
}

}  // namespace blink
#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GATE_H */
