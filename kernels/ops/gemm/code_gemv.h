/* GEMV of weights in codes of four bits: y = x w^T for up to 8 rows of x, what gemv.h computes with other weights, with
 * its arguments, tiles and ends. CPU reference: matmul.h.
 *
 * Weights come through shared memory and not straight into registers: there, a warp that waits for x would wait for
 * weights and scales as well that were asked for later (kernels/ops/moe/expert_ring.h says why). A lane copies its own
 * 16 bytes of two rows of a chunk, and the scales of its 32 columns of both, to a slot of its own, across tiles and,
 * before the predecessor has ended, across kernels; and takes chunks in the order in which it asked for them. So no
 * lane waits for another's copies.
 */
#ifndef BLINK_OPS_GEMM_CODE_GEMV_H
#define BLINK_OPS_GEMM_CODE_GEMV_H

#include "gemv.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kCodeGemvSlots = 8; /* chunks of a warp that are in flight, of 1,024 bytes and their scales */
struct CodeGemvSlot {
  uint4 low[32], high[32]; /* of the lanes */
  uint2 scales[32];        /* the words that they lie in, of the low row and of the high one */
};
constexpr uint32_t kCodeGemvBytes = 81920; /* of dynamic shared memory */
static_assert(kGemvWarps * kCodeGemvSlots * sizeof(CodeGemvSlot) == kCodeGemvBytes, "the host launches with so much");

constexpr uint32_t kCodeGemvSumBytes = 32; /* of a chunk: the sums of 8 rows of x */

/* Where the scales of a lane's columns lie, from its first chunk of a row on: a chunk's are a whole number of words
 * further on than those of the chunk before. Of kFp4By32, where a scale is a byte and rows begin at any, it is the word
 * around it. */
template <ScaleForm Form>
struct ScalePlace {
  const uint32_t* word;
  uint32_t byte;

  /* `unit`: the first scale's number in the matrix. */
  __device__ __forceinline__ ScalePlace(const CodeMatrix& w, uint64_t unit)
      : word(static_cast<const uint32_t*>(w.scales) + (Form == kFp4By32 ? unit / 4 : unit)),
        byte(Form == kFp4By32 ? unit % 4 : 0) {}
  /* The scale, from its word. */
  __device__ __forceinline__ uint32_t of(uint32_t raw) const {
    return Form == kFp4By32 ? permute_bytes(raw, 0, byte | 0x4440) : raw;
  }
};

/* The scales of a lane's two rows. */
template <ScaleForm Form>
struct ScalePlaces {
  ScalePlace<Form> low, high;

  __device__ __forceinline__ ScalePlaces(const CodeMatrix& w, const GemvRows& rows, uint32_t n_in, uint32_t k)
      : low(w, uint64_t(rows.low) * (n_in >> w.shift) + (k >> w.shift)),
        high(w, uint64_t(rows.high) * (n_in >> w.shift) + (k >> w.shift)) {}
};

/* What a lane asks for, chunk after chunk of the warp's part of each of the block's tiles. */
template <typename Half, int Output, ScaleForm Form>
struct CodeStream {
  using Tiles = GemvTiles<Half, Output, Form>;
  const Tiles& tiles;
  CodeGemvSlot* slots;   /* the warp's */
  uint32_t first, words; /* the lane's first column of a row; of scales, from a chunk to the next */
  uint32_t tile, left;   /* of what is asked for next: the tile, and how many chunks of it are left */
  CodePointer low, high;
  ScalePlaces<Form> scales;

  __device__ __forceinline__ CodeStream(const Tiles& all)
      : tiles(all),
        slots(reinterpret_cast<CodeGemvSlot*>(dynamic_shared()) + threadIdx.x / 32 * kCodeGemvSlots),
        first(all.first_chunk * kChunkWeights<Form> + threadIdx.x % 4 * kLaneWeights<Form>),
        words((kChunkWeights<Form> >> all.w.shift) / (Form == kFp4By32 ? 4 : 1)),
        tile(blockIdx.x),
        scales(scales_of_tile(tile)) {
    open();
#pragma unroll 1
    for (uint32_t slot = 0; slot < kCodeGemvSlots; ++slot) request(slot);
  }

