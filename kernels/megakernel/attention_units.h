/* Attention units: how the megakernel's blocks divide a layer's attention. */
#ifndef BLINK_MEGAKERNEL_ATTENTION_UNITS_H
#define BLINK_MEGAKERNEL_ATTENTION_UNITS_H

#include "decode_unit.h"
#include "arguments.h"

#ifdef __CUDACC__

namespace blink {

/* A unit of attention's work is a (batch slot, group of query heads, KV split). A block has every gridDim.x-th unit. */
template <int Group>
struct MegakernelUnits {
  uint32_t tokens, groups_of_head, groups, splits;

  __device__ __forceinline__ MegakernelUnits(const struct blink_megakernel_model& model,
                                             const struct blink_megakernel_buffers& buffers, uint32_t n_tokens)
      : tokens(n_tokens),
        groups_of_head((model.n_heads / model.n_kv_heads + Group - 1) / Group),
        groups(model.n_kv_heads * groups_of_head),
        splits(min(buffers.max_splits, max(1u, gridDim.x / max(1u, n_tokens * groups)))) {}

  __device__ __forceinline__ uint32_t count() const { return tokens * groups * splits; }
  __device__ __forceinline__ DecodeUnit unit(const struct blink_megakernel_model& model,
                                             const struct blink_step_set& set, uint32_t index) const {
    return {
        set,   model.n_heads, model.n_kv_heads, Group, index / splits / groups, index / splits % groups, index % splits,
        splits};
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_ATTENTION_UNITS_H */
