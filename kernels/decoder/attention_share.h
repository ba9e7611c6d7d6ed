/* Attention share: which of a layer's attention is a block's. */
#ifndef BLINK_DECODER_ATTENTION_SHARE_H
#define BLINK_DECODER_ATTENTION_SHARE_H

#include "../ops/attention_decode.h"
#include "arguments.h"
#include "exchange_places.h"

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

/* What a block does of it. */
template <typename Half, int HeadDim, int Group>
struct AttentionShare {
  using Work = DecodeAttention<Half, HeadDim, Group, kDecoderWarps>;
  using Prepared = typename Work::Prepared;
  using Scratch = typename Work::Scratch;

  static __device__ __forceinline__ void prepare(const struct blink_decoder_model& model,
                                                 const struct blink_step_set& set, const struct blink_tables& tables,
                                                 Prepared& prepared, const DecoderUnits<Group>& units, uint32_t unit) {
    if (unit >= units.count()) return;
    const DecodeUnit of_block(set, model.n_heads, model.n_kv_heads, Group, units.lane(unit), units.group(unit),
                              units.split(unit), units.splits);
    prepared.prepare(of_block, tables, model.n_kv_heads, model.inv_freq);
  }

  /* Of one layer, with the block's first unit prepared. Its keys are requested while the product is still being
   * written. */
  static __device__ __forceinline__ void attend(const struct blink_decoder_model& model,
                                                const struct blink_step_set& set, const struct blink_tables& tables,
                                                const struct blink_decoder_buffers& buffers, Prepared& prepared,
                                                Scratch& scratch, uint32_t index, uint32_t n_tokens) {
    const DecoderUnits<Group> units(model, buffers, n_tokens);
    const ExchangePlaces<Half> places(buffers);
    const Half* const norms =
        model.head_norms ? static_cast<const Half*>(model.head_norms) + uint64_t(index) * 2 * HeadDim : nullptr;
    char* const keys = static_cast<char*>(model.cache) + uint64_t(index) * 2 * model.cache_bytes;
    const DecodeLayer<Half> layer = {tables,
                                     places.qkv(index),
                                     norms,
                                     norms ? norms + HeadDim : nullptr,
                                     model.norm_eps,
                                     reinterpret_cast<Half*>(keys),
                                     reinterpret_cast<Half*>(keys + model.cache_bytes),
                                     places.parts(index),
                                     places.attention(index),
                                     model.n_heads,
                                     model.n_kv_heads};
    for (uint32_t unit = blockIdx.x; unit < units.count(); unit += gridDim.x) {
      if (units.count() > gridDim.x) {
        sync_workers(); /* the unit before has been read */
        prepare(model, set, tables, prepared, units, unit);
        sync_workers();
      }
      if (!prepared.unit.exists()) continue;
      Work work(layer, prepared, units.splits);
      sync_workers(); /* the scratch has been read: the product's sums, or the unit's before */
      work.run(scratch);
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_ATTENTION_SHARE_H */
