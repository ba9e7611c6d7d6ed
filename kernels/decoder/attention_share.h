/* Attention share: which of a layer's attention is a block's. */
#ifndef BLINK_DECODER_ATTENTION_SHARE_H
#define BLINK_DECODER_ATTENTION_SHARE_H

#include "arguments.h"

#ifdef __CUDACC__

namespace blink {

/* Units of attention's work are (lane, group of query heads, split); a block's are every gridDim.x-th. */
template <int Group>
struct DecoderUnits {
  uint32_t tokens, groups_of_head, groups, splits;

  __device__ __forceinline__ DecoderUnits(const struct blink_decoder_model& model,
                                          const struct blink_decoder_buffers& buffers, uint32_t n_tokens)
      : tokens(n_tokens),
        groups_of_head((model.n_heads / model.n_kv_heads + Group - 1) / Group),
        groups(model.n_kv_heads * groups_of_head),
        splits(min(buffers.max_splits, max(1u, gridDim.x / max(1u, n_tokens * groups)))) {}

  __device__ __forceinline__ uint32_t count() const { return tokens * groups * splits; }
  __device__ __forceinline__ uint32_t lane(uint32_t unit) const { return unit / splits / groups; }
  __device__ __forceinline__ uint32_t group(uint32_t unit) const { return unit / splits % groups; }
  __device__ __forceinline__ uint32_t split(uint32_t unit) const { return unit % splits; }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_ATTENTION_SHARE_H */
