/* What becomes of the sums of linear_wide.h: the outputs, and what a norm that follows needs of them.
 */
#ifndef BLINK_OPS_WIDE_END_H
#define BLINK_OPS_WIDE_END_H

#include "linear_stream.h"
#include "wide_ring.h"

#ifdef __CUDACC__

namespace blink {

/* RMSNorm across products (E19), without a kernel between them. The product that completes a residual also leaves its
 * elements times the norm's weight, and the sum of their squares by 64 rows of its tiles; the product that reads these
 * as its x scales its outputs by the norm's factor of the row. */
struct WideNorm {
  const float* sums_in; /* [n_sums][Columns] fp32; null: x needs no factor */
  uint32_t n_sums;
  float eps;
  const void* weight; /* kStreamAdd: [n_out] half; null: nothing but y is wanted */
  void* scaled;       /* [m][n_out] half */
  float* sums_out;    /* [n_tiles * Tiles][Columns] */
};

/* What happens to a tile's fragments. Fragment f is a thread's rows r and r + 8 at columns c and c + 1 of x: 64 rows
 * and 8 columns in all, f = (r / 64) * (Columns / 8) + c / 8. */
template <typename Half, int Output, int Columns>
struct WideEnd {
  const WideCut& cut;
  const WideNorm& norm;
  void* y;
  float *scale, *squares; /* in shared memory: [Columns], [fragments][4 warps][8] */

  static constexpr uint32_t kGroups = Columns / 8;

  /* The factors of x's rows, by all members, from the sums of squares that the producer of x left. */
  __device__ __forceinline__ void load_scales() const {
    constexpr uint32_t kShares = kWideMembers / Columns;
    const uint32_t column = threadIdx.x % Columns, share = threadIdx.x / Columns;
    float sum = 0.0f;
    if (share < kShares)
      for (uint32_t i = share; i < norm.n_sums; i += kShares) sum += norm.sums_in[i * Columns + column];
    squares[threadIdx.x] = sum;
    group_sync(1, kWideMembers);
    if (threadIdx.x < Columns) {
      sum = 0.0f;
      for (uint32_t i = 0; i < kShares; ++i) sum += squares[i * Columns + threadIdx.x];
      scale[threadIdx.x] = 1.0f / sqrtf(sum / float(cut.n_in) + norm.eps);
    }
    group_sync(1, kWideMembers);
  }

  /* v: row r at columns c and c + 1, row r + 8 at the same. */
  __device__ __forceinline__ void take(uint32_t tile, uint32_t f, float4 v) const {
    const uint32_t r = f / kGroups * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t c = f % kGroups * 8 + threadIdx.x % 4 * 2;
    if (Output != kStreamAdd && norm.sums_in) {
      const float first = scale[c], second = scale[c + 1];
      v = make_float4(v.x * first, v.y * second, v.z * first, v.w * second);
    }
    if (Output == kStreamSilu) {
      const uint32_t row = tile * cut.tile_rows + r, o = row / 16 * 8 + row % 8;
      store_pair(r < cut.tile_rows && o < cut.n_out, o, c, silu_mul(v.x, v.z), silu_mul(v.y, v.w));
    } else if (Output == kStreamHalf) {
      const uint32_t o = tile * cut.tile_rows + r;
      store_pair(exists(tile, r, 0), o, c, v.x, v.y);
      store_pair(exists(tile, r + 8, 0), o + 8, c, v.z, v.w);
    } else if (Output == kStreamAdd && norm.weight) {
      add_and_scale(tile, f, r, c, v);
    } else {
      const float value[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        if (!exists(tile, r + e / 2 * 8, c + e % 2)) continue;
        float* to = static_cast<float*>(y) + place(tile, r + e / 2 * 8, c + e % 2);
        if (Output == kStreamFloat) *to = value[e];
        if (Output == kStreamAdd) add_to(to, value[e]);
      }
    }
  }

  /* The sums of squares of a tile's fragments first, first + step, ..., by all members. */
  template <uint32_t Fragments>
  __device__ __forceinline__ void store_squares(uint32_t tile, uint32_t first, uint32_t step) const {
    if (Output != kStreamAdd || !norm.weight) return;
    group_sync(1, kWideMembers);
    for (uint32_t i = threadIdx.x; i < Fragments * 8; i += kWideMembers) {
      const uint32_t f = i / 8;
      if (f % step != first) continue;
      const float* of_warp = squares + f * 32 + i % 8;
      const float sum = of_warp[0] + of_warp[8] + of_warp[16] + of_warp[24];
      norm.sums_out[(tile * (Fragments / kGroups) + f / kGroups) * Columns + f % kGroups * 8 + i % 8] = sum;
    }
    group_sync(1, kWideMembers);
  }

 private:
  __device__ __forceinline__ bool exists(uint32_t tile, uint32_t r, uint32_t c) const {
    return r < cut.tile_rows && tile * cut.tile_rows + r < cut.n_out && c < cut.m;
  }
  __device__ __forceinline__ uint64_t place(uint32_t tile, uint32_t r, uint32_t c) const {
    return uint64_t(c) * cut.n_out + tile * cut.tile_rows + r;
  }
  /* Output o at columns c and c + 1, of which n_out is even: neighbours swap, so that each stores two outputs of one.
   */
  __device__ __forceinline__ void store_pair(bool wanted, uint32_t o, uint32_t c, float first, float second) const {
    const bool odd = o % 2;
    const float other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
    const uint32_t pair = odd ? pack<Half>(other, second) : pack<Half>(first, other), column = c + odd;
    if (!wanted || column >= cut.m) return;
    *reinterpret_cast<uint32_t*>(static_cast<Half*>(y) + uint64_t(column) * cut.n_out + (o & ~1u)) = pair;
  }
  __device__ __forceinline__ void add_and_scale(uint32_t tile, uint32_t f, uint32_t r, uint32_t c,
                                                const float4& v) const {
    float value[4] = {v.x, v.y, v.z, v.w}, factor[2] = {};
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e)
      value[e] = exists(tile, r + e / 2 * 8, c + e % 2)
                     ? value[e] + static_cast<const float*>(y)[place(tile, r + e / 2 * 8, c + e % 2)]
                     : 0.0f;
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e)
      if (exists(tile, r + e * 8, 0))
        factor[e] = to_float(static_cast<const Half*>(norm.weight)[tile * cut.tile_rows + r + e * 8]);
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      if (!exists(tile, r + e / 2 * 8, c + e % 2)) continue;
      const uint64_t at = place(tile, r + e / 2 * 8, c + e % 2);
      static_cast<float*>(y)[at] = value[e];
      from_float(value[e] * factor[e / 2], static_cast<Half*>(norm.scaled) + at);
    }
    float first = value[0] * value[0] + value[2] * value[2], second = value[1] * value[1] + value[3] * value[3];
#pragma unroll
    for (uint32_t offset = 4; offset < 32; offset *= 2) {
      first += __shfl_xor_sync(0xffffffffu, first, offset);
      second += __shfl_xor_sync(0xffffffffu, second, offset);
    }
    if (threadIdx.x % 32 >= 4) return;
    float* of_warp = squares + f * 32 + threadIdx.x / 32 * 8 + c % 8;
    of_warp[0] = first, of_warp[1] = second;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_WIDE_END_H */
