/* A warp's part of attention_stream.h that belongs to one head: a query, the new key or the new value is prepared for a
 * unit, and a query's result put together from the warps that attended and, by the last to finish a row's pieces,
 * from all of them.
 *
 * Loads are issued a unit ahead, and whether a row's last piece has arrived is asked a unit later, so that neither
 * holds up the warps that attend.
 */
#ifndef BLINK_OPS_ATTENTION_HEAD_H
#define BLINK_OPS_ATTENTION_HEAD_H

#include "attention_unit.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

/* A head in a warp: a lane has dimensions d, d + 1 and their partners for the rotation. */
template <typename Half, int HeadDim>
struct HeadPairs {
  uint32_t low = 0, high = 0;

  static __device__ __forceinline__ uint32_t d() { return threadIdx.x % 32 * 2; }
  static __device__ __forceinline__ bool used() { return d() < HeadDim / 2; }

  __device__ __forceinline__ void load(const Half* x) {
    if (!used()) return;
    low = *reinterpret_cast<const uint32_t*>(x + d());
    high = *reinterpret_cast<const uint32_t*>(x + d() + HeadDim / 2);
  }
  __device__ __forceinline__ void store(Half* to) const {
    if (!used()) return;
    *reinterpret_cast<uint32_t*>(to + d()) = low;
    *reinterpret_cast<uint32_t*>(to + d() + HeadDim / 2) = high;
  }
  static __device__ __forceinline__ void unpack(uint32_t raw, float (&x)[2]) {
    const Half* halves = reinterpret_cast<const Half*>(&raw);
    x[0] = to_float(halves[0]), x[1] = to_float(halves[1]);
  }
  /* Normed by `norm` if `normed`, and turned by the (cos, sin) of d and d + 1. */
  __device__ __forceinline__ void rotate(bool normed, const HeadPairs& norm, float eps, const float4& by) {
    float a[2], b[2];
    unpack(low, a), unpack(high, b);
    if (normed) {
      float wa[2], wb[2];
      unpack(norm.low, wa), unpack(norm.high, wb);
      const float sum = warp_sum(a[0] * a[0] + a[1] * a[1] + (b[0] * b[0] + b[1] * b[1]));
      const float scale = 1.0f / sqrtf(sum / float(HeadDim) + eps);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) a[i] *= scale * wa[i], b[i] *= scale * wb[i];
    }
    turn(a[0], b[0], by.x, by.y);
    turn(a[1], b[1], by.z, by.w);
    low = pack<Half>(a[0], a[1]), high = pack<Half>(b[0], b[1]);
  }
};

/* A query head's sums in a warp: a lane has four dimensions. */
template <typename Half, int HeadDim>
struct HeadSums {
  float value[4] = {}, max = -INFINITY, sum = 0.0f;

  static __device__ __forceinline__ uint32_t d() { return threadIdx.x % 32 * 4; }
  static __device__ __forceinline__ bool used() { return d() < HeadDim; }

  __device__ __forceinline__ void add(const float4& x, float weight) {
    value[0] += weight * x.x, value[1] += weight * x.y, value[2] += weight * x.z, value[3] += weight * x.w;
  }
  __device__ __forceinline__ void store(Half* to) const {
    const uint2 raw = {pack<Half>(value[0] / sum, value[1] / sum), pack<Half>(value[2] / sum, value[3] / sum)};
    if (used()) *reinterpret_cast<uint2*>(to + d()) = raw;
  }
};

template <typename Half, int HeadDim>
class AttentionHead {
 public:
  using Shared = AttentionShared<Half, HeadDim>;

  /* `head` < kUnitHeads is a query's, then come the new key and the new value. */
  __device__ __forceinline__ AttentionHead(const AttentionLayer<Half>& layer, Shared& shared, uint32_t head)
      : layer_(layer), shared_(shared), head_(head) {
    const Half* norm = is_query() ? layer.q_norm : head == kUnitHeads ? layer.k_norm : nullptr;
    normed_ = norm != nullptr;
    if (normed_) norm_.load(norm);
  }

