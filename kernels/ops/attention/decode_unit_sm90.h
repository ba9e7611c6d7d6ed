/* Units of decode attention's work, and what the warps of a block share while they work on them
 * (decode_attention_sm90.h).
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_UNIT_SM90_H
#define BLINK_OPS_ATTENTION_DECODE_UNIT_SM90_H

#include "attention_plan.h"
#include "kv_tile.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kUnitHeads = 8; /* query heads of a unit at most: those of all rows that share it */
constexpr uint32_t kWideUnitHeads = 16, kWideUnitRows = 4; /* of a wide unit; as many new rows as there is room for */
constexpr uint32_t kLargestWideHead = 128;                 /* of larger ones the output does not fit registers */
constexpr uint32_t kTileWarps = 4;                         /* warps that attend */
constexpr uint32_t kHeadWarps = kGroupHeads + 2; /* one for a query of each group; for new keys; for new values */
constexpr uint32_t kPipelineWarps = 1 + kTileWarps;
constexpr uint32_t kAttentionThreads = 32 * (kPipelineWarps + kHeadWarps);
constexpr uint32_t kStageAlign = 1024; /* bytes after which the swizzle pattern repeats */
constexpr uint32_t kAttentionSharedBytes = 128 * 1024;
template <int HeadDim>
constexpr uint32_t kPipelineBytes = (HeadDim > 160 ? 64 : 96) * 1024; /* larger heads leave less room for it */

/* What a model has beyond plain attention, as flags: each is a choice at compile time, so that the kernels of other
 * models are the same as without it. */
constexpr uint32_t kGrowingQueries = 1; /* queries grow with their position (rope.h) */
constexpr uint32_t kSinks = 2;          /* each head's softmax has one score more (attention.h) */

/* One layer's attention.
 *
 *   map       of the layer's cache: copy_rows() brings 16 keys and their values as kv_tile.h wants them
 *   partial   [batch_slots][n_heads][max_splits][HeadDim + 4] fp32 as words of ll_protocol.h, zero before and after:
 *             unnormalised output, maximum (log2 units), sum
 */
template <typename Half, typename Cache>
struct AttentionLayer {
  const struct blink_tables& tables;
  const KvSplit* plan;
  const float2* turns;
  const void* map;
  const Half *qkv, *q_norm, *k_norm;
  float eps;
  Cache *k_cache, *v_cache;
  uint32_t* partial;
  Half* out;
  uint32_t n_kv_heads, ratio, max_splits; /* query heads of a key head */
  const Half* bias;                       /* of queries, keys and values, for a kernel that is Biased */
  uint32_t window;                        /* as the plan's, for a kernel that is Windowed */
  KvScales<Cache> scales;
  QueryGrowth growth; /* for a kernel with kGrowingQueries */
  const Half* sinks;  /* [n_heads], for a kernel with kSinks */
};

/* The units of a kernel: whether rows may share one, and how many query heads and rows it has at most. Its heads form
 * groups, of which the results are handed over one after the other. */
template <bool Verifies, uint32_t Heads>
struct UnitKind {
  static_assert(Heads == kUnitHeads || (Heads == kWideUnitHeads && Verifies), "no such units");
  static constexpr bool kVerifies = Verifies;
  static constexpr uint32_t kHeads = Heads, kGroups = Heads / kGroupHeads;
  static constexpr uint32_t kRows = !Verifies ? 1 : Heads == kWideUnitHeads ? kWideUnitRows : kUnitHeads;
};

template <typename Cache, int HeadDim, typename Kind>
struct AttentionShared {
  using Half = typename KvElement<Cache>::Half;
  /* A multiple of the warps: a stage is always the same warp's, which keeps it from taking one use for another. */
  static constexpr uint32_t kStages = kPipelineBytes<HeadDim> / kTileBytes<Cache, HeadDim> / kTileWarps * kTileWarps;
  char stages[kStages][kTileBytes<Cache, HeadDim>]; /* kStageAlign-aligned */
  /* Of one group of heads. */
  float out[kTileWarps][kGroupHeads][TileSoftmax<Cache, HeadDim>::kOutStride];
  float max[kTileWarps][kGroupHeads], sum[kTileWarps][kGroupHeads];
  /* Of even and odd units: keys, query heads (none after the last unit), whether new keys are among the keys; rotated
   * queries, aligned for ldmatrix where it loads them, the new keys of the rows and their new values. */
  uint32_t keys[2], n_queries[2], is_last[2];
  alignas(Kind::kGroups > 1 ? 16 : alignof(Half)) Half heads[2][Kind::kHeads + 2 * Kind::kRows][HeadDim + 8];
  /* Of a stage: copied; free again. Of even and odd units: heads are there. A group's results are there; free again. */
  uint64_t full[kStages], empty[kStages], prepared[2], results, taken;
  /* Of even and odd units, of a kernel that is Windowed: of the first tile's keys, or of one that Verifies, n_before().
   */
  int32_t n_hidden[2];
  uint32_t n_rows[2]; /* of even and odd units, of a kernel that Verifies */

