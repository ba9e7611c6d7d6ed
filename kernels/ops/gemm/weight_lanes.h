/* Weights that go through a lane's registers, in the type of x or in fp8: 16 bytes of each of two rows of w at once,
 * which the tensor cores multiply by rows of x.
 *
 * A lane (r, q) of a warp supplies k = n q .. n q + n - 1 of a chunk of 4 n, where n is 8 of halves and 16 of fp8, of
 * rows r and r + 8 of w, and of row r of x. The tensor cores want 2q, 2q + 1, 2q + 8, 2q + 9: the sum over k has no
 * order, so k is permuted, and both operands agree. Within a lane's 16 of fp8 the order is that in memory
 * (kernels/primitives/fp8.h), and x is in its own order: two words of w become two operands, each of which has
 * neighbouring columns, since the tensor cores take x from neighbouring registers, and others would be moved there.
 *
 * Scales by row are for who adds up a whole row. Scales by block multiply the sums of each chunk, which lies in one
 * block, in fp32: what is converted is exact.
 */
#ifndef BLINK_OPS_GEMM_WEIGHT_LANES_H
#define BLINK_OPS_GEMM_WEIGHT_LANES_H

#include "kernels/primitives/fp8.h"

#ifdef __CUDACC__

namespace blink {

/* A matrix of fp8, and its scales. */
struct Fp8Matrix {
  const uint8_t* elements;
  const float* scales; /* [rows], or [ceil(rows / kScaleBlock)][ceil(columns / kScaleBlock)] */
};

/* What a kernel is given of a matrix, and the type of its elements. */
template <typename Half, ScaleForm Form>
struct WeightTypes {
  using Matrix = Fp8Matrix;
  using Element = uint8_t;
};
template <typename Half>
struct WeightTypes<Half, kUnscaled> {
  using Matrix = const Half*;
  using Element = Half;
};

template <typename Half>
__device__ __forceinline__ const Half* elements_of(const Half* w) {
  return w;
}
__device__ __forceinline__ const uint8_t* elements_of(const Fp8Matrix& w) {
  return w.elements;
}
template <typename Half>
__device__ __forceinline__ const float* scales_of(const Half*) {
  return nullptr;
}
__device__ __forceinline__ const float* scales_of(const Fp8Matrix& w) {
  return w.scales;
}

/* The type of x beside weights of a form, where a kernel can choose it: fp8 becomes float16 in one instruction for two
 * elements, and bfloat16 in four. */
template <typename Half, ScaleForm Form>
struct Multiplied {
  using Type = __half;
};
template <typename Half>
struct Multiplied<Half, kUnscaled> {
  using Type = Half;
};

/* Eight numbers of type Half to where x is held, as Half or as float16. Of bfloat16, those beyond float16 become its
 * largest; halves that stay what they are keep everything, also what is infinite. */
template <typename Half>
__device__ __forceinline__ void hold8(Half* to, const float (&from)[8], Half) {
  store8(to, from);
}
__device__ __forceinline__ void hold8(__half* to, const float (&from)[8], __nv_bfloat16) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack_saturating(from[0], from[1]), pack_saturating(from[2], from[3]),
                                             pack_saturating(from[4], from[5]), pack_saturating(from[6], from[7]));
}
template <typename Half>
__device__ __forceinline__ void hold8(Half* to, const uint4& from, Half) {
  *reinterpret_cast<uint4*>(to) = from;
}
__device__ __forceinline__ void hold8(__half* to, const uint4& from, __nv_bfloat16 half) {
  float value[8];
  load8(reinterpret_cast<const __nv_bfloat16*>(&from), value);
  hold8(to, value, half);
}

template <ScaleForm Form>
constexpr uint32_t kLaneWeights = Form == kUnscaled ? 8 : 16; /* k of a lane's 16 bytes */
template <ScaleForm Form>
constexpr uint32_t kChunkWeights = 4 * kLaneWeights<Form>; /* k of a chunk: of a block of scales, half */
template <ScaleForm Form>
constexpr uint32_t kLaneVectors = kLaneWeights<Form> / 8; /* 16-byte vectors of x for them */

/* A lane's chunk of w: 16 bytes of two rows, and by block their scales. */
template <ScaleForm Form>
struct LaneChunk {
  uint4 low, high;
};
template <>
struct LaneChunk<kScaleByBlock> {
  uint4 low, high;
  float low_scale, high_scale;
};

