/* Attention of a decode step as a stream of keys and values, with the RoPE of rope.h: one new token for each
 * sequence. Maths and CPU references are those of rope.h and attention.h; the new key and value are written to the
 * cache here. In a verify step a sequence has several new tokens, a row each, and append_kv.h has written their keys
 * and values before.
 *
 * Persistent blocks take units of work in turn. A unit is a KV split of a sequence (attention_plan.h) and up to 8 query
 * heads of one key head; in a verify step, those of all rows that share the split (unit_rows_sm90.h), up to 16 where
 * units are wide. In a block one warp copies tiles of 16 keys and values into a pipeline, which it begins before the
 * queries are there. kTileWarps warps attend to the tiles (kv_tile.h), and one warp for each head prepares queries and
 * combines results (decode_head_sm90.h). They synchronise through mbarriers in shared memory, so that the copies never
 * stop between two units.
 *
 * E17. A warp of decode attention is never more than one use of a barrier or of a stage away from the other warps that
 * use it, because parities do not tell two uses apart.
 * E22. If a row has several splits, the result of each shows by itself whether it has been written
 * (ll_protocol.h). The block with the row's last split combines the splits and clears their places, which are zero
 * between kernels. Its waiting ends because it waits for splits that come before its own in the plan, every block
 * writes its splits in the order of the plan, and all blocks become resident, on a multiprocessor each, since what
 * follows may start only when all have started.
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_ATTENTION_SM90_H
#define BLINK_OPS_ATTENTION_DECODE_ATTENTION_SM90_H

#include "decode_head_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* The warp that copies all tiles of the block's units, in order. */
template <typename Half, int HeadDim, typename Cache, typename Kind>
class TileProducer {
 public:
  using Shared = AttentionShared<Cache, HeadDim, Kind>;

  __device__ __forceinline__ TileProducer(const AttentionLayer<Half, Cache>& layer, Shared& shared)
      : layer_(layer), page_bits_(uint32_t(__ffs(layer.tables.page_size)) - 1) {
    full_ = opaque(shared.full);
    empty_ = opaque(shared.empty);
    stages_ = opaque(shared.stages[0]);
  }

  /* Pages are looked up a batch ahead. */
  __device__ __forceinline__ void run(const AttentionUnits<Kind>& units) {
    const uint32_t lane = threadIdx.x % 32;
    AttentionUnit unit = units.first(), ahead = units.next(unit);
    uint32_t base = 0, before = 0, row = unit.exists() ? row_of(unit, lane) : 0; /* tiles of the unit; of all */
    while (unit.exists()) {
      const uint32_t here = row, n = min(32u, unit.tiles() - base);
      const uint32_t earlier = Kind::kVerifies ? max(base, unit.earlier_tiles()) - base : n; /* of the n, the first */
      base += 32;
      if (base >= unit.tiles()) unit = ahead, ahead = units.next(unit), base = 0;
      if (unit.exists()) row = row_of(unit, base + lane);
      copy(here, before, n, earlier);
      before += n;
    }
  }

 private:
  static constexpr uint32_t kAbreast = 4; /* lanes that issue copies side by side */
  static_assert(Shared::kStages % kAbreast == 0, "a lane waits for no copy of another");

  /* Where the unit's i-th tile begins in the layer's cache, in keys. */
  __device__ __forceinline__ uint32_t row_of(const AttentionUnit& unit, uint32_t i) const {
    if (i >= unit.tiles()) return 0;
    const struct blink_tables& tables = layer_.tables;
    const uint32_t key = unit.split.first + i * kTileKeys;
    const uint32_t* pages = tables.block_table + uint64_t(unit.split.sequence) * tables.pages_per_sequence;
    const uint32_t page = load_relaxed32(pages + (key >> page_bits_));
    return ((page * layer_.n_kv_heads + unit.kv_head) << page_bits_) + key % (1u << page_bits_);
  }

