/* Matmul order: the matrices of a step in the order of their use. */
#ifndef BLINK_MEGAKERNEL_MATMUL_ORDER_H
#define BLINK_MEGAKERNEL_MATMUL_ORDER_H

#include "weight_stream_sm90.h"

#ifdef __CUDACC__

namespace blink {

enum Output { kToQkv, kToResidual, kToProduct, kToLogits };

/* The matrices of a step in order: of each layer qkv, o, gate_up and down, at last the head, which is of halves. Form:
 * of the layers' matrices. */
template <int HeadDim, ScaleForm Form>
struct MatmulOrder {
  const struct blink_megakernel_model& model;

  __device__ __forceinline__ uint32_t count() const { return 4 * model.n_layers + 1; }
  __device__ __forceinline__ uint32_t qkv_rows() const { return (model.n_heads + 2 * model.n_kv_heads) * HeadDim; }
  __device__ __forceinline__ Output output(uint32_t i) const {
    if (i + 1 == count()) return kToLogits;
    return i % 4 == 0 ? kToQkv : i % 4 == 2 ? kToProduct : kToResidual;
  }
  __device__ __forceinline__ BlockTiles<Form> tiles(uint32_t i) const {
    const Output to = output(i);
    const bool from_attention = i % 4 == 1, from_residual = to != kToResidual;
    const bool is_half = Form == kUnscaled || to == kToLogits;
    const uint32_t n_in = from_residual ? model.hidden : from_attention ? model.n_heads * HeadDim : model.intermediate;
    const uint32_t chunks = Form != kUnscaled && is_half ? model.head_chunks
                            : from_residual              ? model.hidden_chunks
                            : from_attention             ? model.attention_chunks
                                                         : model.intermediate_chunks;
    constexpr uint32_t kWord = kIsCodes<Form> ? 4 : kIsFp8<Form> ? 2 : 1; /* columns */
    const uint32_t n_out = to == kToLogits    ? model.vocab_size
                           : to == kToQkv     ? qkv_rows()
                           : to == kToProduct ? 2 * model.intermediate
                                              : model.hidden;
    BlockTiles<Form> tiles(model.maps + i, is_half ? n_in : n_in / kWord, n_out, chunks, to == kToProduct,
                           to == kToResidual ? 0 : i);
    if (kIsCodes<Form> && !is_half)
      tiles.scales = {model.maps + count() + i, model.scale_bytes, chunks, tiles.share() / kGemvChunk};
    return tiles;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_MATMUL_ORDER_H */
