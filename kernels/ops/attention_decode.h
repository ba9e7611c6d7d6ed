/* Attention in the decoder kernel, with the RoPE of rope.h: one token a row. Maths and CPU twins are those of
 * rope.h and attention.h; the new key and value are written to the cache here.
 *
 * A row's keys are split over blocks (flash-decoding), a split's tiles of 16 keys (decode_tile.h) over the
 * block's warps. What they have found is put together by all of them, some dimensions each.
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_H
#define BLINK_OPS_ATTENTION_DECODE_H

#include "attention_parts.h"
#include "decode_tile.h"
#include "decode_unit.h"
#include "head_pairs.h"

#ifdef __CUDACC__

namespace blink {

/* One layer's attention.
 *
 *   parts  [lanes][groups a lane][splits][Group][kPartWords] fp32: unnormalised output, maximum (log2 units), sum
 *
 * qkv and parts other blocks write meanwhile, and out is read by others (exchange.h).
 */
template <int HeadDim>
constexpr uint32_t kPartWords = HeadDim + 4; /* a multiple of 16 bytes */

template <typename Half>
struct DecodeLayer {
  const struct blink_tables& tables;
  const Half *qkv, *q_norm, *k_norm;
  float eps;
  Half *k_cache, *v_cache;
  float* parts;
  Half* out;
  uint32_t n_heads, n_kv_heads;
};

/* A block's work on one unit. */
template <typename Half, int HeadDim, int Group, int Warps>
class DecodeAttention {
 public:
  using Scratch = DecodeScratch<Half, HeadDim, Group, Warps>;
  using Prepared = PreparedUnit<HeadDim, Warps>;

  /* Requests the first keys and values, which earlier steps have written. */
  __device__ __forceinline__ DecodeAttention(const DecodeLayer<Half>& layer, const Prepared& prepared,
                                             uint32_t most_splits)
      : layer_(layer), prepared_(prepared), unit_(prepared.unit), most_splits_(most_splits) {
    key_ = unit_.first_key(threadIdx.x / 32);
    end_ = unit_.end_key();
    if (key_ >= end_) return;
    offset_ = prepared.first[threadIdx.x / 32];
    load_early(end_ - key_);
  }

  /* By the whole block; `scratch` is free again when all its threads have returned. */
  __device__ __forceinline__ void run(Scratch& scratch) {
    rotate(scratch);
    group_sync(1, kThreads);
    if (unit_.takes_new() && unit_.member == 0) write_new(scratch);
    State state;
    state.clear();
    while (key_ < end_) {
      const uint32_t next = key_ + Warps * kTileKeys, n_next = next < end_ ? end_ - next : 0;
      tile_.template load_values<Tile::kEarlyChunks, Tile::kValueChunks>(layer_.v_cache + offset_, end_ - key_);
      float s[2][4] = {};
      state.score(tile_, scratch, s);
      state.weigh(s, end_ - key_);
      state.add_values(tile_, s);
      offset_ = n_next ? at(next) : 0;
      load_early(n_next);
      key_ = next;
    }
    if (unit_.takes_new() && threadIdx.x / 32 == 0) {
      float s[2][4] = {};
      tile_.take_new(scratch);
      state.score(tile_, scratch, s);
      state.weigh(s, 1);
      state.add_values(tile_, s);
    }
    state.store(scratch);
    group_sync(1, kThreads);
    combine_warps(scratch);
    if (unit_.splits.used > 1) combine_splits();
  }

 private:
  using Tile = DecodeTile<Half, HeadDim>;
  using State = DecodeState<Half, HeadDim>;
  static constexpr uint32_t kThreads = 32 * Warps, kPart = kPartWords<HeadDim>;

  /* Of the tile at offset_, of n_valid keys, what there are registers for ahead of its turn. */
  __device__ __forceinline__ void load_early(uint32_t n_valid) {
    tile_.load_keys(layer_.k_cache + offset_, n_valid);
    tile_.template load_values<0, Tile::kEarlyChunks>(layer_.v_cache + offset_, n_valid);
  }
  __device__ __forceinline__ uint64_t at(uint32_t key) const {
    return cache_offset(layer_.tables, unit_.row, key, unit_.kv_head, layer_.n_kv_heads, HeadDim);
  }

  /* The queries, and for the unit that takes them the new key and value, from the qkv projection's output into scratch,
   * a warp each. */
  __device__ __forceinline__ void rotate(Scratch& scratch) const {
    using Pairs = HeadPairs<Half, HeadDim>;
    static_assert(Group + 2 <= Warps, "a warp for each head");
    const uint32_t n_heads = layer_.n_heads, n_kv_heads = layer_.n_kv_heads, u = threadIdx.x / 32;
    const Half* x = layer_.qkv + uint64_t(unit_.token) * (n_heads + 2 * n_kv_heads) * HeadDim;
    if (u < unit_.n_queries + (unit_.takes_new() ? 2 : 0)) {
      const bool is_query = u < unit_.n_queries, is_value = u == unit_.n_queries + 1;
      const uint32_t head = is_query ? unit_.head + u : n_heads + unit_.kv_head + (is_value ? n_kv_heads : 0);
      const Half* norm = is_query ? layer_.q_norm : is_value ? nullptr : layer_.k_norm;
      Pairs pairs, weights;
      float4 turn = {}; /* lanes without dimensions turn zeros */
      if (Pairs::used()) turn = prepared_.turn[threadIdx.x % 32];
      if (norm) weights.load(norm);
      pairs.await(x + head * HeadDim);
      if (!is_value) pairs.rotate(norm != nullptr, weights, layer_.eps, turn);
      pairs.store(is_query ? scratch.q[u] : is_value ? scratch.v : scratch.k);
    }
    for (uint32_t e = threadIdx.x; e < (8 - unit_.n_queries) * HeadDim; e += kThreads)
      from_float(0.0f, &scratch.q[unit_.n_queries + e / HeadDim][e % HeadDim]);
  }

