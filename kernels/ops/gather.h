/* Gather: what the lanes' last tokens alone go through, t = lane_last[lane]: the final norm, out[lane] =
 * rmsnorm(residual[t] + delta[t]), or all of the last layer behind its attention.
 *
 *   residual        [tokens][hidden] fp32, changed: nothing reads it after this op
 *   delta           [tokens][hidden] half: output of the last layer's down projection
 *   weight          [hidden]
 *   out             [lanes][hidden] half (fp32 on the host); zero for lanes that are not in use
 *   attention       [tokens][width] half: what the last layer's attention put out
 *   last_residual,  [lanes][hidden] and [lanes][width]: those rows as they are; zero for lanes that are not in use.
 *   last_attention  On the CPU the last layer is all tokens', so there is no twin
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
__global__ void gather_rmsnorm_kernel(struct blink_step_set set, const float* residual, const Half* weight, float eps,
                                      Half* out, uint32_t hidden) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t lane = blockIdx.x;
  Half* target = out + uint64_t(lane) * hidden;
  if (lane >= set.head->n_lanes) {
    const float zero[8] = {};
    for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) store8(target + j, zero);
    return;
  }
  rmsnorm_row(residual + uint64_t(set.lane_last[lane]) * hidden, weight, eps, target, hidden);
}

/* Row `from` of n elements, a multiple of 8, or zeros if that is null, by the block. */
template <typename T>
__device__ __forceinline__ void copy_row(const T* from, T* to, uint32_t n) {
  constexpr uint32_t kEach = sizeof(uint4) / sizeof(T);
  for (uint32_t j = threadIdx.x * kEach; j < n; j += blockDim.x * kEach)
    *reinterpret_cast<uint4*>(to + j) = from ? *reinterpret_cast<const uint4*>(from + j) : make_uint4(0, 0, 0, 0);
}

/* grid (lanes), block (any multiple of 32); hidden and width multiples of 8. */
template <typename Half>
__global__ void gather_last_kernel(struct blink_step_set set, const float* residual, const Half* attention,
                                   float* last_residual, Half* last_attention, uint32_t hidden, uint32_t width) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t lane = blockIdx.x;
  const bool used = lane < set.head->n_lanes;
  const uint64_t token = used ? set.lane_last[lane] : 0;
  copy_row(used ? residual + token * hidden : nullptr, last_residual + uint64_t(lane) * hidden, hidden);
  copy_row(used ? attention + token * width : nullptr, last_attention + uint64_t(lane) * width, width);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_GATHER_H */
