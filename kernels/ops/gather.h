/* Gather: what the batch slots' last tokens alone go through, t = batch_last[batch_slot]: the final norm,
 * out[batch_slot] = rmsnorm(residual[t] + delta[t]), or all of the last layer behind its attention.
 *
 *   residual        [tokens][hidden] fp32, changed: nothing reads it after this op
 *   delta           [tokens][hidden] half: output of the last layer's down projection
 *   weight          [hidden]
 *   out             [batch_slots][hidden] half (fp32 on the host); zero for batch slots that are not in use
 *   attention       [tokens][width] half: what the last layer's attention put out
 *   last_residual   [batch_slots][hidden]: those rows as they are; zero for batch slots that are not in use
 *   last_attention  [batch_slots][width] likewise
 *
 * On the CPU the last layer is computed for all tokens, so there is no reference of that.
 */
#ifndef BLINK_OPS_GATHER_H
#define BLINK_OPS_GATHER_H

#include "norm.h"

namespace blink {

#ifndef __CUDACC__

inline void gather_rmsnorm(const struct blink_step_set& set, float* residual, const float* delta, const float* weight,
                           float eps, float* out, uint32_t hidden, uint32_t batch_slot) {
  const uint64_t t = uint64_t(set.batch_last[batch_slot]) * hidden;
  residual_rmsnorm(residual + t, delta + t, weight, eps, out + uint64_t(batch_slot) * hidden, hidden);
}

#else

/* grid (batch slots), block (any multiple of 32). */
template <typename Half>
__global__ void gather_rmsnorm_kernel(struct blink_step_set set, const float* residual, const Half* weight, float eps,
                                      Half* out, uint32_t hidden) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t batch_slot = blockIdx.x;
  Half* target = out + uint64_t(batch_slot) * hidden;
  if (batch_slot >= set.head->batch_size) {
    const float zero[8] = {};
    for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) store8(target + j, zero);
    return;
  }
  rmsnorm_row(residual + uint64_t(set.batch_last[batch_slot]) * hidden, weight, eps, target, hidden);
}

/* Row `from` of n elements, a multiple of 8, or zeros if that is null, by the block. */
template <typename T>
__device__ __forceinline__ void copy_row(const T* from, T* to, uint32_t n) {
  constexpr uint32_t kEach = sizeof(uint4) / sizeof(T);
  for (uint32_t j = threadIdx.x * kEach; j < n; j += blockDim.x * kEach)
    *reinterpret_cast<uint4*>(to + j) = from ? *reinterpret_cast<const uint4*>(from + j) : make_uint4(0, 0, 0, 0);
}

/* grid (batch slots), block (any multiple of 32); hidden and width multiples of 8. */
template <typename Half>
__global__ void gather_last_kernel(struct blink_step_set set, const float* residual, const Half* attention,
                                   float* last_residual, Half* last_attention, uint32_t hidden, uint32_t width) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t batch_slot = blockIdx.x;
  const bool used = batch_slot < set.head->batch_size;
  const uint64_t token = used ? set.batch_last[batch_slot] : 0;
  copy_row(used ? residual + token * hidden : nullptr, last_residual + uint64_t(batch_slot) * hidden, hidden);
  copy_row(used ? attention + token * width : nullptr, last_attention + uint64_t(batch_slot) * width, width);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_GATHER_H */
