/* Producer: fills a block's pipelines in the order in which its warps use the data: the weights of a step, and in each
 * layer, between the weights of qkv and of o, the keys and values that the block attends to.
 */
#ifndef BLINK_MEGAKERNEL_PRODUCER_SM90_H
#define BLINK_MEGAKERNEL_PRODUCER_SM90_H

#include "attention_units.h"
#include "matmul_order.h"

#ifdef __CUDACC__

namespace blink {

/* Keys and values for one warp: its tiles of the block's units of attention, the same in every layer. Earlier steps
 * have written them, and all have when the predecessor has ended. */
template <typename Cache, int HeadDim, int Group>
class KvProducer {
 public:
  __device__ __forceinline__ KvProducer(const struct blink_megakernel_model& model, const struct blink_step_set& set,
                                        const struct blink_tables& tables,
                                        const struct blink_megakernel_buffers& buffers, uint32_t warp)
      : model_(model), set_(set), tables_(tables), buffers_(buffers), warp_(warp) {}

  /* Begins a layer. The first call finds out which units there are. */
  __device__ __forceinline__ void begin() {
    if (known_ == kNone) {
      wait_for_predecessor();
      n_units_ = units().count();
    }
    unit_ = blockIdx.x;
    enter();
  }
  __device__ __forceinline__ bool ended() const { return key_ >= end_; }

  /* Requests the next stage of the layer. */
  __device__ __forceinline__ void request(uint32_t layer, char* stage, uint64_t* full) {
    barrier_expect(full, min(kTiles, (end_ - key_ + kStep - 1) / kStep) * kTileBytes<Cache, HeadDim>);
#pragma unroll
    for (uint32_t t = 0; t < kTiles; ++t) {
      const uint32_t key = key_ + t * kStep, in_page = key % tables_.page_size;
      const uint32_t row = (page_[t] * model_.n_kv_heads + kv_head_) * tables_.page_size + in_page;
      if (key < end_) copy_rows(stage + t * kTileBytes<Cache, HeadDim>, model_.cache_maps + layer, row, full);
    }
    key_ += kTiles * kStep;
    if (key_ < end_) {
      look_up();
    } else {
      unit_ += gridDim.x;
      enter();
    }
  }

 private:
  static constexpr uint32_t kTiles = kStageTiles<Cache, HeadDim>, kStep = kMegakernelWarps * kTileKeys,
                            kNone = 0xffffffff;

  __device__ __forceinline__ MegakernelUnits<Group> units() const { return {model_, buffers_, set_.head->batch_size}; }

  /* Goes to the next unit in which the warp has keys, if there is one. */
  __device__ __forceinline__ void enter() {
    for (; unit_ < n_units_; unit_ += gridDim.x) {
      if (unit_ != known_) learn();
      key_ = first_, end_ = last_;
      if (key_ >= end_) continue;
      look_up();
      return;
    }
  }
  __device__ __forceinline__ void learn() {
    const DecodeUnit unit = units().unit(model_, set_, unit_);
    known_ = unit_, sequence_ = unit.sequence, kv_head_ = unit.kv_head;
    first_ = unit.first_key(warp_), last_ = unit.end_key();
  }
  /* Loads the page numbers of the next stage's tiles, which have arrived by the time the stage is requested. */
  __device__ __forceinline__ void look_up() {
    const uint32_t* pages = tables_.block_table + uint64_t(sequence_) * tables_.pages_per_sequence;
#pragma unroll
    for (uint32_t t = 0; t < kTiles; ++t)
      if (key_ + t * kStep < end_) page_[t] = load_relaxed32(pages + (key_ + t * kStep) / tables_.page_size);
  }