  /* A unit's results say that its heads have been read: those of the unit after the next may overwrite them. */
  __device__ __forceinline__ void run(const AttentionUnits& units) {
    AttentionUnit behind = {}, unit = units.first(), ahead = units.next(unit);
    wait_for_predecessor();
    if (unit.exists()) request(unit);
    for (uint32_t k = 0;; ++k) {
      prepare(unit, k);
      if (ahead.exists()) request(ahead);
      const AttentionUnit after = units.next(ahead);
      if (k > 0) {
        combine_pending();
        barrier_wait(&shared_.results, (k - 1) % 2);
        if (is_query()) finish(behind);
      }
      if (!unit.exists()) break;
      behind = unit;
      unit = ahead;
      ahead = after;
    }
    combine_pending();
  }

 private:
  static constexpr uint32_t kPart = HeadDim + 4;
  static constexpr uint32_t kEarly = 4; /* parts that are loaded at once */
  using Sums = HeadSums<Half, HeadDim>;

  __device__ __forceinline__ bool is_query() const { return head_ < kUnitHeads; }
  __device__ __forceinline__ bool takes_part(const AttentionUnit& unit) const {
    return is_query() ? head_ < unit.n_queries : unit.exists() && unit.is_last();
  }

  /* Loads the head, as the qkv projection left it. */
  __device__ __forceinline__ void request(const AttentionUnit& unit) {
    if (!takes_part(unit)) return;
    const uint32_t n_heads = layer_.n_heads, n_kv_heads = layer_.n_kv_heads;
    const uint32_t key = n_heads + unit.kv_head, from = is_query()            ? unit.head + head_
                                                        : head_ == kUnitHeads ? key
                                                                              : key + n_kv_heads;
    pairs_.load(layer_.qkv + (uint64_t(unit.piece.token) * (n_heads + 2 * n_kv_heads) + from) * HeadDim);
    if (pairs_.used())
      turn_ = *reinterpret_cast<const float4*>(layer_.turns + uint64_t(unit.piece.lane) * (HeadDim / 2) + pairs_.d());
  }

  /* For the warps that attend, whom no unit ends; the new key and value go to the cache, too. */
  __device__ __forceinline__ void prepare(const AttentionUnit& unit, uint32_t k) {
    if (takes_part(unit)) {
      if (head_ <= kUnitHeads) pairs_.rotate(normed_, norm_, layer_.eps, turn_);
      pairs_.store(shared_.heads[k % 2][head_]);
      if (!is_query())
        pairs_.store(
            (head_ == kUnitHeads ? layer_.k_cache : layer_.v_cache) +
            cache_offset(layer_.tables, unit.piece.row, unit.piece.position, unit.kv_head, layer_.n_kv_heads, HeadDim));
    }
    const bool speaks = threadIdx.x % 32 == 0;
    if (speaks && head_ == kUnitHeads) {
      shared_.keys[k % 2] = unit.piece.keys;
      shared_.n_queries[k % 2] = unit.n_queries;
      shared_.is_last[k % 2] = unit.is_last();
    }
    __syncwarp();
    if (speaks) barrier_arrive(shared_.prepared + k % 2);
  }

