/* Attention in the decoder kernel, with the RoPE of rope.h: one token a row. Maths and CPU twins are those of
 * rope.h and attention.h; the new key and value are written to the cache here.
 *
 * A row's keys are split over blocks (flash-decoding), a split's tiles of 16 keys (decode_tile.h) over the
 * block's warps. The block with a row and key head's first split combines them.
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_H
#define BLINK_OPS_ATTENTION_DECODE_H

#include "decode_tile.h"
#include "exchange.h"
#include "rope.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kMinSplit = 64;  /* a split shorter than this is not worth a block */
constexpr uint32_t kMaxSplits = 64; /* two for each lane of the warp that combines them */

/* How a row's cached keys are split over at most `most` blocks. */
struct Splits {
  uint32_t keys, used; /* keys of a split; splits */

  __device__ __forceinline__ Splits(uint32_t n_keys, uint32_t most) {
    const uint32_t share = (n_keys + most - 1) / most;
    keys = max(kMinSplit, (share + kTileKeys - 1) / kTileKeys * kTileKeys);
    used = max(1u, (n_keys + keys - 1) / keys);
  }
};

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
  struct blink_step_set set;
  struct blink_tables tables;
  const Half *qkv, *q_norm, *k_norm;
  float eps;
  const float* inv_freq;
  Half *k_cache, *v_cache;
  float* parts;
  Half* out;
  uint32_t n_heads, n_kv_heads;
};

/* What a block works on at a time: up to Group query heads, from `head` on, of one key head and one lane. */
struct DecodePlace {
  uint32_t lane, token, row, position, kv_head, member, head, n_queries, index;

  /* `group` counts the groups of a lane, of which each key head has ceil(ratio / Group). */
  template <typename Half>
  __device__ __forceinline__ DecodePlace(const DecodeLayer<Half>& layer, uint32_t of_lane, uint32_t group,
                                         uint32_t most) {
    const uint32_t ratio = layer.n_heads / layer.n_kv_heads, groups = (ratio + most - 1) / most;
    lane = of_lane;
    token = layer.set.lane_last[lane];
    row = layer.set.token_row[token];
    position = layer.set.token_position[token];
    kv_head = group / groups;
    member = group % groups * most;
    head = kv_head * ratio + member;
    n_queries = min(most, ratio - member);
    index = lane * layer.n_kv_heads * groups + group;
  }
};

/* A block's work on one place and split. */
template <typename Half, int HeadDim, int Group, int Warps>
class DecodeAttention {
 public:
  using Scratch = DecodeScratch<Half, HeadDim, Group, Warps>;

  /* Requests the first keys and values, which earlier steps have written. */
  __device__ __forceinline__ DecodeAttention(const DecodeLayer<Half>& layer, const DecodePlace& place, uint32_t split,
                                             uint32_t most_splits)
      : layer_(layer), place_(place), splits_(place.position, most_splits), most_splits_(most_splits), split_(split) {
    key_ = split * splits_.keys + threadIdx.x / 32 * kTileKeys;
    end_ = min(place.position, (split + 1) * splits_.keys);
    if (key_ >= end_) return;
    offset_ = at(key_);
    load_early(end_ - key_);
  }

  /* The keys before the new one may take fewer splits. */
  __device__ __forceinline__ bool exists() const { return split_ < splits_.used; }

  /* By the whole block; `scratch` is free again when all its threads have returned. */
  __device__ __forceinline__ void run(Scratch& scratch) {
    const bool takes_new = split_ + 1 == splits_.used;
    rope(takes_new, scratch);
    group_sync(1, kThreads);
    if (takes_new && place_.member == 0) write_new(scratch);
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
    if (takes_new && threadIdx.x / 32 == 0) {
      float s[2][4] = {};
      tile_.take_new(scratch);
      state.score(tile_, scratch, s);
      state.weigh(s, 1);
      state.add_values(tile_, s);
    }
    state.store(scratch);
    group_sync(1, kThreads);
    combine_warps(scratch);
    if (splits_.used > 1 && split_ == 0) combine_splits();
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
    return cache_offset(layer_.tables, place_.row, key, place_.kv_head, layer_.n_kv_heads, HeadDim);
  }

  /* The queries, and with `takes_new` the new key and value, from the qkv projection's output into scratch. */
  __device__ __forceinline__ void rope(bool takes_new, Scratch& scratch) const {
    const uint32_t n_heads = layer_.n_heads, n_kv_heads = layer_.n_kv_heads;
    const Half* x = layer_.qkv + uint64_t(place_.token) * (n_heads + 2 * n_kv_heads) * HeadDim;
    const uint32_t n = place_.n_queries + (takes_new ? 2 : 0);
#pragma unroll 1
    for (uint32_t u = threadIdx.x / 32; u < n; u += Warps) {
      const bool is_query = u < place_.n_queries, is_value = u == place_.n_queries + 1;
      const uint32_t head = is_query ? place_.head + u : n_heads + place_.kv_head + (is_value ? n_kv_heads : 0);
      const Half* norm = is_query ? layer_.q_norm : is_value ? nullptr : layer_.k_norm;
      Half* to = is_query ? scratch.q[u] : is_value ? scratch.v : scratch.k;
      rope_head<Half, HeadDim>(x + head * HeadDim, norm, layer_.eps, !is_value, place_.position, layer_.inv_freq, to);
    }
    for (uint32_t e = threadIdx.x; e < (8 - place_.n_queries) * HeadDim; e += kThreads)
      from_float(0.0f, &scratch.q[place_.n_queries + e / HeadDim][e % HeadDim]);
  }

