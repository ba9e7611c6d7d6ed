/* Attention in the megakernel, with the RoPE of rope.h: one new token for each sequence. Maths and CPU references
 * are those of rope.h and attention.h; the new key and value are written to the cache here.
 *
 * The keys of a sequence are split over blocks (flash-decoding), and the tiles of 16 keys of a split (kv_tile.h) over
 * the block's warps, to which they come in stages of shared memory. The partial results of the splits are combined by
 * all the sequence's blocks, each for some of the dimensions.
 */
#ifndef BLINK_MEGAKERNEL_DECODE_ATTENTION_H
#define BLINK_MEGAKERNEL_DECODE_ATTENTION_H

#include "kernels/ops/attention/kv_split_combine.h"
#include "decode_unit.h"
#include "kernels/ops/attention/head_pairs.h"

#ifdef __CUDACC__

namespace blink {

/* One layer's attention.
 *
 *   parts  [batch_slots][groups of a batch slot][splits][Group][kPartWords] fp32: unnormalised output, maximum (log2
 *          units), sum
 *
 * Other blocks write qkv and parts while this runs, and other blocks read out (ll_protocol.h).
 */
template <int HeadDim>
constexpr uint32_t kPartWords = HeadDim + 4; /* a multiple of 16 bytes */

template <typename Half, typename Cache>
struct DecodeLayer {
  const struct blink_tables& tables;
  const Half *qkv, *q_norm, *k_norm;
  float eps;
  Cache *k_cache, *v_cache;
  float* parts;
  Half* out;
  uint32_t n_heads, n_kv_heads;
  KvScales<Cache> scales;
};

/* A block's shared memory, for up to Group query heads of one key head, and `Warps` warps. */
template <typename Cache, int HeadDim, int Group, int Warps>
struct __align__(16) DecodeScratch {
  using Softmax = TileSoftmax<Cache, HeadDim>;
  using Half = typename KvElement<Cache>::Half;
  static constexpr uint32_t kStride = HeadDim + 8; /* spreads the heads over the banks */

  Half q[8][kStride];          /* rotated; rows past the group's end have no influence on the others */
  Half k[HeadDim], v[HeadDim]; /* the new token's */
  float out[Warps][Group][Softmax::kOutStride], max[Warps][Group], sum[Warps][Group];
};

/* A block's work on one unit. A stage brings the next StageTiles of a warp's tiles, or the rest of them.
 * `stages.wait_keys()` returns where the stage lies, once it has come; it stays until `stages.release_keys()`. Order:
 * of the output (input_order.h). */
template <typename Half, int HeadDim, int Group, typename Cache, typename Order, int Warps, int StageTiles>
class DecodeAttention {
 public:
  using Scratch = DecodeScratch<Cache, HeadDim, Group, Warps>;
  using Prepared = PreparedUnit<HeadDim>;

  __device__ __forceinline__ DecodeAttention(const DecodeLayer<Half, Cache>& layer, const Prepared& prepared,
                                             uint32_t most_splits)
      : layer_(layer), prepared_(prepared), unit_(prepared.unit), most_splits_(most_splits) {}

  /* By the whole block; `scratch` is free again when all its threads have returned. */
  template <typename Stages>
  __device__ __forceinline__ void run(Scratch& scratch, Stages& stages) {
    rotate(scratch);
    group_sync(1, kThreads);
    if (unit_.takes_new() && unit_.member == 0) write_new(scratch);
    const uint32_t warp = threadIdx.x / 32, end = unit_.end_key();
    TileSoftmax<Cache, HeadDim> softmax(scratch.q[0], Scratch::kStride, layer_.scales);
    for (uint32_t key = unit_.first_key(warp); key < end;) {
      char* stage = stages.wait_keys();
#pragma unroll 1
      for (uint32_t t = 0; t < StageTiles && key < end; ++t, key += Warps * kTileKeys) {
        const CopiedTile<Cache, HeadDim> tile(stage + t * kTileBytes<Cache, HeadDim>);
        if (end - key < kTileKeys) tile.clear_values(end - key), fence_async_proxy();
        softmax.add(tile, {end - key});
      }
      stages.release_keys();
    }
    if (unit_.takes_new() && warp == 0) softmax.add(NewTile<Cache, HeadDim>{scratch.k, scratch.v}, {1});
    softmax.store(0, scratch.out[warp][0], scratch.max[warp], scratch.sum[warp], unit_.n_queries);
    group_sync(1, kThreads);
    combine_warps(scratch);
    if (unit_.splits.used > 1) combine_splits();
  }