  /* The unit's part of the row, or the output if there is no other. */
  __device__ __forceinline__ void finish(const AttentionUnit& unit) {
    const bool takes = takes_part(unit), speaks = threadIdx.x % 32 == 0;
    const Sums sums = takes ? add_warps() : Sums();
    __syncwarp();
    if (speaks) barrier_arrive(&shared_.taken);
    if (!takes) return;
    const uint32_t n_splits = unit.piece.n_splits, head = unit.head + head_;
    Half* to = layer_.out + (uint64_t(unit.piece.token) * layer_.n_heads + head) * HeadDim;
    if (n_splits == 1) {
      sums.store(to);
      return;
    }
    const uint64_t of_lane = uint64_t(unit.piece.lane) * layer_.n_heads + head;
    float *parts = layer_.partial + of_lane * layer_.max_pieces * kPart, *part = parts + unit.piece.split * kPart;
    if (sums.used())
      *reinterpret_cast<float4*>(part + sums.d()) =
          make_float4(sums.value[0], sums.value[1], sums.value[2], sums.value[3]);
    if (speaks) part[HeadDim] = sums.max, part[HeadDim + 1] = sums.sum;
    __syncwarp();
    pending_ = {parts, to, layer_.arrivals + of_lane, n_splits, 0};
    if (speaks) pending_.arrived = arrive(pending_.counter);
  }

  /* What the warps that attended have found. */
  __device__ __forceinline__ Sums add_warps() const {
    Sums sums;
#pragma unroll
    for (uint32_t w = 0; w < kTileWarps; ++w) sums.max = fmaxf(sums.max, shared_.max[w][head_]);
#pragma unroll
    for (uint32_t w = 0; w < kTileWarps; ++w) {
      const float weight = exp2f(shared_.max[w][head_] - sums.max);
      sums.sum += weight * shared_.sum[w][head_];
      if (sums.used()) sums.add(*reinterpret_cast<const float4*>(shared_.out[w][head_] + sums.d()), weight);
    }
    return sums;
  }

  /* The output from all parts, if the one that was stored last was the last to arrive. Loads do not wait for each
   * other: this is the end of the longest path through the op. */
  __device__ __forceinline__ void combine_pending() {
    const uint32_t n = pending_.n_splits, t = threadIdx.x % 32;
    if (n == 0) return;
    const uint32_t arrived = __shfl_sync(0xffffffffu, pending_.arrived, 0);
    pending_.n_splits = 0;
    if (arrived != n - 1) return;
    if (t == 0) *pending_.counter = 0;
    Sums sums;
    const float* parts = pending_.parts;
    float4 early[kEarly];
#pragma unroll
    for (uint32_t s = 0; s < kEarly; ++s)
      if (s < n && sums.used()) early[s] = *reinterpret_cast<const float4*>(parts + s * kPart + sums.d());
    float max[2], weight[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float* at = parts + (t + 32 * h) * kPart + HeadDim;
      max[h] = t + 32 * h < n ? at[0] : -INFINITY;
      weight[h] = t + 32 * h < n ? at[1] : 0.0f;
    }
    sums.max = warp_max(fmaxf(max[0], max[1]));
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float scale = exp2f(max[h] - sums.max);
      sums.sum += scale * weight[h];
      weight[h] = scale;
    }
    sums.sum = warp_sum(sums.sum);
#pragma unroll
    for (uint32_t s = 0; s < kEarly; ++s) {
      const float scale = __shfl_sync(0xffffffffu, weight[0], int(s));
      if (s < n && sums.used()) sums.add(early[s], scale);
    }
#pragma unroll 8
    for (uint32_t s = kEarly; s < n; ++s) {
      const float scale = __shfl_sync(0xffffffffu, s < 32 ? weight[0] : weight[1], int(s % 32));
      if (sums.used()) sums.add(*reinterpret_cast<const float4*>(parts + s * kPart + sums.d()), scale);
    }
    sums.store(pending_.to);
  }

  struct Pending {
    const float* parts;
    Half* to;
    uint32_t *counter, n_splits, arrived;
  };

  const AttentionLayer<Half>& layer_;
  Shared& shared_;
  uint32_t head_;
  bool normed_;
  HeadPairs<Half, HeadDim> norm_, pairs_;
  float4 turn_ = {}; /* lanes without dimensions turn zeros; a NaN here would be theirs, and reach the next norm */
  Pending pending_ = {};
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_HEAD_H */