  __device__ __forceinline__ void write_new(const Scratch& scratch) const {
    if (threadIdx.x >= HeadDim / 4) return;
    const uint32_t d = threadIdx.x % (HeadDim / 8) * 8;
    const bool is_value = threadIdx.x >= HeadDim / 8;
    *reinterpret_cast<uint4*>((is_value ? layer_.v_cache : layer_.k_cache) + at(unit_.position) + d) =
        *reinterpret_cast<const uint4*>((is_value ? scratch.v : scratch.k) + d);
  }

  __device__ __forceinline__ Half* output(uint32_t query) const {
    return layer_.out + (uint64_t(unit_.token) * layer_.n_heads + unit_.head + query) * HeadDim;
  }
  __device__ __forceinline__ uint32_t* part(uint32_t split, uint32_t query) const {
    return reinterpret_cast<uint32_t*>(layer_.parts) + ((unit_.index * most_splits_ + split) * Group + query) * kPart;
  }
  /* Dimensions d .. d + 3 of the output. */
  __device__ __forceinline__ void put_output(uint32_t query, uint32_t d, const float4& value, float sum) const {
    const float share = 1.0f / sum;
    put_pair(output(query) + d, value.x * share, value.y * share);
    put_pair(output(query) + d + 2, value.z * share, value.w * share);
  }
  static __device__ __forceinline__ void add(float4& to, const float4& x, float weight) {
    to.x += weight * x.x, to.y += weight * x.y, to.z += weight * x.z, to.w += weight * x.w;
  }

  /* The block's result: the output if it has all of the row's keys, or else one split's part. */
  __device__ __forceinline__ void combine_warps(const Scratch& scratch) const {
    for (uint32_t e = threadIdx.x; e < unit_.n_queries * HeadDim / 4; e += kThreads) {
      const uint32_t g = e / (HeadDim / 4), d = e % (HeadDim / 4) * 4;
      float max = -INFINITY, sum = 0.0f;
      float4 value = {};
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) max = fmaxf(max, scratch.max[w][g]);
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) {
        const float weight = exp2f(scratch.max[w][g] - max);
        add(value, *reinterpret_cast<const float4*>(&scratch.out[w][g][d]), weight);
        sum += weight * scratch.sum[w][g];
      }
      if (unit_.splits.used == 1) {
        put_output(g, d, value, sum);
        continue;
      }
      uint32_t* target = part(unit_.split, g);
      put_floats(target + d, {value.x, value.y, value.z, value.w});
      if (d == 0)
        put_word(target + HeadDim, __float_as_uint(max)), put_word(target + HeadDim + 1, __float_as_uint(sum));
    }
  }

  /* The block's share of the output from all splits' parts: all blocks would wait for one that had more to do. Of four
   * dimensions a lane has a part, or two. */
  __device__ __forceinline__ void combine_splits() const {
    const uint32_t t = threadIdx.x % 32, used = unit_.splits.used, all = unit_.n_queries * (HeadDim / 4);
    uint32_t lanes = 2;
    while (lanes < min(used, 32u)) lanes *= 2;
    const uint32_t abreast = 32 / lanes;
    const uint32_t first = unit_.split * all / used, end = (unit_.split + 1) * all / used;
#pragma unroll 1
    for (uint32_t base = first + threadIdx.x / 32 * abreast; base < end; base += Warps * abreast) {
      const uint32_t at = min(base + t / lanes, end - 1), g = at / (HeadDim / 4), d = at % (HeadDim / 4) * 4;
      PartBounds bounds(t % lanes, used);
      uint4 part[2];
      receive(bounds, part, t % lanes, g, d);
      float weight[2];
      const float sum = bounds.weigh(weight, lanes);
      float4 value = {};
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) add(value, as_floats(part[h]), weight[h]);
      for (uint32_t offset = lanes / 2; offset > 0; offset /= 2) {
        const auto other = [&](float x) { return __shfl_xor_sync(0xffffffffu, x, int(offset)); };
        value.x += other(value.x), value.y += other(value.y), value.z += other(value.z), value.w += other(value.w);
      }
      if (t % lanes == 0 && base + t / lanes < end) put_output(g, d, value, sum);
    }
  }

  /* Bounds and four dimensions of the parts `split` and `split` + 32. Loads do not wait for each other: this is the end
   * of the longest path through the op. */
  __device__ __forceinline__ void receive(PartBounds& bounds, uint4 (&sums)[2], uint32_t split, uint32_t query,
                                          uint32_t d) const {
    constexpr uint32_t kStride = Group * kPart / 4; /* from split to split */
    const uint4* from = reinterpret_cast<const uint4*>(part(split, query));
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) sums[h] = split + 32 * h < unit_.splits.used ? uint4{} : make_uint4(1, 1, 1, 1);
    bool missing = true;
    for (Patience patience; missing; patience.spend()) {
      bounds.load(from + HeadDim / 4, kStride);
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h)
        if (is_missing(sums[h])) sums[h] = load_relaxed(from + 32 * h * kStride + d / 4);
      missing = bounds.missing() || is_missing(sums[0]) || is_missing(sums[1]);
    }
  }

  const DecodeLayer<Half>& layer_;
  const Prepared& prepared_;
  const DecodeUnit unit_;
  const uint32_t most_splits_;
  uint32_t key_, end_;
  uint64_t offset_ = 0; /* of the tile at key_ in the layer's cache */
  Tile tile_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_H */
