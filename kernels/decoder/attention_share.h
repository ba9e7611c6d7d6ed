/* Attention share: which of a layer's attention is a block's, and its keys and values on their way. Those of earlier
 * steps depend on nothing: they come to L2 while the layer's qkv still streams, so that attention, which the weights'
 * rings can bridge for 5 us, does not wait for memory.
 */
#ifndef BLINK_DECODER_ATTENTION_SHARE_H
#define BLINK_DECODER_ATTENTION_SHARE_H

#include "../ops/attention_decode.h"
#include "weight_stream.h"

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

/* Brings the keys and values of the block's first unit to L2 while the layer's qkv streams; by the thread that requests
 * the weights of one warp, an eighth of them. Of the first layer nothing: its predecessor may not have ended. */
template <int HeadDim, int Group>
class KeyRequests {
 public:
  __device__ __forceinline__ KeyRequests(const struct blink_decoder_model& model, const struct blink_step_set& set,
                                         const struct blink_tables& tables, const struct blink_decoder_buffers& buffers)
      : model_(model), set_(set), tables_(tables), buffers_(buffers) {}

  __device__ __forceinline__ void operator()(uint32_t matrix, uint32_t n) {
    if (matrix == 0 || matrix % 4 != 0 || matrix == 4 * model_.n_layers) return;
    if (matrix == 4 && n == 0) find();
    const struct blink_decoder_layer& layer = model_.layers[matrix / 4];
    for (uint32_t i = kTiles * n; i < kTiles * (n + 1); ++i) {
      const uint32_t key = first_ + (threadIdx.x % kDecoderWarps + kDecoderWarps * i) * kTileKeys;
      if (key >= end_) return;
      const uint64_t at = 2 * cache_offset(tables_, row_, key, kv_head_, model_.n_kv_heads, HeadDim);
      prefetch_bulk(static_cast<const char*>(layer.k_cache) + at, 2 * kTileKeys * HeadDim);
      prefetch_bulk(static_cast<const char*>(layer.v_cache) + at, 2 * kTileKeys * HeadDim);
    }
  }

 private:
  static constexpr uint32_t kTiles = 2; /* for each request: few, so that they do not hold up the weights */

  __device__ __forceinline__ void find() {
    wait_for_predecessor();
    const DecoderUnits<Group> units(model_, buffers_, set_.head->n_lanes);
    const uint32_t unit = blockIdx.x;
    if (unit >= units.count()) return;
    const uint32_t token = set_.lane_last[units.lane(unit)], position = set_.token_position[token];
    const Splits splits(position, units.splits);
    row_ = set_.token_row[token];
    kv_head_ = units.group(unit) / units.groups_of_head;
    first_ = units.split(unit) * splits.keys;
    end_ = min(position, first_ + splits.keys);
  }

  const struct blink_decoder_model& model_;
  const struct blink_step_set& set_;
  const struct blink_tables& tables_;
  const struct blink_decoder_buffers& buffers_;
  uint32_t row_ = 0, kv_head_ = 0, first_ = 0, end_ = 0;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_ATTENTION_SHARE_H */