  __device__ __forceinline__ ScalePlaces<Form> scales_of_tile(uint32_t tile) const {
    return {tiles.w, tiles.rows(tile), tiles.n_in, first};
  }
  /* The lane's two rows of the tile that comes next; rows past the end repeat the last one. */
  __device__ __forceinline__ void open() {
    const GemvRows rows = tiles.rows(tile);
    low = elements_of(tiles.w) + (uint64_t(rows.low) * tiles.n_in + first);
    high = elements_of(tiles.w) + (uint64_t(rows.high) * tiles.n_in + first);
    scales = scales_of_tile(tile);
    left = tile < tiles.n_tiles ? tiles.n_chunks : 0;
  }
  /* Asks for the next chunk; where there is none left, for nothing. */
  __device__ __forceinline__ void request(uint32_t slot) {
    if (left) {
      CodeGemvSlot& to = slots[slot];
      const uint32_t lane = threadIdx.x % 32;
      copy_weight(to.low + lane, low, true);
      copy_weight(to.high + lane, high, true);
      copy_async_word(&to.scales[lane].x, scales.low.word);
      copy_async_word(&to.scales[lane].y, scales.high.word);
      low += kChunkWeights<Form>, high += kChunkWeights<Form>;
      scales.low.word += words, scales.high.word += words;
      if (--left == 0) tile += gridDim.x, open();
    }
    commit_copies(); /* also without a copy: they are counted */
  }
  /* The chunk that was asked for first, of a tile with these scales. */
  __device__ __forceinline__ LaneChunk<Form> take(uint32_t slot, const ScalePlaces<Form>& of) const {
    wait_for_copies<kCodeGemvSlots - 1>();
    const CodeGemvSlot& from = slots[slot];
    const uint32_t lane = threadIdx.x % 32;
    const uint2 raw = from.scales[lane];
    LaneChunk<Form> chunk;
    chunk.low = from.low[lane], chunk.high = from.high[lane];
    chunk.low_scale = of.low.of(raw.x), chunk.high_scale = of.high.of(raw.y);
    return chunk;
  }
};

/* The sum of each column of x over a chunk, by the tensor cores like the products that it is subtracted from. */
template <typename Half>
__device__ __forceinline__ float2 sums_of_x(const uint4 (&x)[kLaneVectors<kInt4ByGroup>]) {
  constexpr uint32_t kOnes = sizeof(Half) && code_pattern(Half()) == code_pattern(__half()) ? 0x3c003c00 : 0x3f803f80;
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  float sums[4] = {};
#pragma unroll
  for (uint32_t i = 0; i < 4; i += 2)
#pragma unroll
    for (uint32_t p = 0; p < 4; ++p) mma(sums, ones, word_of(x[p], i), word_of(x[p], i + 1), Half());
  return make_float2(sums[0], sums[1]);
}

/* acc += w x^T for one chunk of integers, all of one group. The tensor cores multiply the patterns of codes, which are
 * the codes plus the same number everywhere; with the zero, it times the sum of x is subtracted from their sums, and
 * the scale multiplies what is left, all in fp32. That is a third of the instructions of converting each weight, and
 * rounds less: a pattern is at most 143 beside bfloat16, or 1,039 beside float16, where products have 24 bits. */
template <typename Half>
__device__ __forceinline__ void add_integers(float (&acc)[4], const LaneChunk<kInt4ByGroup>& w,
                                             const uint4 (&x)[kLaneVectors<kInt4ByGroup>], const float2& of_x) {
  float part[2][4] = {}; /* two, since products wait for the sums that they are added to */
#pragma unroll
  for (uint32_t i = 0; i < 4; i += 2)
#pragma unroll
    for (uint32_t p = 0; p < 4; ++p) {
      const uint32_t a[4] = {code_pair(word_of(w.low, i), p, Half()), code_pair(word_of(w.high, i), p, Half()),
                             code_pair(word_of(w.low, i + 1), p, Half()), code_pair(word_of(w.high, i + 1), p, Half())};
      mma(part[p % 2], a, word_of(x[p], i), word_of(x[p], i + 1), Half());
    }
  const uint32_t raw[2] = {w.low_scale, w.high_scale};
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    const Half* scale_and_added = reinterpret_cast<const Half*>(raw + h);
    const float scale = to_float(scale_and_added[0]), added = to_float(scale_and_added[1]);
    acc[2 * h] += scale * (part[0][2 * h] + part[1][2 * h] + added * of_x.x);
    acc[2 * h + 1] += scale * (part[0][2 * h + 1] + part[1][2 * h + 1] + added * of_x.y);
  }
}