 private:
  static constexpr uint32_t kThreads = 32 * Warps, kPart = kPartWords<HeadDim>;

  /* Brings the queries from the qkv projection's output into scratch, one warp for each head; in the unit that has the
   * sequence's last split also the new key and value. */
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
      static_assert(Pairs::kRounds == 1, "a turn a lane");
      float4 turn[1] = {}; /* lanes without dimensions turn zeros */
      if (Pairs::used(0)) turn[0] = prepared_.turn[threadIdx.x % 32];
      if (norm) weights.load(norm);
      pairs.await(x + head * HeadDim);
      if (!is_value) pairs.rotate(norm != nullptr, weights, layer_.eps, turn);
      constexpr Cache* kLater = nullptr; /* write_new() */
      if (is_query)
        pairs.template store_query<Cache>(scratch.q[u]);
      else
        pairs.store_cached(kLater, is_value ? scratch.v : scratch.k,
                           is_value ? layer_.scales.value : layer_.scales.key);
    }
  }

  __device__ __forceinline__ void write_new(const Scratch& scratch) const {
    if (threadIdx.x >= HeadDim / 4) return;
    const uint32_t d = threadIdx.x % (HeadDim / 8) * 8;
    const bool is_value = threadIdx.x >= HeadDim / 8;
    const uint64_t at =
        cache_offset(layer_.tables, unit_.sequence, unit_.position, unit_.kv_head, layer_.n_kv_heads, HeadDim);
    Cache* const to = (is_value ? layer_.v_cache : layer_.k_cache) + at + d;
    const auto* const from = (is_value ? scratch.v : scratch.k) + d;
    if constexpr (KvElement<Cache>::kFp8) {
      float x[8];
      load8(from, x);
      store_cached8(to, x, 1.0f); /* they are elements of the cache already */
    } else {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
  }

  /* Where dimensions d .. d + 3 of the output lie, which are neighbours. */
  __device__ __forceinline__ Half* output(uint32_t query, uint32_t d) const {
    return layer_.out + Order::element(unit_.token, (unit_.head + query) * HeadDim + d);
  }
  __device__ __forceinline__ uint32_t* part(uint32_t split, uint32_t query) const {
    return reinterpret_cast<uint32_t*>(layer_.parts) + ((unit_.index * most_splits_ + split) * Group + query) * kPart;
  }
  /* Dimensions d .. d + 3 of the output. */
  __device__ __forceinline__ void put_output(uint32_t query, uint32_t d, const float4& value, float sum) const {
    const float share = layer_.scales.value / sum;
    Half* to = output(query, d);
    put_pair(to, value.x * share, value.y * share);
    put_pair(to + 2, value.z * share, value.w * share);
  }
  static __device__ __forceinline__ void add(float4& to, const float4& x, float weight) {
    to.x += weight * x.x, to.y += weight * x.y, to.z += weight * x.z, to.w += weight * x.w;
  }

  /* The block's result: the output if the block has all keys of the sequence, or else the partial result of a split. */
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

  /* Combines all splits' partial results into the block's share of the output. Every block has a share, since all would
   * wait for one that had more to do. For four dimensions a lane has one split's part, or two. */
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

  /* Receives the bounds and four dimensions of the parts `split` and `split` + 32. The loads do not wait for each
   * other, because this is the end of the longest path through the op. */
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

  const DecodeLayer<Half, Cache>& layer_;
  const Prepared& prepared_;
  const DecodeUnit unit_;
  const uint32_t most_splits_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_DECODE_ATTENTION_H */
