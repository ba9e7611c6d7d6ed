/* Decoder: one decode step of a dense model from embedding to logits, as one kernel of blocks that stay.
 *
 *     embed, L x [qkv, attention, o + add, gate_up and silu * mul, down + add], head
 *
 * Few rows make a step a stream of weights. As one kernel per product the stream stops at every edge; here each
 * warp streams on (weight_stream.h) while the blocks meet (grid.h) between two products. The norms are part of
 * the products that read them: whoever writes a tile of the residual also writes its tokens' sums of squares.
 *
 * Maths and CPU twins are those of the ops that it is made of: embed.h, norm.h, linear.h, rope.h, attention.h,
 * activation.h.
 *
 * Up to BLINK_DECODER_TOKENS tokens, of which token i is lane i of the step; arguments.h has the buffers.
 */
#ifndef BLINK_DECODER_DECODER_H
#define BLINK_DECODER_DECODER_H

#include "../ops/attention_decode.h"
#include "../ops/embed.h"
#include "arguments.h"
#include "grid.h"
#include "product.h"

#ifdef __CUDACC__

namespace blink {

constexpr int kDecoderRegisters = 232; /* a thread: leaves some of the multiprocessor's for the next step's gate */

enum Output { kToQkv, kToResidual, kToProduct, kToLogits };

/* The matrices of a step in order: of each layer qkv, o, gate_up and down, at last the head. */
template <int HeadDim>
struct DecoderSequence {
  const struct blink_decoder_model& model;

  __device__ __forceinline__ uint32_t count() const { return 4 * model.n_layers + 1; }
  __device__ __forceinline__ uint32_t qkv_rows() const { return (model.n_heads + 2 * model.n_kv_heads) * HeadDim; }
  __device__ __forceinline__ Output output(uint32_t i) const {
    if (i + 1 == count()) return kToLogits;
    return i % 4 == 0 ? kToQkv : i % 4 == 2 ? kToProduct : kToResidual;
  }
  __device__ __forceinline__ BlockTiles tiles(uint32_t i) const {
    const Output to = output(i);
    const bool from_attention = i % 4 == 1, from_residual = to != kToResidual;
    const uint32_t n_in = from_residual ? model.hidden : from_attention ? model.n_heads * HeadDim : model.intermediate;
    const uint32_t chunks = from_residual    ? model.hidden_chunks
                            : from_attention ? model.attention_chunks
                                             : model.intermediate_chunks;
    const uint32_t n_out = to == kToLogits    ? model.vocab_size
                           : to == kToQkv     ? qkv_rows()
                           : to == kToProduct ? 2 * model.intermediate
                                              : model.hidden;
    return {model.maps + i, n_in, n_out, chunks, to == kToProduct, i};
  }
};

template <typename Half, int HeadDim, int Group>
class Decoder {
 public:
  using Attention = DecodeAttention<Half, HeadDim, Group, kDecoderWarps>;
  static constexpr uint32_t kTokens = BLINK_DECODER_TOKENS;

  struct __align__(128) Shared {
    char ring[kDecoderWarps][kStages * kStageBytes];
    uint64_t full[kDecoderWarps][kStages];
    float scale[kTokens], squares[kDecoderWarps][kTokens];
    union {
      ProductSums sums;
      typename Attention::Scratch attention;
    };
  };

  __device__ __forceinline__ Decoder(const struct blink_decoder_model& model, const struct blink_step_set& set,
                                     const struct blink_tables& tables, const struct blink_decoder_buffers& buffers,
                                     Shared& shared)
      : model_(model),
        set_(set),
        tables_(tables),
        buffers_(buffers),
        shared_(shared),
        grid_(buffers.meetings),
        sequence_{model},
        stream_(sequence_, shared.ring[threadIdx.x / 32], shared.full[threadIdx.x / 32]) {}

