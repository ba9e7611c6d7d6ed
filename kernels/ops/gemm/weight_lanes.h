/* Weights that go through a lane's registers, in the type of x, in fp8 or in four bits: 16 bytes of each of two rows of
 * w at once, which the tensor cores multiply by rows of x.
 *
 * A lane (r, q) of a warp supplies k = n q .. n q + n - 1 of a chunk of 4 n, where n is 8 of halves, 16 of fp8 and 32
 * of codes of four bits, of rows r and r + 8 of w, and of row r of x. The tensor cores want 2q, 2q + 1, 2q + 8, 2q + 9:
 * the sum over k has no order, so k is permuted, and both operands agree. Within a lane's 16 of fp8, or 32 codes, the
 * order is that in memory (kernels/primitives/fp8.h, codes.h), and x is in its own order: two words of w become two
 * operands, or four, each of which has neighbouring columns, since the tensor cores take x from neighbouring registers,
 * and others would be moved there.
 *
 * Scales by row are for who adds up a whole row. Scales by block multiply the sums of each chunk, which lies in one
 * block, in fp32: what is converted is exact. Scales by group are those of a lane's columns, which its codes are
 * multiplied by when they are converted: the tensor cores add up columns of four lanes, whose groups differ.
 */
#ifndef BLINK_OPS_GEMM_WEIGHT_LANES_H
#define BLINK_OPS_GEMM_WEIGHT_LANES_H

#include "kernels/primitives/codes.h"
#include "kernels/primitives/fp8.h"

#ifdef __CUDACC__

namespace blink {

/* A matrix of fp8, and its scales. */
struct Fp8Matrix {
  const uint8_t* elements;
  const float* scales; /* [rows], or [ceil(rows / kScaleBlock)][ceil(columns / kScaleBlock)] */
};

/* What a kernel is given of a matrix, and what points to its elements. */
struct CodeTypes {
  using Matrix = CodeMatrix;
  using Pointer = CodePointer;
};
template <typename Half, ScaleForm Form>
struct WeightTypes : CodeTypes {};
template <typename Half>
struct WeightTypes<Half, kUnscaled> {
  using Matrix = const Half*;
  using Pointer = const Half*;
};
struct Fp8Types {
  using Matrix = Fp8Matrix;
  using Pointer = const uint8_t*;
};
template <typename Half>
struct WeightTypes<Half, kScaleByRow> : Fp8Types {};
template <typename Half>
struct WeightTypes<Half, kScaleByBlock> : Fp8Types {};

template <typename Half>
__device__ __forceinline__ const Half* elements_of(const Half* w) {
  return w;
}
__device__ __forceinline__ const uint8_t* elements_of(const Fp8Matrix& w) {
  return w.elements;
}
__device__ __forceinline__ CodePointer elements_of(const CodeMatrix& w) {
  return {w.codes};
}
template <typename Half>
__device__ __forceinline__ const float* scales_of(const Half*) {
  return nullptr;
}
__device__ __forceinline__ const float* scales_of(const Fp8Matrix& w) {
  return w.scales;
}
__device__ __forceinline__ const float* scales_of(const CodeMatrix&) {
  return nullptr; /* by row or by block there are none */
}

/* The type of x beside weights of a form, where a kernel can choose it: fp8 becomes float16 in one instruction for two
 * elements, and bfloat16 in four. */
template <typename Half, ScaleForm Form>
struct Multiplied {
  using Type = Half;
};
template <typename Half>
struct Multiplied<Half, kScaleByRow> {
  using Type = __half;
};
template <typename Half>
struct Multiplied<Half, kScaleByBlock> {
  using Type = __half;
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
constexpr uint32_t kLaneWeights = Form == kUnscaled ? 8
                                  : kIsFp8<Form>    ? 16
                                                    : 32; /* k of a lane's 16 bytes */
template <ScaleForm Form>
constexpr uint32_t kChunkWeights = 4 * kLaneWeights<Form>; /* k of a chunk: of a block of scales, half */
template <ScaleForm Form>
constexpr uint32_t kLaneVectors = kLaneWeights<Form> / 8; /* 16-byte vectors of x for them */

/* A lane's chunk of w: 16 bytes of two rows, and by block or by group their scales. */
template <ScaleForm Form>
struct LaneChunk {
  uint4 low, high;
};
template <>
struct LaneChunk<kScaleByBlock> {
  uint4 low, high;
  float low_scale, high_scale;
};
struct CodeChunk {
  uint4 low, high;
  uint32_t low_scale, high_scale; /* as they lie in memory */
};
template <>
struct LaneChunk<kInt4ByGroup> : CodeChunk {};
template <>
struct LaneChunk<kFp4By32> : CodeChunk {};
template <>
struct LaneChunk<kFp4By16> : CodeChunk {};

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

/* The same of scales by group: those of the lane's columns of each chunk. */
template <ScaleForm Form>
struct CodeScales {
  CodeMatrix w;
  uint64_t low, high; /* the rows' first units */
  uint32_t first;     /* the lane's first column */

