/* The work of a warp of decode_attention_sm90.h that belongs to one head. It prepares a query, the new key or the new
 * value for a unit; in a verify step, the new keys or values of all rows that share it (unit_rows_sm90.h). It combines
 * a query's results of the warps that attended, and, in the block with a sequence's last split, those of all the
 * sequence's splits.
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

template <typename Half, int HeadDim, bool Biased, bool Windowed, typename Cache, bool Verifies>
class AttentionHead {
 public:
  using Shared = AttentionShared<Cache, HeadDim, Verifies>;

  /* `head` < kUnitHeads is a query's, then come the new key and the new value. */
  __device__ __forceinline__ AttentionHead(const AttentionLayer<Half, Cache>& layer, Shared& shared, uint32_t head)
      : layer_(layer),
        shared_(shared),
        head_(head),
        row_(Verifies ? head / layer.ratio : 0),
        member_(head - row_ * layer.ratio),
        n_heads_(layer.ratio * layer.n_kv_heads) {
    const Half* norm = is_query() ? layer.q_norm : head == kUnitHeads ? layer.k_norm : nullptr;
    normed_ = norm != nullptr;
    if (normed_) norm_.load(norm);
  }

  /* When a unit's results are there, its heads have been read: those of the unit after the next may overwrite them. */
  __device__ __forceinline__ void run(const AttentionUnits<Verifies>& units) {
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
      if (k > 0) {
        barrier_wait(&shared_.results, (k - 1) % 2);
        finish(behind);
      }
      behind = unit;
      unit = ahead;
    }
  }

 private:
  static constexpr uint32_t kPart = HeadDim + 4;
  using Sums = HeadSums<Half, HeadDim>;
  using Pairs = HeadPairs<Half, HeadDim>;
  static constexpr uint32_t kRounds = Pairs::kRounds;
  static constexpr uint32_t kAhead = 4 / kRounds; /* parts that are loaded at once */

  __device__ __forceinline__ bool is_query() const { return head_ < kUnitHeads; }
  __device__ __forceinline__ bool takes_part(const AttentionUnit& unit) const {
    return is_query() ? head_ < unit.n_queries : unit.exists() && unit.is_last();
  }

  /* The row of the head. */
  __device__ __forceinline__ uint64_t row(const AttentionUnit& unit) const { return unit.split.row + row_; }
  /* Where the head's output and its partial results lie. */
  __device__ __forceinline__ Half* output(const AttentionUnit& unit) const {
    return layer_.out + (row(unit) * n_heads_ + unit.head + member_) * HeadDim;
  }
  __device__ __forceinline__ uint32_t* parts(const AttentionUnit& unit) const {
    const uint64_t of_head = row(unit) * n_heads_ + unit.head + member_;
    return layer_.partial + of_head * layer_.max_splits * kPart;
  }

  /* Loads the head, as the qkv projection left it, or the new keys or values of the unit's rows. */
  __device__ __forceinline__ void request(const AttentionUnit& unit) {
    if (!takes_part(unit)) return;
    if constexpr (Verifies)
      if (!is_query()) {
        new_rows_.load(layer_, unit, head_ == kUnitHeads ? layer_.k_cache : layer_.v_cache);
        return;
      }
    const uint32_t n_kv_heads = layer_.n_kv_heads, n_heads = n_heads_;
    const uint32_t key = n_heads + unit.kv_head, from = is_query()            ? unit.head + member_
                                                        : head_ == kUnitHeads ? key
                                                                              : key + n_kv_heads;
    pairs_.load(layer_.qkv + (row(unit) * (n_heads + 2 * n_kv_heads) + from) * HeadDim);
    if (Biased) bias_.load(layer_.bias + uint64_t(from) * HeadDim);
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      if (Pairs::used(j))
        turn_[j] = *reinterpret_cast<const float4*>(layer_.turns + row(unit) * (HeadDim / 2) + Pairs::d(j));
  }

  /* Hands the head to the warps that attend; a unit that does not exist tells them to end. */
  __device__ __forceinline__ void prepare(const AttentionUnit& unit, uint32_t k) {
    if (takes_part(unit)) hand_over(unit, shared_.heads[k % 2]);
    const bool speaks = threadIdx.x % 32 == 0;
    if (speaks && head_ == kUnitHeads) tell(unit, k);
    __syncwarp();
    if (speaks) barrier_arrive(shared_.prepared + k % 2);
  }

  /* The new key and value also go to the cache, unless they came from there. */
  template <typename Heads>
  __device__ __forceinline__ void hand_over(const AttentionUnit& unit, Heads& heads) {
    if constexpr (Verifies)
      if (!is_query()) {
        new_rows_.store(unit, heads[kUnitHeads + (head_ - kUnitHeads) * kUnitRows<true>], HeadDim + 8);
        return;
      }
    if (head_ <= kUnitHeads)
      pairs_.rotate(normed_, norm_, layer_.eps, turn_, Biased ? &bias_ : nullptr);
    else if (Biased)
      pairs_.add(bias_);
    if (is_query())
      pairs_.template store_query<Cache>(heads[head_]);
    else
      store_new(unit, heads[head_]);
  }

  /* What the warps that attend have to know of the unit. */
  __device__ __forceinline__ void tell(const AttentionUnit& unit, uint32_t k) {
    shared_.keys[k % 2] = unit.split.keys;
    shared_.n_queries[k % 2] = unit.n_queries;
    shared_.is_last[k % 2] = unit.is_last();
    if (Verifies) shared_.n_rows[k % 2] = unit.n_rows();
    if (Windowed)
      shared_.n_hidden[k % 2] = Verifies ? unit.n_before(layer_.window) : int32_t(unit.n_hidden(layer_.window));
  }

  /* The new key or value, to the cache and for the warps that attend. */
  __device__ __forceinline__ void store_new(const AttentionUnit& unit, typename KvElement<Cache>::Half* head) {
    const bool is_key = head_ == kUnitHeads;
    const uint64_t at =
        cache_offset(layer_.tables, unit.split.sequence, unit.split.position, unit.kv_head, layer_.n_kv_heads, HeadDim);
    pairs_.store_cached((is_key ? layer_.k_cache : layer_.v_cache) + at, head,
                        is_key ? layer_.scales.key : layer_.scales.value);
  }

  /* Stores the unit's partial result, or the output if the sequence has one split. A warp without a query arrives at
   * the barrier all the same: the warps that attend must not be two units ahead of it (E17). */
  __device__ __forceinline__ void finish(const AttentionUnit& unit) {
    const bool takes = is_query() && takes_part(unit), speaks = threadIdx.x % 32 == 0;
    const Sums sums = takes ? add_warps() : Sums();
    __syncwarp();
    if (speaks) barrier_arrive(&shared_.taken);
    if (!takes) return;
    if (unit.split.n_splits == 1) {
      sums.store(output(unit), layer_.scales.value);
      return;
    }
    uint32_t* part = parts(unit) + unit.split.index * kPart;
#pragma unroll
    for (uint32_t j = 0; j < kRounds; ++j)
      if (Sums::used(j)) put_floats(part + Sums::d(j), sums.value[j]);
    if (speaks)
      put_word(part + HeadDim, __float_as_uint(sums.max)), put_word(part + HeadDim + 1, __float_as_uint(sums.sum));
    if (unit.is_last()) pending_ = {parts(unit), output(unit), unit.split.n_splits};
  }

  /* The combined result of the warps that attended. */
  __device__ __forceinline__ Sums add_warps() const {
    Sums sums;
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
    return sums;
  }

  /* Combines all parts of the sequence whose last split was finished a unit ago into the output. */
  __device__ __forceinline__ void combine_pending() {
    const uint32_t n = pending_.n_parts;
    if (n == 0) return;
    pending_.n_parts = 0;
    uint32_t* all = pending_.parts;
    Sums sums;
    PartBounds bounds(threadIdx.x % 32, n);
    uint4 part[kAhead * kRounds]; /* of one part after the other, its rounds */
    float weight[2];
#pragma unroll 1
    for (uint32_t first = 0; first < n; first += kAhead) {
      receive(bounds, part, all, first, n);
      if (first == 0) sums.sum = bounds.weigh(weight);
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j) {
        const float scale = __shfl_sync(0xffffffffu, first < 32 ? weight[0] : weight[1], int((first + j) % 32));
#pragma unroll
        for (uint32_t i = 0; i < kRounds; ++i)
          if (first + j < n) sums.add(i, as_floats(part[j * kRounds + i]), scale);
      }
    }
    sums.store(pending_.to, layer_.scales.value);
  }

  /* The bounds of all n parts, where they are missing, and the lane's dimensions of parts `first`.., up to the last.
   * Clears their places. The loads do not wait for each other: this is the end of the longest path through the op. */
  __device__ __forceinline__ void receive(PartBounds& bounds, uint4 (&part)[kAhead * kRounds], uint32_t* all,
                                          uint32_t first, uint32_t n) const {
    const uint32_t t = threadIdx.x % 32;
    uint4* const of_lane = reinterpret_cast<uint4*>(all + t * kPart + HeadDim);
    uint4* const sums = reinterpret_cast<uint4*>(all + first * kPart + Sums::d(0));
    const auto place = [&](uint32_t e) { return sums + e / kRounds * (kPart / 4) + e % kRounds * 32; };
    const auto wanted = [&](uint32_t e) { return first + e / kRounds < n && Sums::used(e % kRounds); };
#pragma unroll
    for (uint32_t e = 0; e < kAhead * kRounds; ++e) part[e] = wanted(e) ? uint4{} : make_uint4(1, 1, 1, 1);
    bool missing = true;
    for (Patience patience; missing; patience.spend()) {
      bounds.load(of_lane, kPart / 4);
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e)
        if (is_missing(part[e])) part[e] = load_relaxed(place(e));
      missing = bounds.missing();
#pragma unroll
      for (uint32_t e = 0; e < kAhead * kRounds; ++e) missing |= is_missing(part[e]);
    }
    if (first == 0) PartBounds::clear(of_lane, kPart / 4, t, n);
#pragma unroll
    for (uint32_t e = 0; e < kAhead * kRounds; ++e)
      if (wanted(e)) *place(e) = make_uint4(0, 0, 0, 0);
  }

  struct Pending {
    uint32_t* parts;
    Half* to;
    uint32_t n_parts; /* 0: nothing is */
  };

  const AttentionLayer<Half, Cache>& layer_;
  Shared& shared_;
  uint32_t head_, row_, member_, n_heads_; /* row_: of those that share a unit; member_: of the row's heads */
  bool normed_;
  Pairs norm_, pairs_, bias_;
  NewRows<Cache, HeadDim> new_rows_; /* of a kernel that Verifies */
  /* Lanes without dimensions turn zeros; a NaN here would be theirs, and reach the next norm. */
  float4 turn_[kRounds] = {};
  Pending pending_ = {};
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_HEAD_SM90_H */