  __device__ __forceinline__ void run() {
    n_tokens_ = set_.head->n_lanes;
    embed();
    grid_.meet();
    /* Half layers, attention's and the MLP's; the head is like the first product of one more. */
#pragma unroll 1
    for (uint32_t i = 0;; ++i) {
      const bool is_head = i == 2 * model_.n_layers, is_mlp = i % 2;
      const struct blink_decoder_layer& layer = model_.layers[is_head ? 0 : i / 2];
      if (is_head) allow_successor(), grid_.leave();
      multiply_next(2 * i, normed(is_head ? model_.final_norm : is_mlp ? layer.post_norm : layer.input_norm));
      if (is_head) return;
      grid_.arrive_all();
      if (is_mlp)
        grid_.wait();
      else
        attend(layer);
      const Half* x = half(is_mlp ? buffers_.product : buffers_.attention);
      multiply_next(2 * i + 1, HalfRows<Half>{x, is_mlp ? model_.intermediate : model_.n_heads * HeadDim, n_tokens_});
      grid_.meet();
    }
  }

 private:
  using Normed = NormedRows<Half>;

  static __device__ __forceinline__ Half* half(void* p) { return static_cast<Half*>(p); }
  static __device__ __forceinline__ const Half* half(const void* p) { return static_cast<const Half*>(p); }

  /* residual = the tokens' embeddings, by tiles of 16 as products write them. */
  __device__ __forceinline__ void embed() {
    const uint32_t token = threadIdx.x / 8 % kTokens, row = threadIdx.x % 8;
    constexpr uint32_t per_round = kDecoderThreads / (8 * kTokens);
    for (uint32_t first = blockIdx.x * per_round; first < model_.hidden / kStreamRows; first += gridDim.x * per_round) {
      const uint32_t tile = first + threadIdx.x / (8 * kTokens);
      if (tile >= model_.hidden / kStreamRows) break; /* whole warps */
      const uint32_t at = tile * kStreamRows + row;
      float low = 0.0f, high = 0.0f;
      if (token < n_tokens_ && set_.token_row[token] != BLINK_NO_ROW) {
        const Half* source =
            static_cast<const Half*>(model_.embed) + uint64_t(token_id(set_, tables_, token)) * model_.hidden + at;
        low = to_float(source[0]), high = to_float(source[8]);
      }
      store_residual(tile, token, row, low, high);
    }
  }

  /* residual, at rows `row` and `row` + 8 of a tile, and the tile's sum of squares. */
  __device__ __forceinline__ void store_residual(uint32_t tile, uint32_t token, uint32_t row, float low, float high) {
    float square = low * low + high * high;
#pragma unroll
    for (int offset = 4; offset > 0; offset >>= 1) square += __shfl_xor_sync(0xffffffffu, square, offset);
    if (token >= n_tokens_) return;
    float* at = buffers_.residual + uint64_t(token) * model_.hidden + tile * kStreamRows + row;
    at[0] = low, at[8] = high;
    if (row == 0) buffers_.squares[tile * kTokens + token] = square;
  }

  /* shared_.scale from the tiles' squares. */
  __device__ __forceinline__ void scale_rows() {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = model_.hidden / kStreamRows * kTokens;
    float sum = 0.0f;
#pragma unroll 8
    for (uint32_t e = threadIdx.x; e < n; e += kDecoderThreads) sum += buffers_.squares[e];
#pragma unroll
    for (uint32_t offset = 16; offset >= kTokens; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane < kTokens) shared_.squares[warp][lane] = sum;
    __syncthreads();
    if (threadIdx.x < kTokens) {
      float total = 0.0f;
#pragma unroll
      for (uint32_t w = 0; w < kDecoderWarps; ++w) total += shared_.squares[w][threadIdx.x];
      shared_.scale[threadIdx.x] = 1.0f / sqrtf(total / float(model_.hidden) + model_.norm_eps);
    }
    __syncthreads();
  }

  __device__ __forceinline__ Normed normed(const void* weight) {
    scale_rows();
    return {buffers_.residual, half(weight), shared_.scale, model_.hidden, n_tokens_};
  }

  /* The matrix of the sequence whose turn it is. Outputs are told apart at run time, so that there is little code
   * to fetch. */
  template <typename Rows>
  __device__ __forceinline__ void multiply_next(uint32_t matrix, const Rows& rows) {
    const BlockTiles tiles = sequence_.tiles(matrix);
    const Output output = sequence_.output(matrix);
    multiply<Half>(stream_, tiles, rows, shared_.sums,
                   [&](uint32_t tile, uint32_t token, uint32_t row, float low, float high) {
                     store(output, tile, token, row, low, high);
                   });
  }

