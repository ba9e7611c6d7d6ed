/* The warps of the megakernel that compute: the step of a block, and the residual of its tiles (megakernel_sm90.h). */
#ifndef BLINK_MEGAKERNEL_CONSUMER_SM90_H
#define BLINK_MEGAKERNEL_CONSUMER_SM90_H

#include "kernels/ops/embed.h"
#include "attention.h"
#include "scratch.h"
#include "matmul.h"
#include "matmul_order.h"
#include "row_scales.h"

#ifdef __CUDACC__

namespace blink {

template <typename Half, int HeadDim, int Group, typename Cache, ScaleForm Form>
class Megakernel {
 public:
  using Share = MegakernelAttention<Half, HeadDim, Group, Cache, InputOrder<Form>>;
  using Scales = RowScales<Half>;

  struct __align__(128) Shared {
    WeightPipelines<Form> pipelines;
    typename Scales::Squares squares;
    typename Share::Prepared prepared;  /* the block's unit of attention */
    uint32_t norm[kMegakernelWarps][8]; /* weights for the residual's tiles (Megakernel::norm) */
    uint32_t is_last;
    union {
      MatmulSums sums;
      typename Share::Scratch attention;
    };
  };

  __device__ __forceinline__ Megakernel(const struct blink_megakernel_model& model, const struct blink_step_set& set,
                                        const struct blink_tables& tables,
                                        const struct blink_megakernel_buffers& buffers, Shared& shared)
      : model_(model),
        set_(set),
        tables_(tables),
        buffers_(buffers),
        layout_(buffers),
        shared_(shared),
        scales_(layout_, shared.squares, model),
        order_{model},
        stream_(shared.pipelines) {}

  __device__ __forceinline__ void run() {
    n_tokens_ = set_.head->batch_size;
    scales_.start(n_tokens_);
    embed();
    prepare_attention();
#pragma unroll 1
    for (uint32_t i = 0;; ++i) {
      const bool is_head = i + 1 == order_.count();
      if (is_head) allow_successor();
      multiply_next(i);
      if (is_head) break;
      if (i % 4 == 0)
        Share::attend(model_, set_, tables_, buffers_, shared_.prepared, shared_.attention, stream_, i / 4, n_tokens_);
      if (i % 4 == 1 && i > 4) layout_.clear(i / 4 - 1); /* every block has read it (E10) */
    }
    leave();
  }

 private:
  static __device__ __forceinline__ Half* half(void* p) { return static_cast<Half*>(p); }
  static __device__ __forceinline__ const Half* half(const void* p) { return static_cast<const Half*>(p); }

  /* The last block to end clears the scratch that the head has read. */
  __device__ __forceinline__ void leave() {
    layout_.clear(model_.n_layers - 1);
    sync_workers();
    if (threadIdx.x == 0) shared_.is_last = arrive(buffers_.leavers) == gridDim.x - 1;
    sync_workers();
    if (!shared_.is_last) return;
    layout_.clear_head(model_.n_layers);
    if (threadIdx.x == 0) *buffers_.leavers = 0;
  }

  /* What the i-th matrix multiplies. */
  __device__ __forceinline__ MatmulInput<Half> input(uint32_t i) const {
    if (order_.output(i) != kToResidual) return {layout_.normed(i / 2), n_tokens_};
    return {i % 4 == 1 ? layout_.attention(i / 4) : layout_.mlp(i / 4), n_tokens_};
  }
  /* Weights of the norm-th norm for rows tile_row() and + 8 of a tile, which lie together. They come from memory, late.
   * So they are requested together with the matmul's input and stay in shared memory until they are needed. */
  __device__ __forceinline__ const uint32_t* norm(uint32_t index, uint32_t tile) const {
    return static_cast<const uint32_t*>(model_.norms) + (index * model_.hidden + tile * kGemvRows) / 2 + tile_row();
  }
  __device__ __forceinline__ void request_norm(uint32_t index, uint32_t tile) const {
    if (threadIdx.x % 4 == 0) copy_word(&shared_.norm[threadIdx.x / 32][tile_row()], norm(index, tile));
  }
  __device__ __forceinline__ uint32_t receive_norm() const {
    copied_words();
    __syncwarp();
    return shared_.norm[threadIdx.x / 32][tile_row()];
  }

