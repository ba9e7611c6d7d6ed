/* Epilogue of skinny_gemm_sm90.h: the outputs, and what a norm that follows needs of them.
 *
 * E19. Between two of these matmuls there is no norm kernel. The first leaves residual * weight and, by 64 rows of its
 * tiles, the sums of the squares before the weight. The second adds these up in an order that their number fixes, and
 * scales its outputs. Both have the same shape, and so the same columns. This is not done in float16, where residual *
 * weight might overflow.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_EPILOGUE_SM90_H
#define BLINK_OPS_GEMM_SKINNY_EPILOGUE_SM90_H

#include "gemv.h"
#include "skinny_pipeline_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* RMSNorm across matmuls (E19), without a kernel between them. The matmul that completes a residual also leaves its
 * elements times the norm's weight, and the sum of their squares by 64 rows of its tiles; the matmul that reads these
 * as its x scales its outputs by the norm's factor of the row. */
struct FusedNorm {
  const float* sums_in; /* [n_sums][Columns] fp32; null: x needs no factor */
  uint32_t n_sums;
  float eps;
  const void* weight; /* kEpilogueAdd: [n_out] half; null: nothing but y is wanted */
  void* scaled;       /* [m][n_out] half */
  float* sums_out;    /* [n_tiles * Tiles][Columns] */
};

/* The rows of w that a tile's rows are, and their scales. */
template <int Output>
struct SkinnyWeightRows {
  const SkinnyParams& params;
  const float* scales;

  /* Of a tile's row r; of one that does not exist, some row that does. */
  __device__ __forceinline__ uint32_t index(uint32_t tile, uint32_t r) const {
    const uint32_t all = tile * params.tile_rows + r;
    if (Output != kEpilogueSilu) return min(all, params.n_out - 1);
    const uint32_t o = min(all / 16 * 8 + all % 8, params.n_out - 1);
    return all % 16 < 8 ? o : params.n_out + o;
  }
  /* The scale of a row, and those by block of a row: one for each kScaleBlock columns. */
  __device__ __forceinline__ float scale(uint32_t tile, uint32_t r) const { return scales[index(tile, r)]; }
  __device__ __forceinline__ const float* block_scales(uint32_t tile, uint32_t r) const {
    return scales + index(tile, r) / kScaleBlock * n_blocks();
  }
  __device__ __forceinline__ uint32_t n_blocks() const { return (params.n_in + kScaleBlock - 1) / kScaleBlock; }
};

/* What a kernel is given of both: the rows' factors, and the scales of narrow weights, of codes in place of a matrix
 * (its codes come by bulk copies). */
template <ScaleForm Form, bool Codes = kIsCodes<Form>>
struct SkinnyFactors : FusedNorm {
  const float* weight_scales;
};
template <>
struct SkinnyFactors<kUnscaled, false> : FusedNorm {};
template <ScaleForm Form>
struct SkinnyFactors<Form, true> : FusedNorm {
  CodeMatrix weights;
};

template <ScaleForm Form>
__device__ __forceinline__ const float* weight_scales(const SkinnyFactors<Form>& factors) {
  if constexpr (kIsFp8<Form>)
    return factors.weight_scales;
  else
    return nullptr;
}

/* Whether the sums of squares of a tile's fragments have room behind barriers and scales. */
template <int Output, int Columns, int Tiles>
constexpr bool kSkinnyFits =
    Output != kEpilogueAdd ||
    Tiles * Columns / 8 * 32 * sizeof(float) <=
        kSkinnyPipelineStart - (4 * kSkinnyMaxStages + 2) * sizeof(uint64_t) - kSkinnyMaxColumns * sizeof(float);

/* What happens to a tile's fragments. Fragment f is a thread's rows r and r + 8 at columns c and c + 1 of x: 64 rows
 * and 8 columns in all, f = (r / 64) * (Columns / 8) + c / 8. */
template <typename Half, int Output, int Columns, uint32_t Consumers, ScaleForm Form>
struct SkinnyEpilogue {
  const SkinnyParams& params;
  const FusedNorm& norm;
  const SkinnyWeightRows<Output> weights;
  void* y;
  float *scale, *squares; /* in shared memory: [Columns], [fragments][4 warps][8] */

  static constexpr uint32_t kGroups = Columns / 8;
  static constexpr uint32_t kBatch = Output == kEpilogueAdd || Columns == 16 ? 2 : 4; /* fragments at a time */

  /* What an addition needs beside a fragment: the sums before, and the norm's weights of rows r and r + 8; and what
   * these rows' sums are multiplied by, if scales are by row. */
  struct Before {
    float4 y;
    float low, high;
    float low_scale, high_scale;
  };

