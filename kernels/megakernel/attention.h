/* Attention: runs the units of a layer's attention that are a block's own. */
#ifndef BLINK_MEGAKERNEL_ATTENTION_H
#define BLINK_MEGAKERNEL_ATTENTION_H

#include "decode_attention.h"
#include "attention_units.h"
#include "scratch.h"

#ifdef __CUDACC__

namespace blink {

/* The attention of one block. Order: of its output, the input of the next matmul. */
template <typename Half, int HeadDim, int Group, typename Cache, typename Order>
class MegakernelAttention {
 public:
  using Work = DecodeAttention<Half, HeadDim, Group, Cache, Order, kMegakernelWarps, kStageTiles<Cache, HeadDim>>;
  using Prepared = typename Work::Prepared;
  using Scratch = typename Work::Scratch;

  static __device__ __forceinline__ void prepare(const struct blink_megakernel_model& model,
                                                 const struct blink_step_set& set, Prepared& prepared,
                                                 const MegakernelUnits<Group>& units, uint32_t unit) {
    if (unit < units.count()) prepared.prepare(units.unit(model, set, unit), static_cast<const RopePair*>(model.rope));
  }

  /* Attends in one layer. The block's first unit has been prepared. */
  template <typename Stream>
  static __device__ __forceinline__ void attend(const struct blink_megakernel_model& model,
                                                const struct blink_step_set& set, const struct blink_tables& tables,
                                                const struct blink_megakernel_buffers& buffers, Prepared& prepared,
                                                Scratch& scratch, Stream& stream, uint32_t index, uint32_t n_tokens) {
    const MegakernelUnits<Group> units(model, buffers, n_tokens);
    const ScratchLayout<Half> layout(buffers);
    const Half* const norms =
        model.head_norms ? static_cast<const Half*>(model.head_norms) + uint64_t(index) * 2 * HeadDim : nullptr;
    char* const keys = static_cast<char*>(model.cache) + uint64_t(index) * 2 * model.cache_bytes;
    const DecodeLayer<Half, Cache> layer = {tables,
                                            layout.qkv(index),
                                            norms,
                                            norms ? norms + HeadDim : nullptr,
                                            model.norm_eps,
                                            reinterpret_cast<Cache*>(keys),
                                            reinterpret_cast<Cache*>(keys + model.cache_bytes),
                                            layout.parts(index),
                                            layout.attention(index),
                                            model.n_heads,
                                            model.n_kv_heads,
                                            scales_of(model, index)};
    for (uint32_t unit = blockIdx.x; unit < units.count(); unit += gridDim.x) {
      if (units.count() > gridDim.x) {
        sync_workers(); /* every warp has read the unit before */
        prepare(model, set, prepared, units, unit);
        sync_workers();
      }
      if (!prepared.unit.exists()) continue;
      Work work(layer, prepared, units.splits);
      sync_workers(); /* the scratch is free: the sums of the matmul, or the unit before, have been read */
      work.run(scratch, stream);
    }
  }

 private:
  static __device__ __forceinline__ KvScales<Cache> scales_of(const struct blink_megakernel_model& model,
                                                              uint32_t layer) {
    if constexpr (KvElement<Cache>::kFp8)
      return {model.cache_scales[2 * layer], model.cache_scales[2 * layer + 1]};
    else
      return {1.0f, 1.0f};
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_ATTENTION_H */