/* All tiles of a block. InGroups: a chunk of integers lies in one group (add_integers). */
template <bool InGroups, typename Half, int Output, ScaleForm Form>
__device__ __forceinline__ void multiply_code_tiles(GemvSums<1>& sums, const GemvTiles<Half, Output, Form>& tiles,
                                                    CodeStream<Half, Output, Form>& stream, const Half* x, void* y,
                                                    uint32_t m) {
  constexpr uint32_t kVectors = kLaneVectors<Form>, kOutputs = GemvTiles<Half, Output, Form>::kOutputs;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_in = tiles.n_in, n_out = tiles.n_out;
  const Half* row = x + uint64_t(min(m - 1, lane / 4)) * n_in + stream.first; /* rows past the end are not stored */
  float2* of_x = reinterpret_cast<float2*>(reinterpret_cast<char*>(dynamic_shared()) + kCodeGemvBytes) +
                 tiles.first_chunk * (kCodeGemvSumBytes / sizeof(float2)); /* of the warp's chunks, by 4 lanes */
  uint4 ahead[kVectors];                                                   /* x of the chunk that is taken next */
  const auto load_x = [&](uint32_t chunk) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v)
      if (tiles.n_chunks) ahead[v] = *reinterpret_cast<const uint4*>(row + chunk * kChunkWeights<Form> + 8 * v);
  };
  load_x(0);
  uint32_t buffer = 0, slot = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles.n_tiles; tile += gridDim.x, buffer ^= 1) {
    const ScalePlaces<Form> scales = stream.scales_of_tile(tile);
    float acc[1][4] = {};
#pragma unroll 2
    for (uint32_t chunk = 0; chunk < tiles.n_chunks; ++chunk, slot = (slot + 1) % kCodeGemvSlots) {
      uint4 part[1][kVectors];
#pragma unroll
      for (uint32_t v = 0; v < kVectors; ++v) part[0][v] = ahead[v];
      load_x(chunk + 1 == tiles.n_chunks ? 0 : chunk + 1);
      const LaneChunk<Form> taken = stream.take(slot, scales);
      if constexpr (InGroups) {
        if (tile == blockIdx.x) {
          const float2 own = sums_of_x<Half>(part[0]);
          if (lane < 4) of_x[4 * chunk + lane] = own;
          __syncwarp();
        }
        add_integers<Half>(acc[0], taken, part[0], of_x[4 * chunk + lane % 4]);
      } else {
        multiply_chunk<Half, Form, 1>(acc, taken, part);
      }
      stream.request(slot);
    }
    sums.part[buffer][warp][0][lane] = make_float4(acc[0][0], acc[0][1], acc[0][2], acc[0][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    for (uint32_t e = threadIdx.x; e < m * kOutputs; e += kGemvThreads) {
      const uint32_t o = e % kOutputs, column = e / kOutputs, out = tile * kOutputs + o;
      if (out < n_out)
        store_gemv<Half, Output>(sums, buffer, y, o, column, uint64_t(column) * n_out + out, OutputScales{1.0f, 1.0f});
    }
  }
}

/* grid (at most the tiles), block (kGemvThreads), kCodeGemvBytes of shared memory and kCodeGemvSumBytes for each chunk
 * of a row; m at most 8, n_in a multiple of kChunkWeights<Form>. Blocks take tiles blockIdx.x, blockIdx.x + gridDim.x,
 * ... */
template <typename Half, int Output, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    code_gemv_kernel(CodeMatrix w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out) {
  __shared__ GemvSums<1> sums;
  allow_successor();
  const GemvTiles<Half, Output, Form> tiles(w, n_in, n_out);
  CodeStream<Half, Output, Form> stream(tiles);
  wait_for_predecessor();
  bool in_groups = false;
  if constexpr (Form == kInt4ByGroup) {
    in_groups = kChunkWeights<Form> >> w.shift == 1;
    if (in_groups) multiply_code_tiles<true>(sums, tiles, stream, x, y, m);
  }
  if (!in_groups) multiply_code_tiles<false>(sums, tiles, stream, x, y, m);
  wait_for_copies<0>(); /* the last ones, of nothing */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_CODE_GEMV_H */
