/* Activation of a gated MLP: out[i] = f(gate[i]) * up[i], where f is silu(x) = x / (1 + exp(-x)), or GELU in its tanh
 * approximation, which transformers calls gelu_pytorch_tanh: x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)) with
 * u = sqrt(2 / pi) (x + 0.044715 x^3). The clamped SwiGLU of gpt-oss is f(gate') * (up' + 1), where gate' is gate but
 * at most 7, up' is up but within -7 and 7, and f(x) = x / (1 + exp(-1.702 x)).
 *
 *   gate_up  [tokens][2][intermediate] half (fp32 on the host)
 *   out      [tokens][intermediate] half
 *
 * A model has one activation, which its module of kernels is compiled with: BLINK_ACTIVATION. All kernels that end in
 * an activation call gated(), or gated_fast() of tiled_epilogue_sm90.h; a further activation is a case of gate_logit(),
 * and if it is more than f, of clamp_inputs().
 */
#ifndef BLINK_OPS_ACTIVATION_H
#define BLINK_OPS_ACTIVATION_H

#include "kernels/reference/model.h"
#include "kernels/primitives/common.h"

namespace blink {

using Activation = enum blink_activation;

/* What the activation makes of gate and up before it multiplies f(gate) by up. */
BLINK_HD void clamp_inputs(Activation activation, float& gate, float& up) {
  if (activation != BLINK_CLAMPED_SWIGLU) return;
  constexpr float kLimit = 7.0f;
  gate = fminf(gate, kLimit);
  up = fminf(fmaxf(up, -kLimit), kLimit) + 1.0f;
}

/* s(gate), where f(gate) = gate / (1 + exp(-s(gate))). */
BLINK_HD float gate_logit(Activation activation, float gate) {
  if (activation == BLINK_GELU_TANH) return 1.5957691216f * (gate + 0.044715f * gate * gate * gate);
  if (activation == BLINK_CLAMPED_SWIGLU) return 1.702f * gate;
  return gate;
}

BLINK_HD float gated(Activation activation, float gate, float up) {
  clamp_inputs(activation, gate, up);
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