  static __device__ __forceinline__ uint32_t tile_row() { return threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ uint32_t tile_token() { return threadIdx.x % 4 * 2; }

  /* Each block holds the residual of its own tiles of hidden, one tile for each warp. */
  __device__ __forceinline__ void embed() {
    const BlockTiles<Form> tiles = order_.tiles(1);
    const uint32_t warp = threadIdx.x / 32;
    if (warp >= tiles.count) return;
    const uint32_t at = tiles.index(warp) * kGemvRows + tile_row();
#pragma unroll
    for (uint32_t t = 0; t < 2; ++t) {
      const uint32_t token = tile_token() + t;
      if (token >= n_tokens_ || set_.token_sequence[token] == BLINK_NO_SEQUENCE) continue;
      const Half* source = half(model_.embed) + uint64_t(token_id(set_, tables_, token)) * model_.hidden + at;
      low_[t] = to_float(source[0]), high_[t] = to_float(source[8]);
    }
    const float by[2] = {1.0f, 1.0f};
    put_residual(0, tiles.index(warp), by, *norm(0, tiles.index(warp)));
  }

  /* Publishes the tile's sums of squares, and the next matmul's input: the rows times `by` and the norm's weights. */
  __device__ __forceinline__ void put_residual(uint32_t norm, uint32_t tile, const float (&by)[2], uint32_t weights) {
    const Half* halves = reinterpret_cast<const Half*>(&weights);
    const float low = to_float(halves[0]), high = to_float(halves[1]);
#pragma unroll
    for (uint32_t t = 0; t < 2; ++t) {
      const uint32_t token = tile_token() + t;
      put_normed(norm, token, tile, low_[t] * by[t] * low, high_[t] * by[t] * high);
      float square = low_[t] * low_[t] + high_[t] * high_[t];
#pragma unroll
      for (int offset = 16; offset >= 4; offset >>= 1) square += __shfl_xor_sync(0xffffffffu, square, offset);
      if (token < n_tokens_ && tile_row() == 0)
        put_float(layout_.squares(norm) + tile * BLINK_MEGAKERNEL_TOKENS + token, square);
    }
  }

  /* Rows tile_row() and + 8 of a tile for a token, in pairs: blocks exchange whole words. `apart`: from the tile's
   * first eight rows, which are neighbours, to the others. */
  __device__ __forceinline__ void put_rows(Half* to, uint32_t apart, uint32_t token, float low, float high) {
    const bool odd = tile_row() % 2;
    const float other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 4);
    if (token >= n_tokens_) return;
    to += tile_row() / 2 * 2;
    if (odd)
      put_pair(to + apart, other, high);
    else
      put_pair(to, low, other);
  }
  __device__ __forceinline__ void put_normed(uint32_t norm, uint32_t token, uint32_t tile, float low, float high) {
    using OfLayer = InputOrder<Form>;
    using OfHead = InputOrder<kUnscaled>;
    const bool is_head = norm == 2 * model_.n_layers;
    const uint32_t column = tile * kGemvRows, apart = is_head ? OfHead::element(0, 8) : OfLayer::element(0, 8);
    const uint32_t first = is_head ? OfHead::element(token, column) : OfLayer::element(token, column);
    put_rows(layout_.normed(norm) + first, apart, token, low, high);
  }

  /* The scales of rows tile_row() and + 8 of a tile, requested likewise: they stay in registers. */
  __device__ __forceinline__ void request_row_scales(uint32_t i, uint32_t tile, OutputScales& scales) const {
    const bool is_product = order_.output(i) == kToProduct;
    const float* of = reinterpret_cast<const float*>(model_.weight_scales[i]) + tile_row();
    of += tile * (is_product ? kGemvRows / 2 : kGemvRows);
    load_scale(of, true, scales.low);
    load_scale(of + (is_product ? model_.intermediate : 8), true, scales.high);
  }

  /* Stores the i-th matmul's result. Kinds of output are told apart at run time, which keeps the code small. */
  struct Epilogue {
    Megakernel& megakernel;
    const BlockTiles<Form>& tiles;
    const uint32_t i;
    const Output output;
    typename Scales::Words words = {}; /* of the norm that the matmul reads */
    float by[2] = {};                  /* what a token's row is multiplied by */
    OutputScales scales = {};          /* and what two rows of w are, if these are in fp8 */

    __device__ __forceinline__ Epilogue(Megakernel& all, const BlockTiles<Form>& of_block, uint32_t index, Output to)
        : megakernel(all), tiles(of_block), i(index), output(to) {}