  /* Rows `row` and `row` + 8 of a tile of a product. */
  __device__ __forceinline__ void store(Output output, uint32_t tile, uint32_t token, uint32_t row, float low,
                                        float high) {
    const uint32_t at = tile * kStreamRows + row;
    if (output == kToResidual) {
      const float* residual = buffers_.residual + uint64_t(token) * model_.hidden + at;
      if (token < n_tokens_) low += residual[0], high += residual[8];
      store_residual(tile, token, row, low, high);
    } else if (token >= n_tokens_) {
      return;
    } else if (output == kToQkv) {
      Half* qkv = half(buffers_.qkv) + uint64_t(token) * sequence_.qkv_rows() + at;
      from_float(low, qkv);
      from_float(high, qkv + 8);
    } else if (output == kToProduct) {
      from_float(silu_mul(low, high), half(buffers_.product) + uint64_t(token) * model_.intermediate + tile * 8 + row);
    } else {
      float* logits = buffers_.logits + uint64_t(token) * model_.vocab_size + at;
      logits[0] = low, logits[8] = high;
    }
  }

  /* Units of work are (lane, group of query heads, split). The first one's keys are requested while the
   * products are still being written. */
  __device__ __forceinline__ void attend(const struct blink_decoder_layer& layer) {
    const uint32_t ratio = model_.n_heads / model_.n_kv_heads,
                   groups = model_.n_kv_heads * ((ratio + Group - 1) / Group);
    const uint32_t splits = min(buffers_.max_splits, max(1u, gridDim.x / max(1u, n_tokens_ * groups)));
    const uint32_t n_units = n_tokens_ * groups * splits;
    const DecodeLayer<Half> attention = {set_,
                                         tables_,
                                         half(buffers_.qkv),
                                         half(layer.q_norm),
                                         half(layer.k_norm),
                                         model_.norm_eps,
                                         model_.inv_freq,
                                         half(layer.k_cache),
                                         half(layer.v_cache),
                                         buffers_.partial,
                                         buffers_.arrivals,
                                         half(buffers_.attention),
                                         model_.n_heads,
                                         model_.n_kv_heads,
                                         buffers_.max_splits};
    bool waited = false;
    for (uint32_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
      const DecodePlace place(attention, unit / splits / groups, unit / splits % groups, Group);
      Attention work(attention, place, unit % splits, splits);
      if (!waited) grid_.wait();
      waited = true;
      if (work.exists()) work.run(shared_.attention);
    }
    if (!waited) grid_.wait();
    grid_.meet();
  }

  const struct blink_decoder_model& model_;
  const struct blink_step_set& set_;
  const struct blink_tables& tables_;
  const struct blink_decoder_buffers& buffers_;
  Shared& shared_;
  Grid grid_;
  DecoderSequence<HeadDim> sequence_;
  WeightStream<Half, DecoderSequence<HeadDim>> stream_;
  uint32_t n_tokens_ = 0;
};

/* grid (any that is resident at once), block (kDecoderThreads), sizeof(Decoder::Shared) of dynamic shared
 * memory. hidden, heads * HeadDim and intermediate are multiples of 256, the vocabulary of 16. */
template <typename Half, int HeadDim, int Group>
__global__ void __maxnreg__(kDecoderRegisters)
    decoder_kernel(const __grid_constant__ struct blink_step_set set,
                   const __grid_constant__ struct blink_tables tables,
                   const __grid_constant__ struct blink_decoder_model model,
                   const __grid_constant__ struct blink_decoder_buffers buffers) {
  using Block = Decoder<Half, HeadDim, Group>;
  static_assert(sizeof(typename Block::Shared) <= BLINK_DECODER_SHARED_BYTES, "does not fit");
  Block decoder(model, set, tables, buffers, *reinterpret_cast<typename Block::Shared*>(dynamic_shared()));
  wait_for_predecessor();
  decoder.run();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_DECODER_DECODER_H */