  const struct blink_megakernel_model& model_;
  const struct blink_step_set& set_;
  const struct blink_tables& tables_;
  const struct blink_megakernel_buffers& buffers_;
  const uint32_t warp_;
  uint32_t n_units_ = 0, known_ = kNone, sequence_ = 0, kv_head_ = 0, first_ = 0,
           last_ = 0;                                         /* of the unit last learnt */
  uint32_t unit_ = 0, key_ = 0, end_ = 0, page_[kTiles] = {}; /* what is requested next */
};

/* Fills the pipeline of one warp. One thread does so, with one stage at a time under way, or two where stages are those
 * of codes. It polls its barriers instead of blocking on them, since the threads that serve the other warps are in the
 * same warp. */
template <typename Cache, int HeadDim, int Group, ScaleForm Form>
class StageProducer {
 public:
  __device__ __forceinline__ StageProducer(const MatmulOrder<HeadDim, Form>& order,
                                           const KvProducer<Cache, HeadDim, Group>& keys,
                                           WeightPipelines<Form>& pipelines, uint32_t warp)
      : order_(order), pipelines_(pipelines), warp_(warp), tiles_(order.tiles(0)), keys_(keys) {}

  __device__ __forceinline__ void run() {
    /* Before the first phase of a barrier, that of parity 1 is complete. */
    PipelineState before = {Shape::kCount - 2, 1}, last = {Shape::kCount - 1, 1}, to;
    while (matrix_ < order_.count()) {
      const PipelineState& awaited = two_under_way() ? before : last;
      if (!barrier_test(&pipelines_.full[warp_][awaited.index], awaited.phase) || !is_empty(to.index, to.phase))
        continue;
      char* stage = pipelines_.of[warp_].stage[to.index];
      uint64_t* full = &pipelines_.full[warp_][to.index];
      const bool of_keys = !keys_.ended();
      if (!of_keys) {
        request_weights(stage, full);
      } else if (!Shape::takes_keys(to.index)) {
        barrier_expect(full, 0); /* it comes empty */
        to.next(Shape::kCount);
        continue;
      } else {
        if (Shape::kOfKeys == 2 && !is_empty(to.index + 1, to.phase)) continue;
        keys_.request(matrix_ / 4, stage, full);
      }
      before = last, last = to;
      to.next(Shape::kCount);
      if (Shape::kOfKeys == 2 && of_keys) {
        barrier_expect(full + 1, 0);
        to.next(Shape::kCount);
      }
    }
  }

 private:
  using Shape = StageShape<Form>;

  /* Whether what the stage brought before has been used. */
  __device__ __forceinline__ bool is_empty(uint32_t index, uint32_t phase) const {
    return barrier_test(&pipelines_.empty[warp_][index], phase ^ 1);
  }
  /* Whether the next stage is requested while the one before is on its way. */
  __device__ __forceinline__ bool two_under_way() const { return kIsCodes<Form> && keys_.ended(); }
  __device__ __forceinline__ void request_weights(char* stage, uint64_t* full) {
    const uint32_t end = min(kPassTiles, tiles_.count - pass_), n = min(tiles_.stage_tiles(), end - tile_);
    barrier_expect(full, n * tiles_.tile_bytes());
#pragma unroll 1
    for (uint32_t i = 0; i < n; ++i) tiles_.copy(stage + i * tiles_.tile_bytes(), warp_, pass_ + tile_ + i, k_, full);
    tile_ += n;
    if (tile_ < end) return;
    tile_ = 0;
    k_ += tiles_.stage_k();
    if (k_ < tiles_.share()) return;
    k_ = 0;
    pass_ += kPassTiles;
    if (pass_ < tiles_.count) return;
    pass_ = 0;
    const Output output = order_.output(matrix_++);
    if (matrix_ < order_.count()) tiles_ = order_.tiles(matrix_);
    if (output == kToQkv) keys_.begin();
  }

  const MatmulOrder<HeadDim, Form> order_;
  WeightPipelines<Form>& pipelines_;
  const uint32_t warp_;
  /* The weights that are requested next, once there are no keys left to request. */
  BlockTiles<Form> tiles_;
  uint32_t matrix_ = 0, pass_ = 0, k_ = 0, tile_ = 0;
  KvProducer<Cache, HeadDim, Group> keys_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_PRODUCER_SM90_H */