  CodeScales() = default;
  __device__ __forceinline__ CodeScales(const CodeMatrix& matrix, uint64_t low_row, uint64_t high_row, uint32_t n_in,
                                        uint32_t k)
      : w(matrix), first(k + threadIdx.x % 4 * kLaneWeights<Form>) {
    low = low_row * (n_in >> w.shift), high = high_row * (n_in >> w.shift);
  }
  __device__ __forceinline__ void load(uint32_t slot, bool wanted, LaneChunk<Form>& chunk) const {
    const uint32_t k = first + slot * kChunkWeights<Form>;
    load_unit<Form>(w, low, k, wanted, chunk.low_scale);
    load_unit<Form>(w, high, k, wanted, chunk.high_scale);
  }
  __device__ __forceinline__ void load_halves(uint32_t slot, uint32_t apart, bool wanted,
                                              LaneChunk<Form>& chunk) const {
    const uint32_t k = first + slot * kChunkWeights<Form>;
    load_unit<Form>(w, low, k, wanted, chunk.low_scale);
    load_unit<Form>(w, low, k + apart * kChunkWeights<Form>, wanted, chunk.high_scale);
  }
};
template <>
struct LaneScales<kInt4ByGroup> : CodeScales<kInt4ByGroup> {
  using CodeScales::CodeScales;
};
template <>
struct LaneScales<kFp4By32> : CodeScales<kFp4By32> {
  using CodeScales::CodeScales;
};
template <>
struct LaneScales<kFp4By16> : CodeScales<kFp4By16> {
  using CodeScales::CodeScales;
};

/* By row: what the sums of a lane's or a thread's rows are multiplied by at their end. */
struct OutputScales {
  float low, high;
};

/* Element i of a vector, where the compiler knows i. */
__device__ __forceinline__ uint32_t word_of(const uint4& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* A lane's chunk of codes, as operands of the tensor cores. */
template <typename Half, ScaleForm Form>
struct CodeOperands {
  const LaneChunk<Form>& w;
  const CodeFactors<Half, Form> low, high;

  __device__ __forceinline__ explicit CodeOperands(const LaneChunk<Form>& chunk)
      : w(chunk), low(chunk.low_scale), high(chunk.high_scale) {}
  /* acc[g] += columns 8p + 2i to 8p + 2i + 3 of the lane's 32, of both rows, times x[g]; i is even. */
  template <int Groups>
  __device__ __forceinline__ void multiply(float (*acc)[4], uint32_t i, uint32_t p,
                                           const uint4 (&x)[Groups][kLaneVectors<Form>]) const {
    const uint32_t a[4] = {low.pair(word_of(w.low, i), p), high.pair(word_of(w.high, i), p),
                           low.pair(word_of(w.low, i + 1), p), high.pair(word_of(w.high, i + 1), p)};
#pragma unroll
    for (int g = 0; g < Groups; ++g) mma(acc[g], a, word_of(x[g][p], i), word_of(x[g][p], i + 1), Half());
  }
};

/* acc[g] += w x[g]^T for one chunk of codes. */
template <typename Half, ScaleForm Form, int Groups>
__device__ __forceinline__ void multiply_codes(float (*acc)[4], const LaneChunk<Form>& w,
                                               const uint4 (&x)[Groups][kLaneVectors<Form>]) {
  const CodeOperands<Half, Form> operands(w);
#pragma unroll
  for (uint32_t i = 0; i < 4; i += 2)
#pragma unroll
    for (uint32_t p = 0; p < 4; ++p) operands.multiply(acc, i, p, x);
}

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
  } else if constexpr (kIsCodes<Form>) {
    multiply_codes<Half, Form, Groups>(acc, w, x);
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
