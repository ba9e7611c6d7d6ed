/* Flash attention to keys and values in fp8 (flash_attention_sm90.h): the warps that make float16 of them.
 *
 * The warpgroup beside those that multiply copies tiles of fp8 into shared memory, where its four warps read them and
 * leave float16 as the wgmma instructions take it. The tensor cores so see what they see of a cache of halves, at the
 * same rate, and conversions run beside them.
 */
#ifndef BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H

#include "flash_producer_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* Run by all four warps. Each has every fourth 8 keys of a tile; the first copies, too. Tiles come in the order in
 * which they are multiplied: the first keys, then the next tile's keys and this one's values by turns. */
template <typename Out, int HeadDim>
class FlashConverter : FlashProducer<Out, HeadDim, Fp8> {
 public:
  using Base = FlashProducer<Out, HeadDim, Fp8>;
  using Base::Base;

  __device__ __forceinline__ void run() {
    for (FlashWork work(this->a_); work.next();) {
      const PrefillUnit unit = this->a_.plan[1 + work.unit()];
      const uint32_t head = work.head(this->a_.pack);
      this->begin(unit, head);
      const uint32_t n_tiles = (this->boxes_ + Base::kBoxes - 1) / Base::kBoxes;
      if (warp_ == 0) {
        copied_ = 0, next_ = this->atom_of(0);
        for (uint32_t ahead = 1; ahead < kFlashRawStages; ++ahead) copy_next(n_tiles);
        this->copy_queries(head, unit.first);
      }
      for (uint32_t i = 0; i < 2 * n_tiles; ++i) {
        if (warp_ == 0) copy_next(n_tiles);
        if (is_keys(i, n_tiles))
          convert(this->shared_.k[0], this->shared_.k_full, this->shared_.k_empty, this->k_stage_);
        else
          convert(this->shared_.v[0], this->shared_.v_full, this->shared_.v_empty, this->v_stage_);
      }
    }
  }

 private:
  using Shared = typename Base::Shared;

  /* Of the i-th of a unit's copies: keys 0, then keys 1, values 0, keys 2, values 1, .. and the last values. */
  static __device__ __forceinline__ bool is_keys(uint32_t i, uint32_t n_tiles) {
    return i == 0 || (i % 2 == 1 && i + 1 < 2 * n_tiles);
  }

  /* Requests the unit's next tile, if there is one. Its place is free: all warps have converted what was there. Where
   * the next keys are is looked up now, for then. */
  __device__ __forceinline__ void copy_next(uint32_t n_tiles) {
    if (copied_ == 2 * n_tiles) return;
    const bool keys = is_keys(copied_, n_tiles), last = copied_ + 1 == 2 * n_tiles;
    const uint32_t tile = keys || last ? (copied_ + 1) / 2 - last : (copied_ - 2) / 2, first = tile * Base::kBoxes;
    if (keys) {
      before_ = now_, now_ = next_;
      next_ = this->atom_of(first + Base::kBoxes);
    }
    const uint32_t atom = keys ? this->a_.key_atoms + now_ : this->a_.value_atoms + (last ? now_ : before_);
    this->copy_tile(this->shared_.raw[to_.index], this->shared_.raw_full + to_.index, atom, first);
    to_.next(kFlashRawStages);
    ++copied_;
  }

  /* The next tile, into the next of the stages. */
  __device__ __forceinline__ void convert(char* stages, uint64_t* full, uint64_t* empty, PipelineState& stage) {
    barrier_wait(this->shared_.raw_full + from_.index, from_.phase);
    barrier_wait(empty + stage.index, stage.phase ^ 1);
    const char* const raw = this->shared_.raw[from_.index];
    char* const to = stages + stage.index * Shared::kTileBytes;
#pragma unroll 4
    for (uint32_t e = threadIdx.x % 128; e < kFlashKeys * kVectors; e += 32 * kFlashProducers) {
      const uint32_t key = e / kVectors, vector = e % kVectors;
      /* Eight neighbours have the 128 bytes of a key of fp8, which are two rows of halves at the same banks: the second
       * four store their upper half first. */
      const uint32_t turn = vector / 4 % 2, at = 2 * (vector % 4);
      uint4 first, second;
      to_float16s(turned(turn, *reinterpret_cast<const uint4*>(raw + 16 * e)), first, second);
      char* const row = to + (key / 8 * (HeadDim / 64) + vector / 4) * kFlashAtom + key % 8 * 128;
      *reinterpret_cast<uint4*>(row + ((at + turn) ^ key % 8) * 16) = first;
      *reinterpret_cast<uint4*>(row + ((at + 1 - turn) ^ key % 8) * 16) = second;
    }
    fence_async_proxy();
    __syncwarp();
    if (this->lane_ == 0) barrier_arrive(full + stage.index);
    stage.next(kFlashStages);
    from_.next(kFlashRawStages);
    group_sync(kBarrier, 32 * kFlashProducers); /* the tile of fp8 has been read */
  }

  static __device__ __forceinline__ uint4 turned(bool wanted, const uint4& x) {
    return make_uint4(wanted ? x.z : x.x, wanted ? x.w : x.y, wanted ? x.x : x.z, wanted ? x.y : x.w);
  }

  static constexpr uint32_t kVectors = HeadDim / 16;         /* of 16 bytes, of a key */
  static constexpr uint32_t kBarrier = 1 + 2 * kFlashGroups; /* those before are the multiplying warps' */

  const uint32_t warp_ = threadIdx.x / 32;
  PipelineState from_, to_;
  uint32_t copied_ = 0;                      /* tiles of the unit that have been requested */
  uint32_t before_ = 0, now_ = 0, next_ = 0; /* atoms of the last two tiles of keys, and of the next */
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H */