/* Where a lane's chunks find their scales by block: those of its two rows, from the first chunk's block on. The first
 * chunk begins in the middle of a block or with one. */
template <ScaleForm Form>
struct LaneScales {
  LaneScales() = default;
  template <typename Matrix>
  __device__ __forceinline__ LaneScales(const Matrix&, uint64_t, uint64_t, uint32_t, uint32_t) {}
  __device__ __forceinline__ void load(uint32_t, bool, LaneChunk<Form>&) const {}
  __device__ __forceinline__ void load_halves(uint32_t, uint32_t, bool, LaneChunk<Form>&) const {}
};
template <>
struct LaneScales<kScaleByBlock> {
  const float *low, *high;
  uint32_t first; /* the first chunk's number in the row */

  LaneScales() = default;
  __device__ __forceinline__ LaneScales(const Fp8Matrix& w, uint64_t low_row, uint64_t high_row, uint32_t n_in,
                                        uint32_t k)
      : first(k / kChunkWeights<kScaleByBlock>) {
    const uint64_t blocks = (n_in + kScaleBlock - 1) / kScaleBlock;
    low = w.scales + low_row / kScaleBlock * blocks, high = w.scales + high_row / kScaleBlock * blocks;
  }
  __device__ __forceinline__ void load(uint32_t slot, bool wanted, LaneChunk<kScaleByBlock>& chunk) const {
    constexpr uint32_t kChunks = kScaleBlock / kChunkWeights<kScaleByBlock>; /* of a block */
    load_scale(low + (first + slot) / kChunks, wanted, chunk.low_scale);
    load_scale(high + (first + slot) / kChunks, wanted, chunk.high_scale);
  }
  /* Of one row's chunk, and of the one that lies `apart` further on, which stands in the place of the second row's. */
  __device__ __forceinline__ void load_halves(uint32_t slot, uint32_t apart, bool wanted,
                                              LaneChunk<kScaleByBlock>& chunk) const {
    constexpr uint32_t kChunks = kScaleBlock / kChunkWeights<kScaleByBlock>;
    load_scale(low + (first + slot) / kChunks, wanted, chunk.low_scale);
    load_scale(low + (first + slot + apart) / kChunks, wanted, chunk.high_scale);
  }
};

/* By row: what the sums of a lane's or a thread's rows are multiplied by at their end. */
struct OutputScales {
  float low, high;
};

/* acc[g] += w x[g]^T for one chunk, of 8 rows of x in each group g. */
template <typename Half, ScaleForm Form, int Groups>
__device__ __forceinline__ void multiply_chunk(float (*acc)[4], const LaneChunk<Form>& w,
                                               const uint4 (&x)[Groups][kLaneVectors<Form>]) {
  if constexpr (Form == kUnscaled) {
    const uint32_t front[4] = {w.low.x, w.high.x, w.low.y, w.high.y};
    const uint32_t back[4] = {w.low.z, w.high.z, w.low.w, w.high.w};
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      mma(acc[g], front, x[g][0].x, x[g][0].y, Half());
      mma(acc[g], back, x[g][0].z, x[g][0].w, Half());
    }
  } else {
    const uint32_t low[4] = {w.low.x, w.low.y, w.low.z, w.low.w};
    const uint32_t high[4] = {w.high.x, w.high.y, w.high.z, w.high.w};
    float part[Groups][4] = {};
    float (*sums)[4] = Form == kScaleByBlock ? part : acc;
#pragma unroll
    for (uint32_t i = 0; i < 4; i += 2) {
      uint32_t front[4], back[4]; /* columns 2i to 2i + 3 of the lane's 16, and those 8 further on, of both rows */
      to_halves(low[i], front[0], back[0], Half());
      to_halves(high[i], front[1], back[1], Half());
      to_halves(low[i + 1], front[2], back[2], Half());
      to_halves(high[i + 1], front[3], back[3], Half());
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const uint32_t first[4] = {x[g][0].x, x[g][0].y, x[g][0].z, x[g][0].w};
        const uint32_t second[4] = {x[g][1].x, x[g][1].y, x[g][1].z, x[g][1].w};
        mma(sums[g], front, first[i], first[i + 1], Half());
        mma(sums[g], back, second[i], second[i + 1], Half());
      }
    }
    if constexpr (Form == kScaleByBlock) {
#pragma unroll
      for (int g = 0; g < Groups; ++g)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[g][e] += (e < 2 ? w.low_scale : w.high_scale) * part[g][e];
    }
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_WEIGHT_LANES_H */
