/* Attention in the decoder kernel, with the RoPE of rope.h: one token a row. Maths and CPU twins are those of
 * rope.h and attention.h; the new key and value are written to the cache here.
 *
 * A row's keys are split over blocks (flash-decoding), a split's tiles of 16 keys (decode_tile.h) over the
 * block's warps. The last block of a row and key head to finish combines the splits.
 */
#ifndef BLINK_OPS_ATTENTION_DECODE_H
#define BLINK_OPS_ATTENTION_DECODE_H

#include "decode_tile.h"
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
 *   partial   [lanes][n_heads][max_splits][HeadDim + 2] fp32: unnormalised output, maximum (log2 units), sum
 *   arrivals  [lanes][groups a lane], zero before and after
 */
template <typename Half>
struct DecodeLayer {
  struct blink_step_set set;
  struct blink_tables tables;
  const Half *qkv, *q_norm, *k_norm;
  float eps;
  const float* inv_freq;
  Half *k_cache, *v_cache;
  float* partial;
  uint32_t* arrivals;
  Half* out;
  uint32_t n_heads, n_kv_heads, max_splits;
};

/* What a block works on at a time: up to Group query heads, from `head` on, of one key head and one lane. */
struct DecodePlace {
  uint32_t lane, token, row, position, kv_head, member, head, n_queries, arrival;

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
    arrival = lane * layer.n_kv_heads * groups + group;
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
      : layer_(layer), place_(place), splits_(place.position, most_splits), split_(split) {
    key_ = split * splits_.keys + threadIdx.x / 32 * kTileKeys;
    end_ = min(place.position, (split + 1) * splits_.keys);
    if (key_ >= end_) return;
    const uint64_t offset = at(key_);
    tile_.load_keys(layer.k_cache + offset, end_ - key_);
    tile_.load_values(layer.v_cache + offset, end_ - key_);
  }

  /* The keys before the new one may take fewer splits. */
  __device__ __forceinline__ bool exists() const { return split_ < splits_.used; }

  /* By the whole block; `scratch` is free again when all its threads have returned. */
  __device__ __forceinline__ void run(Scratch& scratch) {
    const bool takes_new = split_ + 1 == splits_.used;
    rope(takes_new, scratch);
    __syncthreads();
    if (takes_new && place_.member == 0) write_new(scratch);
    State state;
    state.clear(scratch);
    while (key_ < end_) {
      const uint32_t next = key_ + Warps * kTileKeys, n_next = next < end_ ? end_ - next : 0;
      const uint64_t offset = n_next ? at(next) : 0;
      float s[2][4] = {};
      state.score(tile_, s);
      tile_.load_keys(layer_.k_cache + offset, n_next);
      state.weigh(s, end_ - key_);
      state.add_values(tile_, s);
      tile_.load_values(layer_.v_cache + offset, n_next);
      key_ = next;
    }
    if (takes_new && threadIdx.x / 32 == 0) {
      float s[2][4] = {};
      tile_.take_new(scratch);
      state.score(tile_, s);
      state.weigh(s, 1);
      state.add_values(tile_, s);
    }
    state.store(scratch);
    __syncthreads();
    combine_warps(scratch);
    if (splits_.used == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t* arrived = layer_.arrivals + place_.arrival;
      scratch.is_last = arrive(arrived) == splits_.used - 1;
      if (scratch.is_last) *arrived = 0;
    }
    __syncthreads();
    if (scratch.is_last) combine_splits();
  }

 private:
  using Tile = DecodeTile<Half, HeadDim>;
  using State = DecodeState<Half, HeadDim>;
  static constexpr uint32_t kThreads = 32 * Warps, kPart = HeadDim + 2;

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
  __device__ __forceinline__ float* part(uint32_t query) const { /* of split 0 */
    return layer_.partial + (uint64_t(place_.lane) * layer_.n_heads + place_.head + query) * layer_.max_splits * kPart;
  }

  /* The block's result: the output if it has all of the row's keys, or else one split's part. */
  __device__ __forceinline__ void combine_warps(const Scratch& scratch) const {
    for (uint32_t e = threadIdx.x; e < place_.n_queries * HeadDim; e += kThreads) {
      const uint32_t g = e / HeadDim, d = e % HeadDim;
      float max = -INFINITY, sum = 0.0f, value = 0.0f;
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) max = fmaxf(max, scratch.max[w][g]);
#pragma unroll
      for (uint32_t w = 0; w < Warps; ++w) {
        const float weight = exp2f(scratch.max[w][g] - max);
        value += weight * scratch.out[w][g][d];
        sum += weight * scratch.sum[w][g];
      }
      if (splits_.used == 1) {
        from_float(value / sum, output(g) + d);
        continue;
      }
      float* target = part(g) + split_ * kPart;
      target[d] = value;
      if (d == 0) target[HeadDim] = max, target[HeadDim + 1] = sum;
    }
  }

  /* The output from all splits' parts, a warp a head. Loads do not wait for each other: this is the end of the
   * longest path through the op. */
  __device__ __forceinline__ void combine_splits() const {
    const uint32_t t = threadIdx.x % 32, used = splits_.used;
    for (uint32_t g = threadIdx.x / 32; g < place_.n_queries; g += Warps) {
      const float* source = part(g);
      float max[2], weight[2], sum = 0.0f;
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t s = t + 32 * h;
        max[h] = s < used ? source[s * kPart + HeadDim] : -INFINITY;
        weight[h] = s < used ? source[s * kPart + HeadDim + 1] : 0.0f;
      }
      const float most = warp_max(fmaxf(max[0], max[1]));
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const float scale = exp2f(max[h] - most);
        sum += scale * weight[h];
        weight[h] = scale;
      }
      sum = warp_sum(sum);
      float value[(HeadDim + 31) / 32] = {};
#pragma unroll 8
      for (uint32_t s = 0; s < used; ++s) {
        const float scale = __shfl_sync(0xffffffffu, s < 32 ? weight[0] : weight[1], int(s % 32));
#pragma unroll
        for (uint32_t i = 0; i < (HeadDim + 31) / 32; ++i)
          if (t + 32 * i < HeadDim) value[i] += scale * source[s * kPart + t + 32 * i];
      }
#pragma unroll
      for (uint32_t i = 0; i < (HeadDim + 31) / 32; ++i)
        if (t + 32 * i < HeadDim) from_float(value[i] / sum, output(g) + t + 32 * i);
    }
  }

  const DecodeLayer<Half>& layer_;
  const DecodePlace& place_;
  Splits splits_;
  uint32_t split_, key_, end_;
  Tile tile_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_DECODE_H */