  /* Copies n <= 32 tiles, of which lane i has the i-th's place; `before` tiles were copied before. Those from `earlier`
   * on have cells of this step (E15). */
  __device__ __forceinline__ void copy(uint32_t row, uint32_t before, uint32_t n, uint32_t earlier) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < n; i += kAbreast) {
      if (Kind::kVerifies && min(i + kAbreast, n) > earlier) await_appended();
      const uint32_t from = __shfl_sync(0xffffffffu, row, int((i + lane) % 32));
      if (lane >= kAbreast || i + lane >= n) continue;
      const uint32_t stage = (before + i + lane) % Shared::kStages, use = (before + i + lane) / Shared::kStages;
      barrier_wait(empty_ + stage, (use + 1) % 2);
      barrier_expect(full_ + stage, kTileBytes<Cache, HeadDim>);
      copy_rows(stages_ + stage * kTileBytes<Cache, HeadDim>, layer_.map, from, full_ + stage);
    }
    __syncwarp();
  }

  /* Until the keys and values of this step are in the cache. They were written by ordinary stores, of a kernel before,
   * and bulk copies read through the async proxy. That the wait makes the stores visible to this thread orders them
   * before its own ordinary loads alone; the fence behind it, in each thread that copies, orders them before its
   * copies, too (PTX manual, "Memory Consistency Model", proxies). */
  __device__ __forceinline__ void await_appended() {
    if (appended_) return;
    wait_for_predecessor();
    fence_async_proxy_global();
    appended_ = true;
  }

  const AttentionLayer<Half, Cache>& layer_;
  uint64_t *full_, *empty_;
  char* stages_;
  uint32_t page_bits_;
  bool appended_ = false;
};

/* A warp that attends. Its rank changes from unit to unit, and only the rank decides the result: the warp attends to
 * the unit's tiles i with i % kTileWarps == rank. A row's new key is attended to by whoever would have the tile behind
 * the row's last, and as if it were alone there, which is the same whatever rows share the unit (E16). */
template <bool Windowed, typename Kind, typename Cache, int HeadDim>
class AttendingWarp {
 public:
  using Shared = AttentionShared<Cache, HeadDim, Kind>;

  /* `ratio`: query heads of a key head. */
  __device__ __forceinline__ AttendingWarp(Shared& shared, const KvScales<Cache>& scales, uint32_t warp, uint32_t ratio)
      : shared_(shared), scales_(scales), warp_(warp), rows_(ratio) {}

  __device__ __forceinline__ void run() {
    uint32_t before = 0; /* tiles */
    for (uint32_t k = 0;; ++k) {
      barrier_wait(shared_.prepared + k % 2, k / 2 % 2);
      const uint32_t keys = shared_.keys[k % 2], n_queries = shared_.n_queries[k % 2];
      if (n_queries == 0) return;
      const uint32_t n = n_tiles(keys), rank = (warp_ + kTileWarps - before % kTileWarps) % kTileWarps;
      rows_.enter(shared_, k);
      Softmax softmax(shared_.heads[k % 2][0], HeadDim + 8, scales_);
      for (uint32_t i = rank; i < n; i += kTileWarps)
        add_tile(softmax, before + i, keys - i * kTileKeys,
                 Windowed && i == 0 ? rows_.hidden(shared_.n_hidden[k % 2]) : Keys{});
      if (shared_.is_last[k % 2]) add_new(softmax, k, rank, keys);
      before += n;
#pragma unroll
      for (uint32_t g = 0; g < kGroups; ++g) {
        barrier_wait(&shared_.taken, (kGroups * k + g + 1) % 2);
        softmax.store(g, shared_.out[rank][0], shared_.max[rank], shared_.sum[rank],
                      n_queries - min(n_queries, g * kGroupHeads));
        __syncwarp();
        if (speaks()) barrier_arrive(&shared_.results);
      }
    }
  }

 private:
  static constexpr uint32_t kGroups = Kind::kGroups;
  using Softmax = TileSoftmax<Cache, HeadDim, kGroups>;
  using Keys = typename Softmax::Keys;

  static __device__ __forceinline__ bool speaks() { return threadIdx.x % 32 == 0; }
  static __device__ __forceinline__ uint32_t n_tiles(uint32_t keys) { return (keys + kTileKeys - 1) / kTileKeys; }

  /* The block's tile `index`, of which the first `n_valid` keys are the unit's, or all if there are fewer. */
  __device__ __forceinline__ void add_tile(Softmax& softmax, uint32_t index, uint32_t n_valid, const Keys& n_hidden) {
    const uint32_t stage = index % Shared::kStages;
    barrier_wait(shared_.full + stage, index / Shared::kStages % 2);
    const CopiedTile<Cache, HeadDim> tile(shared_.stages[stage]);
    if (n_valid < kTileKeys) tile.clear_values(n_valid), fence_async_proxy();
    softmax.template add<Kind::kVerifies>(tile, rows_.seen(n_valid), n_hidden);
    __syncwarp();
    if (speaks()) barrier_arrive(shared_.empty + stage);
  }

