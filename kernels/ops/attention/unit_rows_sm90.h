/* Rows of a verify step that share a unit of decode attention (decode_unit_sm90.h): what each of their query heads sees
 * of the unit's keys, and their new keys and values, which append_kv.h has left in the cache.
 *
 * What a row does not see has the weight 0 for it, and changes none of its bits, unless a value there is no number or
 * infinite: of a draft whose value is, rows before it in the unit get no number either.
 */
#ifndef BLINK_OPS_ATTENTION_UNIT_ROWS_SM90_H
#define BLINK_OPS_ATTENTION_UNIT_ROWS_SM90_H

#include "decode_unit_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* The rows of a lane's query heads, one of each group: the places among the rows that share a unit, and how many of the
 * unit's keys they do not see, which lie at the end. A byte for each group: registers are scarce. Where a unit has one
 * row there is nothing to know. */
template <typename Kind, bool Verifies = Kind::kVerifies>
class LaneRows {
 public:
  using Keys = LaneKeys<Kind::kGroups>;

  __device__ __forceinline__ explicit LaneRows(uint32_t) {}
  template <typename Shared>
  __device__ __forceinline__ void enter(const Shared&, uint32_t) {}
  static __device__ __forceinline__ Keys seen(uint32_t keys) { return {keys}; }
  static __device__ __forceinline__ Keys hidden(int32_t of_first) { return {uint32_t(of_first)}; }
};
template <typename Kind>
class LaneRows<Kind, true> {
 public:
  using Keys = LaneKeys<Kind::kGroups>;

  /* `ratio`: query heads of a row. */
  __device__ __forceinline__ explicit LaneRows(uint32_t ratio) {
#pragma unroll
    for (uint32_t g = 0; g < Kind::kGroups; ++g) wanted_ |= (g * kGroupHeads + threadIdx.x % 32 / 4) / ratio << (8 * g);
  }

  /* In unit k from here on. A head that the unit does not have counts to its last row. */
  template <typename Shared>
  __device__ __forceinline__ void enter(const Shared& shared, uint32_t k) {
    const uint32_t last = shared.n_rows[k % 2] - 1;
    places_ = unseen_ = 0;
#pragma unroll
    for (uint32_t g = 0; g < Kind::kGroups; ++g) {
      const uint32_t place = min(of(wanted_, g), last);
      places_ |= place << (8 * g);
      if (shared.is_last[k % 2]) unseen_ |= (last - place) << (8 * g);
    }
  }
  __device__ __forceinline__ uint32_t place(uint32_t g) const { return of(places_, g); }
  /* Of the unit's keys, or of those from one of its tiles on. */
  __device__ __forceinline__ Keys seen(uint32_t keys) const {
    Keys seen;
#pragma unroll
    for (uint32_t g = 0; g < Kind::kGroups; ++g) seen.of[g] = keys - min(keys, of(unseen_, g));
    return seen;
  }
  /* Keys before the window, of which there are n_before() of the first row. */
  __device__ __forceinline__ Keys hidden(int32_t n_before) const {
    Keys hidden;
#pragma unroll
    for (uint32_t g = 0; g < Kind::kGroups; ++g) hidden.of[g] = uint32_t(max(0, n_before + int32_t(place(g))));
    return hidden;
  }

 private:
  static __device__ __forceinline__ uint32_t of(uint32_t bytes, uint32_t g) { return bytes >> (8 * g) & 0xff; }

  uint32_t wanted_ = 0, places_ = 0, unseen_ = 0;
};

/* The new keys, or values, of up to Rows rows, in a warp: from the cache to where attention finds them. */
template <typename Cache, int HeadDim, uint32_t Rows>
class NewRows {
 public:
  using Half = typename KvElement<Cache>::Half;

  template <typename Layer>
  __device__ __forceinline__ void load(const Layer& layer, const AttentionUnit& unit, const Cache* cache) {
#pragma unroll
    for (uint32_t row = 0; row < Rows; ++row) {
      if (row >= unit.n_rows()) break;
      const Cache* const cell = cache + cache_offset(layer.tables, unit.split.sequence, unit.split.position + row,
                                                     unit.kv_head, layer.n_kv_heads, HeadDim);
#pragma unroll
      for (uint32_t j = 0; j < kRounds; ++j)
        if (used(j)) raw_[row][j] = *reinterpret_cast<const Raw*>(cell + d(j));
    }
  }
  /* To [n_rows][stride]. */
  __device__ __forceinline__ void store(const AttentionUnit& unit, Half* to, uint32_t stride) const {
#pragma unroll
    for (uint32_t row = 0; row < Rows; ++row) {
      if (row >= unit.n_rows()) break;
#pragma unroll
      for (uint32_t j = 0; j < kRounds; ++j)
        if (used(j)) *reinterpret_cast<uint2*>(to + row * stride + d(j)) = as_halves(raw_[row][j]);
    }
  }

 private:
  /* A lane has four neighbours of each round of 128. */
  using Raw = typename KvElement<Cache>::Four;
  static constexpr uint32_t kRounds = (HeadDim + 127) / 128;

  static __device__ __forceinline__ uint32_t d(uint32_t round) { return threadIdx.x % 32 * 4 + 128 * round; }
  static __device__ __forceinline__ bool used(uint32_t round) { return d(round) < HeadDim; }
  static __device__ __forceinline__ uint2 as_halves(const uint2& raw) { return raw; }
  static __device__ __forceinline__ uint2 as_halves(uint32_t raw) {
    uint2 halves;
    to_float16s(raw, halves.x, halves.y);
    return halves;
  }

  Raw raw_[Rows][kRounds];
};

/* The new keys and values of up to 8 rows as a tile. */
template <typename Cache, int HeadDim>
struct NewRowsTile {
  using Half = typename KvElement<Cache>::Half;
  using Dims = TileDims<Cache>;
  const Half *key, *value; /* [n_rows][stride] */
  uint32_t stride, n_rows;

  __device__ __forceinline__ void keys(int c, uint32_t (&m)[Dims::kAtOnce][4]) const {
    const uint32_t row = threadIdx.x % 32 / 4;
    const Half* at = key + row * stride + 16 * c + Dims::key();
#pragma unroll
    for (int i = 0; i < Dims::kAtOnce; ++i, at += 16) {
      m[i][0] = m[i][1] = m[i][2] = m[i][3] = 0;
      if (row >= n_rows || 16 * (c + i) >= HeadDim) continue;
      m[i][0] = *reinterpret_cast<const uint32_t*>(at);
      m[i][1] = *reinterpret_cast<const uint32_t*>(at + Dims::kKeyStep);
    }
  }
  __device__ __forceinline__ void values(int c, uint32_t (&m)[Dims::kAtOnce][4]) const {
    const uint32_t first = threadIdx.x % 4 * 2;
    const unsigned short* at = reinterpret_cast<const unsigned short*>(value) + first * stride + 16 * c + Dims::value();
#pragma unroll
    for (int i = 0; i < Dims::kAtOnce; ++i, at += 16) {
      m[i][0] = m[i][1] = m[i][2] = m[i][3] = 0;
      if (16 * (c + i) >= HeadDim) continue;
#pragma unroll
      for (uint32_t row = 0; row < 2; ++row) {
        if (first + row >= n_rows) continue;
        m[i][0] |= uint32_t(at[row * stride]) << 16 * row;
        m[i][1] |= uint32_t(at[row * stride + Dims::kValueStep]) << 16 * row;
      }
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_ATTENTION_UNIT_ROWS_SM90_H */
