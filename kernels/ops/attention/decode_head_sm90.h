/* The work of a warp of decode_attention_sm90.h that belongs to one head, or to the same of each group. It prepares a
 * query, the new key or the new value for a unit; in a verify step, the new keys or values of all rows that share it
 * (unit_rows_sm90.h). It combines a query's results of the warps that attended, and, in the block with a sequence's
 * last split, those of all the sequence's splits.
 *
 * Loads are issued a unit ahead, and a sequence's other splits are read a unit later, so that neither delays the warps
 * that attend (E22).
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_HEAD_SM90_H
#define BLINK_OPS_ATTENTION_DECODE_HEAD_SM90_H

#include "kv_split_combine.h"
#include "head_pairs.h"
#include "unit_rows_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* A query head's sums in a warp: of each round of 128 dimensions a lane has four. */
template <typename Half, int HeadDim>
struct HeadSums {
  static constexpr uint32_t kRounds = (HeadDim + 127) / 128;
  float value[kRounds][4] = {}, max = -INFINITY, sum = 0.0f;

  static __device__ __forceinline__ uint32_t d(uint32_t round) { return threadIdx.x % 32 * 4 + 128 * round; }
  static __device__ __forceinline__ bool used(uint32_t round) { return d(round) < HeadDim; }

  __device__ __forceinline__ void add(uint32_t round, const float4& x, float weight) {
    float (&to)[4] = value[round];
    to[0] += weight * x.x, to[1] += weight * x.y, to[2] += weight * x.z, to[3] += weight * x.w;
  }
  /* `scale`: of the values. */
  __device__ __forceinline__ void store(Half* to, float scale) const {
    const float share = scale / sum;
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j) {
      const float (&of)[4] = value[j];
      const uint2 raw = {pack<Half>(of[0] * share, of[1] * share), pack<Half>(of[2] * share, of[3] * share)};
      if (used(j)) *reinterpret_cast<uint2*>(to + d(j)) = raw;
    }
  }
};

template <typename Half, int HeadDim, bool Biased, bool Windowed, typename Cache, typename Kind, uint32_t Extras>
class AttentionHead {
 public:
  using Shared = AttentionShared<Cache, HeadDim, Kind>;

