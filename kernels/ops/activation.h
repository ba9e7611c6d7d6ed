/* Activation: out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)).
 *
 *   gate_up  [tokens][2][intermediate] half (fp32 on the host)
 *   out      [tokens][intermediate] half
 */
#ifndef BLINK_OPS_ACTIVATION_H
#define BLINK_OPS_ACTIVATION_H

#include "common.h"

namespace blink {

BLINK_HD float silu_mul(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

#ifndef __CUDACC__

inline void silu_mul_row(const float* gate_up, float* out, uint32_t intermediate) {
  for (uint32_t j = 0; j < intermediate; ++j) out[j] = silu_mul(gate_up[j], gate_up[intermediate + j]);
}

#else

/* grid (tokens, ceil(intermediate / (8 * block))), block (any); intermediate is a multiple of 8. */
template <typename Half>
__global__ void silu_mul_kernel(const Half* gate_up, Half* out, uint32_t intermediate) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t j = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (j >= intermediate) return;
  const Half* row = gate_up + uint64_t(blockIdx.x) * 2 * intermediate;
  float gate[8], up[8];
  load8(row + j, gate);
  load8(row + intermediate + j, up);
#pragma unroll
  for (int k = 0; k < 8; ++k) gate[k] = silu_mul(gate[k], up[k]);
  store8(out + uint64_t(blockIdx.x) * intermediate + j, gate);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ACTIVATION_H */