  /* The factors of x's rows, by all members, from the sums of squares that the producer of x left. The sums of more
   * than eight warps would not fit at `squares`: so others add up nothing. */
  __device__ __forceinline__ void load_scales() const {
    constexpr uint32_t kAdders = Consumers < 2 * kWarpgroup ? Consumers : 2 * kWarpgroup;
    constexpr uint32_t kLanes = Columns / 4, kStep = kAdders / kLanes; /* lanes that take a row of sums */
    const uint32_t column = threadIdx.x % kLanes * 4;
    const bool adds = Consumers == kAdders || threadIdx.x < kAdders;
    float sum[4] = {};
#pragma unroll 1
    for (uint32_t i = threadIdx.x / kLanes; adds && i < norm.n_sums; i += 4 * kStep) {
      float4 v[4]; /* together, not one after the other */
#pragma unroll
      for (uint32_t b = 0; b < 4; ++b)
        v[b] = i + b * kStep < norm.n_sums
                   ? *reinterpret_cast<const float4*>(norm.sums_in + (i + b * kStep) * Columns + column)
                   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (uint32_t b = 0; b < 4; ++b) sum[0] += v[b].x, sum[1] += v[b].y, sum[2] += v[b].z, sum[3] += v[b].w;
    }
#pragma unroll
    for (uint32_t offset = kLanes; offset < 32; offset *= 2)
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], offset);
    if (adds && threadIdx.x % 32 < kLanes)
      *reinterpret_cast<float4*>(squares + threadIdx.x / 32 * Columns + column) =
          make_float4(sum[0], sum[1], sum[2], sum[3]);
    group_sync(1, Consumers);
    if (threadIdx.x < Columns) {
      float all = 0.0f;
#pragma unroll
      for (uint32_t warp = 0; warp < kAdders / 32; ++warp) all += squares[warp * Columns + threadIdx.x];
      scale[threadIdx.x] = 1.0f / sqrtf(all / float(params.n_in) + norm.eps);
    }
    group_sync(1, Consumers);
  }

  /* Asks for the norm's weights of a tile, which nobody has read in this step: at its end they would come late. */
  __device__ __forceinline__ void prefetch_weights(uint32_t tile) const {
    constexpr uint32_t kLine = 128 / sizeof(Half);
    if (Output != kEpilogueAdd || !norm.weight) return;
    const uint32_t first = tile * params.tile_rows, at = first + threadIdx.x * kLine;
    if (at < min(first + params.tile_rows + kLine - 1, params.n_out))
      prefetch_line(static_cast<const Half*>(norm.weight) + at);
  }

  /* Of fragment f, before its sums are there. */
  __device__ __forceinline__ Before load(uint32_t tile, uint32_t f) const {
    Before before = {};
    const uint32_t r = row(f), c = column(f);
    if (Form == kScaleByRow) before.low_scale = weights.scale(tile, r), before.high_scale = weights.scale(tile, r + 8);
    if (Output != kEpilogueAdd || !norm.weight) return before;
    const float* of = static_cast<const float*>(y) + place(tile, r, c);
    const Half* weight = static_cast<const Half*>(norm.weight) + tile * params.tile_rows + r;
    if (exists(tile, r, c)) before.y.x = of[0];
    if (exists(tile, r, c + 1)) before.y.y = of[params.n_out];
    if (exists(tile, r + 8, c)) before.y.z = of[8];
    if (exists(tile, r + 8, c + 1)) before.y.w = of[params.n_out + 8];
    if (exists(tile, r, 0)) before.low = to_float(weight[0]);
    if (exists(tile, r + 8, 0)) before.high = to_float(weight[8]);
    return before;
  }

  /* v: row r at columns c and c + 1, row r + 8 at the same. */
  __device__ __forceinline__ void put(uint32_t tile, uint32_t f, float4 v, const Before& before) const {
    const uint32_t r = row(f), c = column(f);
    if (Form == kScaleByRow) v.x *= before.low_scale, v.y *= before.low_scale;
    if (Form == kScaleByRow) v.z *= before.high_scale, v.w *= before.high_scale;
    if (Output != kEpilogueAdd && norm.sums_in) {
      const float first = scale[c], second = scale[c + 1];
      v = make_float4(v.x * first, v.y * second, v.z * first, v.w * second);
    }
    if (Output == kEpilogueSilu) {
      const uint32_t all = tile * params.tile_rows + r, o = all / 16 * 8 + all % 8;
      store_pair(y, r < params.tile_rows && o < params.n_out, o, c, gated(v.x, v.z), gated(v.y, v.w));
    } else if (Output == kEpilogueHalf) {
      store_rows(y, tile, r, c, v);
    } else if (Output == kEpilogueAdd && norm.weight) {
      add_and_scale(tile, f, v, before);
    } else {
      float* to = static_cast<float*>(y) + place(tile, r, c);
      if (exists(tile, r, c)) write(to, v.x);
      if (exists(tile, r, c + 1)) write(to + params.n_out, v.y);
      if (exists(tile, r + 8, c)) write(to + 8, v.z);
      if (exists(tile, r + 8, c + 1)) write(to + params.n_out + 8, v.w);
    }
  }

  /* The sums of squares of a tile's fragments first to last - 1, by all members. */
  __device__ __forceinline__ void store_squares(uint32_t tile, uint32_t first, uint32_t last) const {
    if (Output != kEpilogueAdd || !norm.weight) return;
    const uint32_t n_groups = (params.tile_rows + 63) / 64;
    group_sync(1, Consumers);
#pragma unroll 1
    for (uint32_t i = first * 8 + threadIdx.x; i < last * 8; i += Consumers) {
      const float* of_warp = squares + i / 8 * 32 + i % 8;
      const float sum = of_warp[0] + of_warp[8] + of_warp[16] + of_warp[24];
      norm.sums_out[(tile * n_groups + i / 8 / kGroups) * Columns + i / 8 % kGroups * 8 + i % 8] = sum;
    }
    group_sync(1, Consumers);
  }

 private:
  static __device__ __forceinline__ uint32_t row(uint32_t f) {
    return f / kGroups * 64 + consumer_thread<Consumers>() / 32 * 16 + threadIdx.x % 32 / 4;
  }
  static __device__ __forceinline__ uint32_t column(uint32_t f) { return f % kGroups * 8 + threadIdx.x % 4 * 2; }
  __device__ __forceinline__ bool exists(uint32_t tile, uint32_t r, uint32_t c) const {
    return r < params.tile_rows && tile * params.tile_rows + r < params.n_out && c < params.m;
  }
  __device__ __forceinline__ uint64_t place(uint32_t tile, uint32_t r, uint32_t c) const {
    return uint64_t(c) * params.n_out + tile * params.tile_rows + r;
  }
  static __device__ __forceinline__ void write(float* to, float value) {
    if (Output == kEpilogueAdd)
      add_to(to, value);
    else
      *to = value;
  }
  /* Output o at columns c and c + 1, of which n_out is even: neighbours swap, so that each stores two outputs of one.
   */
  __device__ __forceinline__ void store_pair(void* to, bool wanted, uint32_t o, uint32_t c, float first,
                                             float second) const {
    const bool odd = o % 2;
    const float other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
    const uint32_t pair = odd ? pack<Half>(other, second) : pack<Half>(first, other), column = c + odd;
    if (!wanted || column >= params.m) return;
    *reinterpret_cast<uint32_t*>(static_cast<Half*>(to) + uint64_t(column) * params.n_out + (o & ~1u)) = pair;
  }
  __device__ __forceinline__ void store_rows(void* to, uint32_t tile, uint32_t r, uint32_t c, const float4& v) const {
    const uint32_t o = tile * params.tile_rows + r;
    store_pair(to, exists(tile, r, 0), o, c, v.x, v.y);
    store_pair(to, exists(tile, r + 8, 0), o + 8, c, v.z, v.w);
  }
  __device__ __forceinline__ void add_and_scale(uint32_t tile, uint32_t f, float4 v, const Before& before) const {
    const uint32_t r = row(f), c = column(f);
    v.x += before.y.x, v.y += before.y.y, v.z += before.y.z, v.w += before.y.w;
    float* to = static_cast<float*>(y) + place(tile, r, c);
    if (exists(tile, r, c)) to[0] = v.x;
    if (exists(tile, r, c + 1)) to[params.n_out] = v.y;
    if (exists(tile, r + 8, c)) to[8] = v.z;
    if (exists(tile, r + 8, c + 1)) to[params.n_out + 8] = v.w;
    store_rows(norm.scaled, tile, r, c,
               make_float4(v.x * before.low, v.y * before.low, v.z * before.high, v.w * before.high));
    float first = 0.0f, second = 0.0f;
    if (exists(tile, r, 0)) first = v.x * v.x, second = v.y * v.y;
    if (exists(tile, r + 8, 0)) first += v.z * v.z, second += v.w * v.w;
#pragma unroll
    for (uint32_t offset = 4; offset < 32; offset *= 2) {
      first += __shfl_xor_sync(0xffffffffu, first, offset);
      second += __shfl_xor_sync(0xffffffffu, second, offset);
    }
    if (threadIdx.x % 32 >= 4) return;
    float* of_warp = squares + f * 32 + consumer_thread<Consumers>() / 32 * 8 + c % 8;
    of_warp[0] = first, of_warp[1] = second;
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SKINNY_EPILOGUE_SM90_H */
