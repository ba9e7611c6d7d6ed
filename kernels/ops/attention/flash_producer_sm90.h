/* The shared memory of flash attention (flash_attention_sm90.h), and the warp that fills it. */
#ifndef BLINK_OPS_ATTENTION_FLASH_PRODUCER_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_PRODUCER_SM90_H

#include "flash_accumulators_sm90.h"
#include "prefill_plan.h"
#include "kernels/primitives/pipeline_state.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFlashGroups = 2;               /* warpgroups that multiply */
constexpr uint32_t kFlashRows = 64 * kFlashGroups; /* of a tile */
constexpr uint32_t kFlashBoxKeys = 16;             /* that one copy brings, all of one page */
constexpr uint32_t kFlashStages = 2;               /* tiles of keys, and of values, in shared memory */
constexpr uint32_t kFlashRawStages = 2;            /* tiles of keys, and of values, in fp8 */

/* A CUtensorMap. */
struct alignas(64) FlashMap {
  uint64_t opaque[16];
};

template <typename Cache, int HeadDim>
struct FlashShared {
  static constexpr uint32_t kQueryBytes = 64 * HeadDim * 2; /* of a warpgroup */
  static constexpr uint32_t kTileBytes = kFlashKeys * HeadDim * 2;
  char q[kFlashGroups][kQueryBytes]; /* [HeadDim / 64][64 rows][64], swizzled */
  char k[kFlashStages][kTileBytes];  /* [kFlashKeys / 8][HeadDim / 64][8 keys][64], swizzled; v likewise */
  char v[kFlashStages][kTileBytes];
  /* Tiles of fp8 as they are copied, keys and then values, of which flash_fp8_sm90.h makes those above. */
  char raw[2][kFlashRawStages][KvElement<Cache>::kFp8 ? kTileBytes / 2 : 16];
  /* A full barrier has the one arrival of the copying warp, or those of the converting warps, an empty one those of the
   * multiplying warps. */
  uint64_t q_full, q_empty, k_full[kFlashStages], k_empty[kFlashStages], v_full[kFlashStages], v_empty[kFlashStages];
  uint64_t raw_full[2][kFlashRawStages];

  __device__ __forceinline__ void init() {
    barrier_init_count(&q_full, 1);
    barrier_init_count(&q_empty, 4 * kFlashGroups);
    constexpr uint32_t kFilling = KvElement<Cache>::kFp8 ? 4 : 1; /* warps */
    for (uint32_t s = 0; s < kFlashStages; ++s) {
      barrier_init_count(k_full + s, kFilling);
      barrier_init_count(v_full + s, kFilling);
      barrier_init_count(k_empty + s, 4 * kFlashGroups);
      barrier_init_count(v_empty + s, 4 * kFlashGroups);
    }
    for (uint32_t s = 0; s < 2 * kFlashRawStages; ++s) barrier_init_count(raw_full[0] + s, 1);
    barrier_init_done();
  }
};

template <typename Out>
struct FlashArguments {
  const struct blink_tables& tables;
  const PrefillUnit* plan;
  Out* out;
  uint32_t key_atoms, value_atoms; /* of the cache that come before the layer's keys and values, in 8 cells of a head */
  uint32_t n_heads, n_kv_heads, pack;
  float* parts;       /* what parts of units leave (flash_parts_sm90.h) */
  uint32_t* arrivals; /* and how many have done so */
  uint32_t most_parts;
  const Out* sinks; /* [n_heads], for a kernel with Sinks */
};

/* A block's share of the work: parts of units times groups of `pack` heads, the heaviest first, dealt out there and
 * back. */
struct FlashWork {
  uint32_t n, groups, round = 0, item = 0;

  template <typename Out>
  __device__ __forceinline__ explicit FlashWork(const FlashArguments<Out>& a)
      : n(a.plan[0].count * (a.n_heads / a.pack)), groups(a.n_heads / a.pack) {}

  __device__ __forceinline__ bool next() {
    item = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    ++round;
    return item < n;
  }
  __device__ __forceinline__ uint32_t unit() const { return item / groups; }
  __device__ __forceinline__ uint32_t head(uint32_t pack) const { return item % groups * pack; }
};

/* A warp that copies. Cache: the elements of keys and values. */
template <typename Out, int HeadDim, typename Cache>
class FlashProducer {
 public:
  using Shared = FlashShared<Cache, HeadDim>;

