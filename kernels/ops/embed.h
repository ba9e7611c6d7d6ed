/* Embed: residual[i] = scale * table[id of token i], zero for padding.
 *
 *   set.token_sequence, set.token_position  [tokens]
 *   table     [vocab][hidden]
 *   residual  [tokens][hidden] fp32
 *
 * An id outside the vocabulary cannot come from a prompt (the scheduler refuses it) nor from the sampler.
 */
#ifndef BLINK_OPS_EMBED_H
#define BLINK_OPS_EMBED_H

#include "kernels/primitives/common.h"

namespace blink {

/* The id of token i, which is not padding. */
BLINK_HD uint32_t token_id(const struct blink_step_set& set, const struct blink_tables& tables, uint32_t i) {
  return tables.history[uint64_t(set.token_sequence[i]) * tables.max_context + set.token_position[i]];
}

#ifndef __CUDACC__

inline void embed(const struct blink_step_set& set, const struct blink_tables& tables, const float* table,
                  float* residual, uint32_t hidden, float scale, uint32_t i) {
  const bool padding = set.token_sequence[i] == BLINK_NO_SEQUENCE;
  const float* source = padding ? nullptr : table + uint64_t(token_id(set, tables, i)) * hidden;
  for (uint32_t j = 0; j < hidden; ++j) residual[uint64_t(i) * hidden + j] = padding ? 0.0f : scale * source[j];
}

#else

/* grid (tokens), block (any multiple of 32); hidden is a multiple of 8. */
template <typename Half>
__global__ void embed_kernel(struct blink_step_set set, struct blink_tables tables, const Half* table, float* residual,
                             uint32_t hidden, float scale) {
  allow_successor();
  wait_for_predecessor();
  const uint32_t i = blockIdx.x;
  const bool padding = set.token_sequence[i] == BLINK_NO_SEQUENCE;
  const Half* source = padding ? nullptr : table + uint64_t(token_id(set, tables, i)) * hidden;
  for (uint32_t j = threadIdx.x * 8; j < hidden; j += blockDim.x * 8) {
    float x[8] = {};
    if (!padding) load8(source + j, x);
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] *= scale;
    store8(residual + uint64_t(i) * hidden + j, x);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_EMBED_H */