  /* The new keys of unit k's rows that fall to this rank. */
  __device__ __forceinline__ void add_new(Softmax& softmax, uint32_t k, uint32_t rank, uint32_t keys) {
    const auto& heads = shared_.heads[k % 2];
    const auto *new_keys = heads[Kind::kHeads], *new_values = heads[Kind::kHeads + Kind::kRows];
    if constexpr (!Kind::kVerifies) {
      if (n_tiles(keys) % kTileWarps == rank) softmax.add(NewTile<Cache, HeadDim>{new_keys, new_values}, {1});
    } else {
      const Keys seen = rows_.seen(keys);
      Keys end, first;
      bool any = false;
#pragma unroll
      for (uint32_t g = 0; g < kGroups; ++g) {
        const bool mine = n_tiles(seen.of[g]) % kTileWarps == rank;
        first.of[g] = rows_.place(g), end.of[g] = mine ? first.of[g] + 1 : 0;
        any |= mine;
      }
      if (__ballot_sync(0xffffffffu, any) == 0) return;
      const NewRowsTile<Cache, HeadDim> tile = {new_keys, new_values, HeadDim + 8, shared_.n_rows[k % 2]};
      softmax.template add<true, true>(tile, end, first);
    }
  }

  Shared& shared_;
  const KvScales<Cache>& scales_;
  uint32_t warp_;
  LaneRows<Kind> rows_;
};

/* grid (at most the multiprocessors: E22), block (kAttentionThreads), kAttentionSharedBytes of dynamic shared memory.
 * The plan has room for a split for every block. Biased: the projection has a bias, as rope.h has it, which is null
 * otherwise. Windowed: a sequence sees `window` keys, for which its plan was made; otherwise all. Cache: the
 * elements of keys and values (kv_element.h), with the layer's scales. Verifies: append_kv_kernel comes before it.
 * UnitHeads: a unit has at most so many query heads, kWideUnitHeads only where it Verifies and heads are no larger than
 * kLargestWideHead. Extras: flags of decode_unit_sm90.h; an operand that belongs to one counts only with it. */
template <typename Half, int HeadDim, bool Biased = false, bool Windowed = false, typename Cache = Half,
          bool Verifies = false, uint32_t UnitHeads = kUnitHeads, uint32_t Extras = 0>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    decode_attention_kernel(const __grid_constant__ struct blink_tables tables, const KvSplit* plan,
                            const float2* turns, const void* map, const Half* qkv, const Half* q_norm,
                            const Half* k_norm, float eps, Cache* k_cache, Cache* v_cache, uint32_t* partial, Half* out,
                            uint32_t n_kv_heads, uint32_t ratio, uint32_t max_splits, const Half* bias, uint32_t window,
                            float k_scale, float v_scale, float growth_beta, uint32_t growth_context,
                            const Half* sinks) {
  using Kind = UnitKind<Verifies, UnitHeads>;
  using Shared = AttentionShared<Cache, HeadDim, Kind>;
  static_assert(UnitHeads == kUnitHeads || HeadDim <= int(kLargestWideHead), "registers do not hold the output");
  static_assert(sizeof(Shared) + kStageAlign <= kAttentionSharedBytes, "does not fit");
  const uint64_t raw = reinterpret_cast<uint64_t>(dynamic_shared());
  Shared& shared = *reinterpret_cast<Shared*>((raw + kStageAlign - 1) / kStageAlign * kStageAlign);
  const AttentionUnits<Kind> units(plan, n_kv_heads, ratio);
  const AttentionLayer<Half, Cache> layer = {tables,
                                             plan,
                                             turns,
                                             map,
                                             qkv,
                                             q_norm,
                                             k_norm,
                                             eps,
                                             k_cache,
                                             v_cache,
                                             partial,
                                             out,
                                             n_kv_heads,
                                             ratio,
                                             max_splits,
                                             bias,
                                             window,
                                             {k_scale, v_scale},
                                             {growth_beta, growth_context},
                                             sinks};
  const uint32_t warp = threadIdx.x / 32;
  if (warp < kPipelineWarps) {
    shared.init_stages(warp);
    if (threadIdx.x == 0) prefetch_map(map);
    __syncwarp();
    group_sync(1, kAttentionThreads);
    if (warp == 0)
      TileProducer<Half, HeadDim, Cache, Kind>(layer, shared).run(units);
    else
      AttendingWarp<Windowed, Kind, Cache, HeadDim>(shared, layer.scales, warp - 1, ratio).run();
  } else {
    if (warp == kPipelineWarps) shared.init_heads();
    __syncwarp();
    group_arrive(1, kAttentionThreads);
    AttentionHead<Half, HeadDim, Biased, Windowed, Cache, Kind, Extras>(layer, shared, warp - kPipelineWarps)
        .run(units);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_ATTENTION_SM90_H */