  __device__ __forceinline__ FlashProducer(Shared& shared, const FlashMap& queries, const FlashMap& cache,
                                           const FlashArguments<Out>& arguments)
      : shared_(shared), queries_(queries), cache_(cache), a_(arguments) {}

  __device__ __forceinline__ void run() {
    for (FlashWork work(a_); work.next();) {
      const PrefillUnit unit = a_.plan[1 + work.unit()];
      const uint32_t head = work.head(a_.pack);
      const uint32_t first = unit.first_tile * kBoxes, end = unit.end_tile * kBoxes;
      begin(unit, head);
      uint32_t atom = atom_of(first);
      copy_queries(head, unit.first);
      copy(shared_.k[0], shared_.k_full, shared_.k_empty, k_stage_, a_.key_atoms + atom, first);
      for (uint32_t box = first; box < end; box += kBoxes) { /* the next tile's keys before this one's values */
        const uint32_t now = atom, next = box + kBoxes;
        atom = atom_of(next);
        if (next < end) copy(shared_.k[0], shared_.k_full, shared_.k_empty, k_stage_, a_.key_atoms + atom, next);
        copy(shared_.v[0], shared_.v_full, shared_.v_empty, v_stage_, a_.value_atoms + now, box);
      }
    }
  }

 protected:
  static constexpr uint32_t kBoxes = kFlashKeys / kFlashBoxKeys; /* of a tile: a lane each */
  static constexpr uint32_t kBoxBytes = kFlashBoxKeys * HeadDim * sizeof(Cache);

  __device__ __forceinline__ void begin(const PrefillUnit& unit, uint32_t head) {
    kv_head_ = head / (a_.n_heads / a_.n_kv_heads);
    pages_ = a_.tables.block_table + uint64_t(unit.sequence) * a_.tables.pages_per_sequence;
    boxes_ = (unit.keys + kFlashBoxKeys - 1) / kFlashBoxKeys;
  }

  /* Where the lane's box of the tile that begins with box `first` starts, in atoms from the layer's first. The block
   * table says nothing beyond the keys. */
  __device__ __forceinline__ uint32_t atom_of(uint32_t first) const {
    const uint32_t box = first + lane_, page_boxes = a_.tables.page_size / kFlashBoxKeys;
    if (lane_ >= kBoxes || box >= boxes_) return 0;
    return ((pages_[box / page_boxes] * a_.n_kv_heads + kv_head_) * page_boxes + box % page_boxes) *
           (kFlashBoxKeys / 8);
  }

  __device__ __forceinline__ void copy_queries(uint32_t head, uint32_t first) {
    barrier_wait(&shared_.q_empty, q_parity_ ^ 1);
    q_parity_ ^= 1;
    if (lane_ == 0) barrier_expect(&shared_.q_full, sizeof(shared_.q));
    __syncwarp();
    if (lane_ < kFlashGroups)
      copy_box4(shared_.q[lane_], &queries_, head, first + lane_ * 64 / a_.pack, 0, &shared_.q_full);
  }

  /* The boxes of a tile, from box `first` on. */
  __device__ __forceinline__ void copy_tile(char* to, uint64_t* full, uint32_t atom, uint32_t first) {
    const uint32_t n = min(kBoxes, boxes_ - first);
    if (lane_ == 0) barrier_expect(full, n * kBoxBytes);
    __syncwarp();
    if (lane_ < n) copy_box4(to + lane_ * kBoxBytes, &cache_, 0, 0, atom, full);
  }

  Shared& shared_;
  const FlashMap& queries_;
  const FlashMap& cache_;
  const FlashArguments<Out>& a_;
  const uint32_t lane_ = threadIdx.x % 32;
  PipelineState k_stage_, v_stage_;
  uint32_t q_parity_ = 0, kv_head_ = 0, boxes_ = 0; /* boxes_: of the unit's keys, all parts */
  const uint32_t* pages_ = nullptr;

 private:
  __device__ __forceinline__ void copy(char* stages, uint64_t* full, uint64_t* empty, PipelineState& stage,
                                       uint32_t atom, uint32_t first) {
    barrier_wait(empty + stage.index, stage.phase ^ 1);
    copy_tile(stages + stage.index * Shared::kTileBytes, full + stage.index, atom, first);
    stage.next(kFlashStages);
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_FLASH_PRODUCER_SM90_H */