    __device__ __forceinline__ void request_scales(uint32_t pass) {
      const uint32_t tile = pass + threadIdx.x / 32;
      if (Form == kScaleByRow && output != kToLogits && tile < tiles.count)
        megakernel.request_row_scales(i, tiles.index(tile), scales);
    }
    __device__ __forceinline__ void request() {
      const uint32_t warp = threadIdx.x / 32;
      if (output != kToResidual) {
        megakernel.scales_.request(i / 2, words);
      } else if (warp < tiles.count) {
        megakernel.request_norm(i / 2 + 1, tiles.index(warp));
      }
    }
    __device__ __forceinline__ void receive() {
      if (output != kToResidual) megakernel.scales_.receive(i / 2, words);
    }
    __device__ __forceinline__ void prepare() {
#pragma unroll
      for (uint32_t t = 0; t < 2; ++t) {
        const uint32_t token = tile_token() + t;
        by[t] = megakernel.scales_.scale(i / 2, token);
        if (output != kToResidual && i > 0) by[t] *= megakernel.scales_.unscale(i / 2 - 1, token);
      }
    }
    __device__ __forceinline__ void put(uint32_t tile, float4 sum) {
      const uint32_t index = tiles.index(tile);
      if (Form == kScaleByRow && output != kToLogits)
        sum = make_float4(sum.x * scales.low, sum.y * scales.low, sum.z * scales.high, sum.w * scales.high);
      if (output != kToResidual) {
        megakernel.put(output, i / 4, index, tile_token(), sum.x * by[0], sum.z * by[0]);
        megakernel.put(output, i / 4, index, tile_token() + 1, sum.y * by[1], sum.w * by[1]);
        return;
      }
      megakernel.low_[0] += sum.x, megakernel.high_[0] += sum.z, megakernel.low_[1] += sum.y,
          megakernel.high_[1] += sum.w;
      megakernel.put_residual(i / 2 + 1, index, by, megakernel.receive_norm());
    }
  };

  /* Multiplies by the i-th matrix of the step. */
  __device__ __forceinline__ void multiply_next(uint32_t i) {
    const BlockTiles<Form> tiles = order_.tiles(i);
    Epilogue epilogue(*this, tiles, i, order_.output(i));
    if (Form != kUnscaled && order_.output(i) == kToLogits)
      multiply<Half, kUnscaled>(stream_, tiles, input(i), shared_.sums, epilogue);
    else
      multiply<Half, Form>(stream_, tiles, input(i), shared_.sums, epilogue);
  }

  /* Stores rows tile_row() and + 8 of a tile for a token; the output is not the residual. */
  __device__ __forceinline__ void put(Output output, uint32_t layer, uint32_t tile, uint32_t token, float low,
                                      float high) {
    if (output == kToQkv) {
      Half* first = layout_.qkv(layer) + uint64_t(token) * order_.qkv_rows() + tile * kGemvRows;
      put_rows(first, 8, token, low, high);
    } else if (output == kToProduct) {
      const float value = gated(low, high), next = __shfl_xor_sync(0xffffffffu, value, 4);
      if (token >= n_tokens_ || tile_row() % 2) return;
      put_pair(layout_.mlp(layer) + InputOrder<Form>::element(token, tile * 8 + tile_row()), value, next);
    } else if (token < n_tokens_) {
      float* logits = buffers_.logits + uint64_t(token) * model_.vocab_size + tile * kGemvRows + tile_row();
      logits[0] = low, logits[8] = high;
    }
  }

  /* Runs before any layer: prepares the block's first unit of attention, which is usually its only one. */
  __device__ __forceinline__ void prepare_attention() {
    const MegakernelUnits<Group> units(model_, buffers_, n_tokens_);
    Share::prepare(model_, set_, shared_.prepared, units, blockIdx.x);
    sync_workers();
  }
  const struct blink_megakernel_model& model_;
  const struct blink_step_set& set_;
  const struct blink_tables& tables_;
  const struct blink_megakernel_buffers& buffers_;
  ScratchLayout<Half> layout_;
  Shared& shared_;
  Scales scales_;
  MatmulOrder<HeadDim, Form> order_;
  WeightStream<Half, Form> stream_;
  uint32_t n_tokens_ = 0;
  float low_[2] = {}, high_[2] = {}; /* residual: rows tile_row() and + 8 of a tile for two tokens */
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_CONSUMER_SM90_H */
