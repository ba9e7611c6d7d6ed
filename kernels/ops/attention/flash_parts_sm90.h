/* Parts of a unit of flash attention (flash_attention_sm90.h): how their rows become those of the unit, as in
 * flash-decoding.
 *
 *   parts     [tokens][n_heads][most parts][head_dim + kFlashPartWords] fp32: of a row in a part, the output that is
 *             not yet normalised, in the order in which threads have it, then maximum and sum of its four threads each
 *
 *   arrivals  [tokens][n_heads / pack][kFlashWarps], zero between kernels: how many parts are there, for each warp, at
 *             the first token of the unit
 *
 * Warps that have the same rows in different parts have them in the same threads and registers. So each warp leaves
 * its own rows and counts itself without waiting for anyone, and the last one adds up all parts in the order of their
 * keys, its own from memory, too: which one was last does not change the result.
 */
#ifndef BLINK_OPS_ATTENTION_FLASH_PARTS_SM90_H
#define BLINK_OPS_ATTENTION_FLASH_PARTS_SM90_H

#include "flash_accumulators_sm90.h"

namespace blink {

constexpr uint32_t kFlashPartWords = 8; /* of a row of a part, beside its output */
constexpr uint32_t kFlashWarps = 8;     /* that multiply */

#ifdef __CUDACC__

/* The two rows of a thread, in all parts of a unit. */
template <typename Half, int HeadDim>
class FlashParts {
 public:
  using Rows = FlashAccumulators<Half, HeadDim>;

  /* `rows`: where the first part has them; null for a row that does not exist. */
  __device__ __forceinline__ explicit FlashParts(float* const (&rows)[2]) : rows_{rows[0], rows[1]} {}

  __device__ __forceinline__ void leave(const Rows& rows, uint32_t part) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!rows_[h]) continue;
      float* const row = rows_[h] + part * kWords;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int at = 8 * i + 2 * h;
        *vector(row, i) = make_float4(rows.out[at], rows.out[at + 1], rows.out[at + 4], rows.out[at + 5]);
      }
      *bounds(row) = make_float2(rows.max[h], rows.sum[h]);
    }
  }

  /* Whether the calling warp is the last of `n`, all of whose rows are then there. Who is last leaves the counter as it
   * was before the kernel. */
  static __device__ __forceinline__ bool last_to_leave(uint32_t* arrivals, uint32_t n) {
    uint32_t before = 0;
    __syncwarp(); /* the arrival publishes what all lanes have stored, */
    if (threadIdx.x % 32 == 0) {
      before = arrive(arrivals);
      if (before + 1 == n) *arrivals = 0;
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    __syncwarp(); /* and all lanes see what the first has been shown */
    return before + 1 == n;
  }

  /* Sets output, maximum and sum to those of all `n` parts. `key_scale`: of the keys. */
  __device__ __forceinline__ void add_up(Rows& rows, uint32_t n, float key_scale) const {
    const float scale = Rows::score_scale(key_scale);
    rows.start();
    for (uint32_t part = 0; part < n; ++part) {
      float4 out[2][kVectors];
      float2 bound[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) { /* all loads at once: the next part waits for them */
        float* const row = rows_[h] + part * kWords;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) out[h][i] = rows_[h] ? *vector(row, i) : make_float4(0, 0, 0, 0);
        bound[h] = rows_[h] ? *bounds(row) : make_float2(0, 0);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) add(rows, h, out[h], bound[h], scale);
    }
  }

 private:
  static constexpr uint32_t kWords = HeadDim + kFlashPartWords;
  static constexpr int kVectors = HeadDim / 16; /* of 16 bytes, of a row, that a thread has */

  static __device__ __forceinline__ void add(Rows& rows, int h, const float4 (&out)[kVectors], const float2& bound,
                                             float scale) {
    const float next = fmaxf(rows.max[h], bound.x), base = next * scale;
    const float old_weight = exp2_fast(rows.max[h] * scale - base), weight = exp2_fast(bound.x * scale - base);
    rows.max[h] = next;
    rows.sum[h] = rows.sum[h] * old_weight + bound.y * weight;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float columns[4] = {out[i].x, out[i].y, out[i].z, out[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& x = rows.out[8 * i + j / 2 * 4 + 2 * h + j % 2];
        x = x * old_weight + columns[j] * weight;
      }
    }
  }

  /* Four neighbours, which share a row, store 64 bytes that follow one another. */
  static __device__ __forceinline__ float4* vector(float* row, int i) {
    return reinterpret_cast<float4*>(row) + 4 * i + threadIdx.x % 4;
  }
  static __device__ __forceinline__ float2* bounds(float* row) {
    return reinterpret_cast<float2*>(row + HeadDim) + threadIdx.x % 4;
  }

  float* const rows_[2];
};

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_ATTENTION_FLASH_PARTS_SM90_H */