  __device__ __forceinline__ void write_new(const Scratch& scratch) const {
    if (threadIdx.x >= HeadDim / 4) return;
    const uint32_t d = threadIdx.x % (HeadDim / 8) * 8;
    const bool is_value = threadIdx.x >= HeadDim / 8;
    *reinterpret_cast<uint4*>((is_value ? layer_.v_cache : layer_.k_cache) + at(place_.position) + d) =
        *reinterpret_cast<const uint4*>((is_value ? scratch.v : scratch.k) + d);
  }

  __device__ __forceinline__ Half* output(uint32_t query) const {
    return layer_.out + (uint64_t(place_.token) * layer_.n_heads + place_.head + query) * HeadDim;
  }
  __device__ __forceinline__ float* part(uint32_t split, uint32_t query) const {
    return layer_.parts + ((place_.index * most_splits_ + split) * Group + query) * kPart;
  }

  /* The block's result: the output if it has all of the row's keys, or else one split's part. */
  __device__ __forceinline__ void combine_warps(const Scratch& scratch) const {
    for (uint32_t e = threadIdx.x; e < place_.n_queries * HeadDim / 2; e += kThreads) {
      const uint32_t g = e / (HeadDim / 2), d = e % (HeadDim / 2) * 2;
      float max = -INFINITY, sum = 0.0f, value[2] = {};
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) max = fmaxf(max, scratch.max[w][g]);
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) {
        const float weight = exp2f(scratch.max[w][g] - max);
        const float2 part = *reinterpret_cast<const float2*>(&scratch.out[w][g][d]);
        value[0] += weight * part.x, value[1] += weight * part.y;
        sum += weight * scratch.sum[w][g];
      }
      if (splits_.used == 1) {
        put_pair(output(g) + d, value[0] / sum, value[1] / sum);
        continue;
      }
      float* target = part(split_, g);
      put_float(target + d, value[0]);
      put_float(target + d + 1, value[1]);
      if (d == 0) put_float(target + HeadDim, max), put_float(target + HeadDim + 1, sum);
    }
  }

  static __device__ __forceinline__ const uint32_t* words(const float* p) {
    return reinterpret_cast<const uint32_t*>(p);
  }

  /* The output from all splits' parts, 64 dimensions of a head a warp, two a lane. Loads do not wait for each other:
   * this is the end of the longest path through the op. */
  __device__ __forceinline__ void combine_splits() const {
    const uint32_t t = threadIdx.x % 32, used = splits_.used;
    for (uint32_t u = threadIdx.x / 32; u < place_.n_queries * (HeadDim / 64); u += Warps) {
      const uint32_t g = u / (HeadDim / 64), d = u % (HeadDim / 64) * 64 + 2 * t;
      Ahead ahead;
      request(ahead, 0, g, d);
      float max[2], weight[2], sum = 0.0f;
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t s = t + 32 * h;
        max[h] = -INFINITY, weight[h] = 0.0f;
        if (s >= used) continue;
        const uint32_t* from = words(part(s, g) + HeadDim);
        const uint2 raw = await_words(from, from + 1);
        max[h] = __uint_as_float(raw.x), weight[h] = __uint_as_float(raw.y);
      }
      const float most = warp_max(fmaxf(max[0], max[1]));
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const float scale = exp2f(max[h] - most);
        sum += scale * weight[h];
        weight[h] = scale;
      }
      sum = warp_sum(sum);
      float value[2] = {};
#pragma unroll 1
      for (uint32_t first = 0; first < used; first += kAhead) {
        if (first > 0) request(ahead, first, g, d);
        receive(ahead, first, g, d);
#pragma unroll
        for (uint32_t j = 0; j < kAhead; ++j) {
          const uint32_t s = first + j;
          const float scale = __shfl_sync(0xffffffffu, s < 32 ? weight[0] : weight[1], int(s % 32));
          if (s >= used) break;
          value[0] += scale * __uint_as_float(ahead.word[j][0]);
          value[1] += scale * __uint_as_float(ahead.word[j][1]);
        }
      }
      put_pair(output(g) + d, value[0] / sum, value[1] / sum);
    }
  }

  /* Two dimensions of the parts of some splits, `first` and those behind it, up to the last. */
  static constexpr uint32_t kAhead = 8;
  struct Ahead {
    uint32_t word[kAhead][2];
  };
  __device__ __forceinline__ void request(Ahead& ahead, uint32_t first, uint32_t query, uint32_t d) const {
    const uint32_t* from = words(part(first, query) + d);
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j)
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e)
        ahead.word[j][e] = first + j < splits_.used ? load_relaxed32(from + j * Group * kPart + e) : 1;
  }
  __device__ __forceinline__ void receive(Ahead& ahead, uint32_t first, uint32_t query, uint32_t d) const {
    const uint32_t* from = words(part(first, query) + d);
    for (Patience patience;; patience.spend()) {
      bool missing = false;
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j) missing |= min(ahead.word[j][0], ahead.word[j][1]) == 0;
      if (!missing) return;
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j)
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e)
          if (ahead.word[j][e] == 0) ahead.word[j][e] = load_relaxed32(from + j * Group * kPart + e);
    }
  }

  const DecodeLayer<Half>& layer_;
  const DecodePlace& place_;
  Splits splits_;
  uint32_t most_splits_, split_, key_, end_;
  uint64_t offset_ = 0; /* of the tile at key_ in the layer's cache */
  Tile tile_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_H */