  /* `head` < kGroupHeads is a query's of each group, then come the new key and the new value. */
  __device__ __forceinline__ AttentionHead(const AttentionLayer<Half, Cache>& layer, Shared& shared, uint32_t head)
      : layer_(layer), shared_(shared), head_(head), n_heads_(layer.ratio * layer.n_kv_heads) {
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      row_[g] = Kind::kVerifies ? (head + g * kGroupHeads) / layer.ratio : 0;
      member_[g] = head + g * kGroupHeads - row_[g] * layer.ratio;
    }
    const Half* norm = is_query() ? layer.q_norm : head == kGroupHeads ? layer.k_norm : nullptr;
    normed_ = norm != nullptr;
    if (normed_) norm_.load(norm);
  }

  /* When a unit's results are there, its heads have been read: those of the unit after the next may overwrite them. */
  __device__ __forceinline__ void run(const AttentionUnits<Kind>& units) {
    AttentionUnit behind = {}, unit = units.first();
    wait_for_predecessor();
    allow_successor(); /* E24 */
    if (unit.exists()) request(unit);
    group_sync(2, 32 * kHeadWarps); /* the barriers have been initialised */
    for (uint32_t k = 0;; ++k) {
      const bool ends = k > 0 && !behind.exists();
      AttentionUnit ahead = {};
      if (!ends) {
        prepare(unit, k);
        ahead = units.next(unit);
        if (ahead.exists()) request(ahead);
      }
      combine_pending();
      if (ends) break;
#pragma unroll
      for (uint32_t g = 0; k > 0 && g < kGroups; ++g) {
        barrier_wait(&shared_.results, (kGroups * (k - 1) + g) % 2);
        finish(behind, g);
      }
      behind = unit;
      unit = ahead;
    }
  }

 private:
  static constexpr bool kGrowing = Extras & kGrowingQueries, kWithSinks = Extras & kSinks;
  static constexpr uint32_t kGroups = Kind::kGroups;
  static constexpr uint32_t kPart = HeadDim + 4;
  using Sums = HeadSums<Half, HeadDim>;
  using Pairs = HeadPairs<Half, HeadDim>;
  static constexpr uint32_t kRounds = Pairs::kRounds;
  static constexpr uint32_t kAhead = 4 / kRounds / kGroups; /* parts that are loaded at once */

  __device__ __forceinline__ bool is_query() const { return head_ < kGroupHeads; }
  __device__ __forceinline__ bool takes_part(const AttentionUnit& unit, uint32_t g) const {
    return is_query() ? head_ + g * kGroupHeads < unit.n_queries : g == 0 && unit.exists() && unit.is_last();
  }

  /* The row of the head. */
  __device__ __forceinline__ uint64_t row(const AttentionUnit& unit, uint32_t g) const {
    return unit.split.row + row_[g];
  }
  /* Where the head's output and its partial results lie. */
  __device__ __forceinline__ Half* output(const AttentionUnit& unit, uint32_t g) const {
    return layer_.out + (row(unit, g) * n_heads_ + unit.head + member_[g]) * HeadDim;
  }
  __device__ __forceinline__ uint32_t* parts(const AttentionUnit& unit, uint32_t g) const {
    const uint64_t of_head = row(unit, g) * n_heads_ + unit.head + member_[g];
    return layer_.partial + of_head * layer_.max_splits * kPart;
  }

  /* Loads the heads, as the qkv projection left them, or the new keys or values of the unit's rows. */
  __device__ __forceinline__ void request(const AttentionUnit& unit) {
    if constexpr (Kind::kVerifies)
      if (!is_query()) {
        const Cache* const cache = head_ == kGroupHeads ? layer_.k_cache : layer_.v_cache;
        if (takes_part(unit, 0)) new_rows_.load(layer_, unit, cache);
        return;
      }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g)
      if (takes_part(unit, g)) request(unit, g);
  }
  __device__ __forceinline__ void request(const AttentionUnit& unit, uint32_t g) {
    const uint32_t n_kv_heads = layer_.n_kv_heads, n_heads = n_heads_;
    const uint32_t key = n_heads + unit.kv_head, from = is_query()             ? unit.head + member_[g]
                                                        : head_ == kGroupHeads ? key
                                                                               : key + n_kv_heads;
    pairs_[g].load(layer_.qkv + (row(unit, g) * (n_heads + 2 * n_kv_heads) + from) * HeadDim);
    if (Biased) bias_[g].load(layer_.bias + uint64_t(from) * HeadDim);
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      if (Pairs::used(j))
        turn_[g][j] = *reinterpret_cast<const float4*>(layer_.turns + row(unit, g) * (HeadDim / 2) + Pairs::d(j));
    if (kGrowing && is_query()) grow(g, layer_.growth.factor(unit.split.position + row_[g]));
  }

  /* A query that is turned by this is multiplied by `factor`, too. */
  __device__ __forceinline__ void grow(uint32_t g, float factor) {
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      turn_[g][j].x *= factor, turn_[g][j].y *= factor, turn_[g][j].z *= factor, turn_[g][j].w *= factor;
  }

  /* Hands the heads to the warps that attend; a unit that does not exist tells them to end. */
  __device__ __forceinline__ void prepare(const AttentionUnit& unit, uint32_t k) {
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g)
      if (takes_part(unit, g)) hand_over(unit, shared_.heads[k % 2], g);
    const bool speaks = threadIdx.x % 32 == 0;
    if (speaks && head_ == kGroupHeads) tell(unit, k);
    __syncwarp();
    if (speaks) barrier_arrive(shared_.prepared + k % 2);
  }

  /* The new key and value also go to the cache, unless they came from there. */
  template <typename Heads>
  __device__ __forceinline__ void hand_over(const AttentionUnit& unit, Heads& heads, uint32_t g) {
    if constexpr (Kind::kVerifies)
      if (!is_query()) {
        new_rows_.store(unit, heads[Kind::kHeads + (head_ - kGroupHeads) * Kind::kRows], HeadDim + 8);
        return;
      }
    if (head_ <= kGroupHeads)
      pairs_[g].rotate(normed_, norm_, layer_.eps, turn_[g], Biased ? &bias_[g] : nullptr);
    else if (Biased)
      pairs_[g].add(bias_[g]);
    if (is_query())
      pairs_[g].template store_query<Cache, TileSoftmax<Cache, HeadDim, kGroups>::kAsMatrices>(
          heads[head_ + g * kGroupHeads]);
    else
      store_new(unit, heads[head_]);
  }

  /* What the warps that attend have to know of the unit. */
  __device__ __forceinline__ void tell(const AttentionUnit& unit, uint32_t k) {
    shared_.keys[k % 2] = unit.split.keys;
    shared_.n_queries[k % 2] = unit.n_queries;
    shared_.is_last[k % 2] = unit.is_last();
    if (Kind::kVerifies) shared_.n_rows[k % 2] = unit.n_rows();
    if (Windowed)
      shared_.n_hidden[k % 2] = Kind::kVerifies ? unit.n_before(layer_.window) : int32_t(unit.n_hidden(layer_.window));
  }

  /* The new key or value, to the cache and for the warps that attend. */
  __device__ __forceinline__ void store_new(const AttentionUnit& unit, typename KvElement<Cache>::Half* head) {
    const bool is_key = head_ == kGroupHeads;
    const uint64_t at =
        cache_offset(layer_.tables, unit.split.sequence, unit.split.position, unit.kv_head, layer_.n_kv_heads, HeadDim);
    pairs_[0].store_cached((is_key ? layer_.k_cache : layer_.v_cache) + at, head,
                           is_key ? layer_.scales.key : layer_.scales.value);
  }

  /* Stores the unit's partial result, or the output if the sequence has one split. A warp without a query arrives at
   * the barrier all the same: the warps that attend must not be two groups ahead of it (E17). */
  __device__ __forceinline__ void finish(const AttentionUnit& unit, uint32_t g) {
    const bool takes = is_query() && takes_part(unit, g), speaks = threadIdx.x % 32 == 0;
    const Sums sums = takes ? add_warps(unit, g) : Sums();
    __syncwarp();
    if (speaks) barrier_arrive(&shared_.taken);
    if (!takes) return;
    if (unit.split.n_splits == 1) {
      sums.store(output(unit, g), layer_.scales.value);
      return;
    }
    uint32_t* part = parts(unit, g) + unit.split.index * kPart;
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      if (Sums::used(j)) put_floats(part + Sums::d(j), sums.value[j]);
    if (speaks)
      put_word(part + HeadDim, __float_as_uint(sums.max)), put_word(part + HeadDim + 1, __float_as_uint(sums.sum));
    if (unit.is_last()) pending_[g] = {parts(unit, g), output(unit, g), unit.split.n_splits};
  }

  /* The combined result of the warps that attended. A sink counts to the keys of a row's last split. */
  __device__ __forceinline__ Sums add_warps(const AttentionUnit& unit, uint32_t g) const {
    Sums sums;
    const bool sinks = kWithSinks && unit.is_last();
    const float sink = sinks ? to_float(layer_.sinks[unit.head + member_[g]]) * kLog2E : -INFINITY;
    if (sinks) sums.max = sink;
#pragma unroll
    for (uint32_t w = 0; w < kTileWarps; ++w) sums.max = fmaxf(sums.max, shared_.max[w][head_]);
#pragma unroll
    for (uint32_t w = 0; w < kTileWarps; ++w) {
      const float weight = exp2f(shared_.max[w][head_] - sums.max);
      sums.sum += weight * shared_.sum[w][head_];
#pragma unroll
      for (uint32_t j = 0; j < kRounds; ++j)
        if (Sums::used(j)) sums.add(j, *reinterpret_cast<const float4*>(shared_.out[w][head_] + Sums::d(j)), weight);
    }
    if (sinks) sums.sum += exp2f(sink - sums.max);
    return sums;
  }

  /* Combines all parts of the sequence whose last split was finished a unit ago into the output. A head of the second
   * group is there only beside one of the first. */
  __device__ __forceinline__ void combine_pending() {
    const uint32_t n = pending_[0].n_parts;
    if (n == 0) return;
    Incoming from[kGroups];
    Sums sums[kGroups];
    float weight[kGroups][2];
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      from[g].all = pending_[g].parts, from[g].n = pending_[g].n_parts;
      from[g].bounds = PartBounds(threadIdx.x % 32, from[g].n);
      pending_[g].n_parts = 0;
    }
