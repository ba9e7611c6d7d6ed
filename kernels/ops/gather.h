/* Gather: the final norm, of the lanes' last tokens only: out[lane] = rmsnorm(residual[t] + delta[t]), t =
 * lane_last[lane].
 *
 *   residual  [tokens][hidden] fp32, changed: nothing reads it after this op
 *   delta     [tokens][hidden] half: output of the last layer's down projection
 *   weight    [hidden]
 *   out       [lanes][hidden] half (fp32 on the host); zero for lanes that are not in use
 */
#ifndef BLINK_OPS_GATHER_H
#define BLINK_OPS_GATHER_H

#include "norm.h"

namespace blink {

#ifndef __CUDACC__

inline void gather_rmsnorm(const struct blink_step_set& set, float* residual, const float* delta, const float* weight,
                           float eps, float* out, uint32_t hidden, uint32_t lane) {
  const uint64_t t = uint64_t(set.lane_last[lane]) * hidden;
  residual_rmsnorm(residual + t, delta + t, weight, eps, out + uint64_t(lane) * hidden, hidden);
}

#else

/* grid (lanes), block (any multiple of 32). */
template <typename Half>
__global__ void gather_rmsnorm_kernel(struct blink_step_set set, float* residual, const Half* delta, const Half* weight,
                                      float eps, Half* out, uint32_t hidden) {
  __shared__ float scratch[32];
  const uint32_t lane = blockIdx.x;
  Half* target = out + uint64_t(lane) * hidden;
  if (lane >= set.head->n_lanes) {
    const float zero[8] = {};
    for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) store8(target + j, zero);
    return;
  }
  const uint64_t t = uint64_t(set.lane_last[lane]) * hidden;
  const float sum = add_residual(residual + t, delta + t, hidden);
  normalise<Half>(residual + t, block_sum(sum, scratch), weight, eps, target, hidden);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_GATHER_H */
