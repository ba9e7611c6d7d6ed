/* Activation of a gated MLP: out[i] = f(gate[i]) * up[i], where f is silu(x) = x / (1 + exp(-x)), or GELU in its tanh
 * approximation, which transformers calls gelu_pytorch_tanh: x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)) with
 * u = sqrt(2 / pi) (x + 0.044715 x^3).
 *
 *   gate_up  [tokens][2][intermediate] half (fp32 on the host)
 *   out      [tokens][intermediate] half
 *
 * A model has one activation, which its module of kernels is compiled with: BLINK_ACTIVATION. All kernels that end in
 * an activation call gated(), or gated_fast() of tiled_epilogue_sm90.h; a further activation is a case of gate_logit().
 */
#ifndef BLINK_OPS_ACTIVATION_H
#define BLINK_OPS_ACTIVATION_H

#include "kernels/reference/model.h"
#include "kernels/primitives/common.h"

namespace blink {

using Activation = enum blink_activation;

/* s(gate), where f(gate) = gate / (1 + exp(-s(gate))). */
BLINK_HD float gate_logit(Activation activation, float gate) {
  if (activation == BLINK_GELU_TANH) return 1.5957691216f * (gate + 0.044715f * gate * gate * gate);
  return gate;
}

BLINK_HD float gated(Activation activation, float gate, float up) {
  return gate / (1.0f + expf(-gate_logit(activation, gate))) * up;
}

#ifndef __CUDACC__

inline void gated_row(Activation activation, const float* gate_up, float* out, uint32_t intermediate) {
  for (uint32_t j = 0; j < intermediate; ++j) out[j] = gated(activation, gate_up[j], gate_up[intermediate + j]);
}

#else

#ifndef BLINK_ACTIVATION
#define BLINK_ACTIVATION BLINK_SILU
#endif
constexpr Activation kActivation = BLINK_ACTIVATION;

__device__ __forceinline__ float gated(float gate, float up) {
  return gated(kActivation, gate, up);
}

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
  for (int k = 0; k < 8; ++k) gate[k] = gated(gate[k], up[k]);
  store8(out + uint64_t(blockIdx.x) * intermediate + j, gate);
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ACTIVATION_H */