#pragma unroll 1
    for (uint32_t first = 0; first < n; first += kAhead) {
      receive(from, first);
#pragma unroll
      for (uint32_t g = 0; g < kGroups; ++g) {
        if (first == 0) sums[g].sum = from[g].bounds.weigh(weight[g]);
#pragma unroll
        for (uint32_t j = 0; j < kAhead; ++j) {
          const float scale = __shfl_sync(0xffffffffu, first < 32 ? weight[g][0] : weight[g][1], int((first + j) % 32));
#pragma unroll
          for (uint32_t i = 0; i < kRounds; ++i)
            if (first + j < n) sums[g].add(i, as_floats(from[g].part[j * kRounds + i]), scale);
        }
      }
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g)
      if (g == 0 || from[g].n != 0) sums[g].store(pending_[g].to, layer_.scales.value);
  }

  /* A head's n parts on their way: the bounds of all, and of one part after the other its rounds. */
  struct Incoming {
    uint32_t *all, n;
    PartBounds bounds;
    uint4 part[kAhead * kRounds];

    __device__ __forceinline__ bool wanted(uint32_t first, uint32_t e) const {
      return first + e / kRounds < n && Sums::used(e % kRounds);
    }
    __device__ __forceinline__ uint4* place(uint32_t first, uint32_t e) const {
      uint4* const sums = reinterpret_cast<uint4*>(all + first * kPart + Sums::d(0));
      return sums + e / kRounds * (kPart / 4) + e % kRounds * 32;
    }
    __device__ __forceinline__ uint4* bounds_of_lane() const {
      return reinterpret_cast<uint4*>(all + threadIdx.x % 32 * kPart + HeadDim);
    }
    /* Loads what is missing; whether something was not there yet. */
    __device__ __forceinline__ bool load(uint32_t first) {
      bounds.load(bounds_of_lane(), kPart / 4);
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e)
        if (is_missing(part[e])) part[e] = load_relaxed(place(first, e));
      bool missing = bounds.missing();
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e) missing |= is_missing(part[e]);
      return missing;
    }
    __device__ __forceinline__ void clear(uint32_t first) const {
      if (first == 0) PartBounds::clear(bounds_of_lane(), kPart / 4, threadIdx.x % 32, n);
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e)
        if (wanted(first, e)) *place(first, e) = make_uint4(0, 0, 0, 0);
    }
  };

  /* The bounds of all parts, where they are missing, and the lane's dimensions of parts `first`.., up to the last.
   * Clears their places. The loads do not wait for each other: this is the end of the longest path through the op. */
  static __device__ __forceinline__ void receive(Incoming (&from)[kGroups], uint32_t first) {
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g)
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e)
        from[g].part[e] = from[g].wanted(first, e) ? uint4{} : make_uint4(1, 1, 1, 1);
    bool missing = true;
    for (Patience patience; missing; patience.spend()) {
      missing = false;
#pragma unroll
      for (uint32_t g = 0; g < kGroups; ++g) missing |= from[g].load(first);
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) from[g].clear(first);
  }

  struct Pending {
    uint32_t* parts;
    Half* to;
    uint32_t n_parts; /* 0: nothing is */
  };

  const AttentionLayer<Half, Cache>& layer_;
  Shared& shared_;
  /* Of the head of each group, here and below. row_: of those that share a unit; member_: of the row's heads. */
  uint32_t head_, row_[kGroups], member_[kGroups], n_heads_;
  bool normed_;
  Pairs norm_, pairs_[kGroups], bias_[kGroups];
  NewRows<Cache, HeadDim, Kind::kRows> new_rows_; /* of a kernel that Verifies */
  /* Lanes without dimensions turn zeros; a NaN here would be theirs, and reach the next norm. */
  float4 turn_[kGroups][kRounds] = {};
  Pending pending_[kGroups] = {};
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_HEAD_SM90_H */