  /* A barrier takes its time, so warps share the pipeline's: `member` of the warps that copy or attend. */
  __device__ __forceinline__ void init_stages(uint32_t member) {
    if (threadIdx.x % 32 != 0) return;
    for (uint32_t s = member; s < kStages; s += kPipelineWarps) barrier_init(full + s), barrier_init(empty + s);
    barrier_init_done();
  }
  /* Called by a warp that belongs to a head. */
  __device__ __forceinline__ void init_heads() {
    if (threadIdx.x % 32 != 0) return;
    for (uint32_t i = 0; i < 2; ++i) barrier_init_count(prepared + i, kHeadWarps);
    barrier_init_count(&results, kTileWarps);
    barrier_init_count(&taken, kHeadWarps);
    barrier_init_done();
  }
};

/* A KV split of a sequence, for up to Kind::kHeads query heads of one key head: of one row, or of each row that shares
 * the split, those of a row one after the other. */
struct AttentionUnit {
  KvSplit split;
  uint32_t index, kv_head, head, n_queries; /* the first query head; how many, of all rows, 0 of no unit */

  __device__ __forceinline__ bool exists() const { return n_queries != 0; }

  __device__ __forceinline__ uint32_t tiles() const { return (split.keys + kTileKeys - 1) / kTileKeys; }
  /* Of those, the first that hold nothing but keys of earlier steps; there may be more. */
  __device__ __forceinline__ uint32_t earlier_tiles() const { return split.sharing & 0xffff; }
  __device__ __forceinline__ uint32_t n_rows() const { return split.sharing >> 16; }
  /* Whether the new keys of its rows are among its keys. */
  __device__ __forceinline__ bool is_last() const { return split.index + 1 == split.n_splits; }
  /* Keys of its first tile that lie before the window. */
  __device__ __forceinline__ uint32_t n_hidden(uint32_t window) const {
    const uint32_t seen = first_seen(split.position, window);
    return seen > split.first ? seen - split.first : 0;
  }
  /* Keys of the unit that lie before the window of its first row, negative if the window begins before the unit; one
   * more of each row behind it. */
  __device__ __forceinline__ int32_t n_before(uint32_t window) const {
    return int32_t(split.position + 1 - window - split.first);
  }
};

/* A block's units, in the order of the plan. The first is requested at once. */
template <typename Kind>
class AttentionUnits {
 public:
  __device__ __forceinline__ AttentionUnits(const KvSplit* plan, uint32_t n_kv_heads, uint32_t ratio)
      : plan_(reinterpret_cast<const uint4*>(plan)), ratio_(ratio) {
    per_head_ = (ratio_ + Kind::kHeads - 1) / Kind::kHeads;
    groups_ = n_kv_heads * per_head_;
    /* The plan has room for a split for every block, whether it is in use or not: neither load waits for the other. */
    n_units_ = load_relaxed(plan_).x;
    first_ = load(blockIdx.x);
    n_units_ *= groups_;
  }
  __device__ __forceinline__ AttentionUnit first() const {
    AttentionUnit unit = first_;
    if (unit.index >= n_units_) unit.n_queries = 0;
    return unit;
  }
  __device__ __forceinline__ AttentionUnit next(const AttentionUnit& unit) const {
    const uint32_t index = unit.index + gridDim.x;
    if (index < n_units_) return load(index);
    return {{}, index, 0, 0, 0};
  }

 private:
  __device__ __forceinline__ AttentionUnit load(uint32_t index) const {
    const uint32_t group = index % groups_, member = group % per_head_ * Kind::kHeads;
    const uint4 *at = plan_ + (1 + index / groups_) * 2, low = load_relaxed(at), high = load_relaxed(at + 1);
    const uint32_t n_rows = Kind::kVerifies ? low.y >> 16 : 1;
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w},
            index,
            group / per_head_,
            group / per_head_ * ratio_ + member,
            min(Kind::kHeads, ratio_ - member) * n_rows};
  }

  const uint4* plan_;
  uint32_t ratio_, per_head_, groups_, n_units_;
  AttentionUnit first_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_UNIT_SM90_H */
