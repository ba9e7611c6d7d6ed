/* Flash attention to keys and values in fp8 (flash_attention_sm90.h): the warps that make float16 of them.
 *
 * Two warpgroups stand beside those that multiply, one for keys and one for values. Each copies tiles of fp8 into
 * shared memory, reads them there and leaves float16 as the wgmma instructions take it. The tensor cores so see what
 * they see of a cache of halves.
 *
 * Conversions cost shared memory's bandwidth, which the wgmma instructions need: they then run at three quarters of
 * their rate. So a tile whose keys are all of this step is copied from qkv, where RoPE has left the same numbers as
 * float16. Only what earlier steps computed is converted, and the tile in which it ends.
 */
#ifndef BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H

#include "flash_producer_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* Run by the four warps of a warpgroup. Each converts every fourth 8 keys of a tile. The first also copies, tiles of
 * fp8 one ahead and across the block's units. */
template <typename Out, int HeadDim>
class FlashConverter : FlashProducer<Out, HeadDim, Fp8> {
 public:
  using Base = FlashProducer<Out, HeadDim, Fp8>;

  __device__ __forceinline__ FlashConverter(FlashShared<Fp8, HeadDim>& shared, const FlashMap& queries,
                                            const FlashMap& fresh, const FlashMap& cache,
                                            const FlashArguments<Out>& arguments)
      : Base(shared, queries, cache, arguments), fresh_(fresh), copied_(arguments) {}

  __device__ __forceinline__ void run() {
    if (warp_ == 0) request();
    for (FlashWork work(this->a_); work.next();) {
      const PrefillUnit unit = this->a_.plan[1 + work.unit()];
      const uint32_t head = work.head(this->a_.pack);
      bool queries = warp_ == 0 && !values_; /* still to be copied */
      for (uint32_t tile = unit.first_tile; tile < unit.end_tile; ++tile) {
        barrier_wait(empty_ + stage_.index, stage_.phase ^ 1);
        if (tile < converted_tiles(unit))
          convert();
        else
          copy_fresh(unit, head, tile);
        stage_.next(kFlashStages);
        /* Only now: the queries' place is free when the unit before has been multiplied. */
        if (queries) this->copy_queries(head, unit.first);
        queries = false;
      }
    }
  }

 private:
  using Shared = typename Base::Shared;

  static __device__ __forceinline__ uint32_t converted_tiles(const PrefillUnit& unit) {
    return (unit.past + kFlashKeys - 1) / kFlashKeys;
  }

  /* Copies the next tile of fp8, of this unit or of a later one, if there is one. Its place is free: all warps have
   * converted what was there. */
  __device__ __forceinline__ void request() {
    while (box_ >= end_) {
      if (!copied_.next()) return;
      const PrefillUnit unit = this->a_.plan[1 + copied_.unit()];
      this->begin(unit, copied_.head(this->a_.pack));
      box_ = unit.first_tile * Base::kBoxes, end_ = min(converted_tiles(unit), unit.end_tile) * Base::kBoxes;
    }
    const uint32_t first = values_ ? this->a_.value_atoms : this->a_.key_atoms;
    this->copy_tile(this->shared_.raw[values_][to_.index], this->shared_.raw_full[values_] + to_.index,
                    first + this->atom_of(box_), box_);
    to_.next(kFlashRawStages);
    box_ += Base::kBoxes;
  }

  /* A tile of this step's keys or values, of which each lane copies eight. The other warps arrive for nothing. */
  __device__ __forceinline__ void copy_fresh(const PrefillUnit& unit, uint32_t head, uint32_t tile) {
    constexpr uint32_t kKeys = 8, kBytes = kKeys * HeadDim * 2;
    uint64_t* const full = full_ + stage_.index;
    if (warp_ != 0) {
      if (this->lane_ == 0) barrier_arrive(full);
      return;
    }
    const uint32_t key = tile * kFlashKeys, n = (min(kFlashKeys, unit.keys - key) + kKeys - 1) / kKeys;
    const uint32_t token = unit.first + key - (unit.keys - unit.count);
    const uint32_t row =
        this->a_.n_heads + values_ * this->a_.n_kv_heads + head / (this->a_.n_heads / this->a_.n_kv_heads);
    if (this->lane_ == 0) barrier_expect(full, n * kBytes);
    __syncwarp();
    if (this->lane_ < n)
      copy_box4(stages_ + stage_.index * Shared::kTileBytes + this->lane_ * kBytes, &fresh_, row,
                token + this->lane_ * kKeys, 0, full);
  }

  /* The next tile of fp8. */
  __device__ __forceinline__ void convert() {
    if (warp_ == 0) request();
    barrier_wait(this->shared_.raw_full[values_] + from_.index, from_.phase);
    const char* const raw = this->shared_.raw[values_][from_.index];
    char* const to = stages_ + stage_.index * Shared::kTileBytes;
#pragma unroll 2
    for (uint32_t e = threadIdx.x % 128; e < kFlashKeys * kVectors; e += 128) {
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
    if (this->lane_ == 0) barrier_arrive(full_ + stage_.index);
    from_.next(kFlashRawStages);
    group_sync(kBarrier + values_, 128); /* the tile of fp8 has been read */
  }

  static __device__ __forceinline__ uint4 turned(bool wanted, const uint4& x) {
    return make_uint4(wanted ? x.z : x.x, wanted ? x.w : x.y, wanted ? x.x : x.z, wanted ? x.y : x.w);
  }

  static constexpr uint32_t kVectors = HeadDim / 16;         /* of 16 bytes, of a key */
  static constexpr uint32_t kBarrier = 1 + 2 * kFlashGroups; /* those before are the multiplying warps' */

  const FlashMap& fresh_;
  const uint32_t values_ = threadIdx.x / 128; /* 1 in the warpgroup of values, 0 in that of keys */
  const uint32_t warp_ = threadIdx.x / 32 % 4;
  char* const stages_ = values_ ? this->shared_.v[0] : this->shared_.k[0];
  uint64_t* const full_ = values_ ? this->shared_.v_full : this->shared_.k_full;
  uint64_t* const empty_ = values_ ? this->shared_.v_empty : this->shared_.k_empty;
  PipelineState from_, to_, stage_;
  FlashWork copied_;           /* whose unit's tiles of fp8 are being copied, */
  uint32_t box_ = 0, end_ = 0; /* from this box on, to that one */
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_FP8_SM90_H */
