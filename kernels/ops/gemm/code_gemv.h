/* GEMV of weights in codes of four bits: y = x w^T for up to 8 rows of x, what gemv.h computes with other weights, with
 * its arguments, tiles and ends. CPU reference: matmul.h.
 *
 * Weights come through shared memory and not straight into registers: there, a warp that waits for x would wait for
 * weights and scales as well that were asked for later (kernels/ops/moe/expert_ring.h says why). A lane copies 16 bytes
 * of two rows of a chunk, and the scales of these 32 columns of both, to a slot of the warp's, across tiles and, before
 * the predecessor has ended, across kernels; the warp takes chunks in the order in which it asked for them.
 *
 * Numbers of e2m1 are converted to halves by the lane that has copied them (weight_lanes.h). Of integers, the tensor
 * cores multiply the patterns, which are the codes plus the same number everywhere. Scale and zero are applied to the
 * sums of each group, in fp32, with the sum of x over the group's columns: half the instructions of converting each
 * weight. For that a product of the tensor cores has to lie in one group, so lanes take a word of each 32 columns, and
 * k is in its order. The patterns are at most 143 beside bfloat16 and 1,039 beside float16, so what is subtracted is
 * up to that much larger than what is left of it, which has 24 bits before, and more than a half's behind.
 */
#ifndef BLINK_OPS_GEMM_CODE_GEMV_H
#define BLINK_OPS_GEMM_CODE_GEMV_H

#include "gemv.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kCodeGemvSlots = 8; /* chunks of a warp that are in flight, of 1,024 bytes and their scales */
struct CodeGemvSlot {
  uint4 low[32], high[32];                /* of the lanes, where `place` says */
  uint32_t low_scale[32], high_scale[32]; /* the words that they lie in, of the lanes */

  /* Where a lane's 16 bytes are: such that eight rows' at the same columns lie in different banks. */
  static __device__ __forceinline__ uint32_t place(uint32_t row, uint32_t piece) {
    return 4 * row + (piece ^ row / 2 % 4);
  }
};
constexpr uint32_t kCodeGemvBytes = 81920; /* of dynamic shared memory */
static_assert(kGemvWarps * kCodeGemvSlots * sizeof(CodeGemvSlot) == kCodeGemvBytes, "the host launches with so much");

constexpr uint32_t kCodeGemvSumBytes = 128; /* of a chunk: the sums of 8 rows of x over each of up to 4 groups */

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
      const uint32_t lane = threadIdx.x % 32, place = CodeGemvSlot::place(lane / 4, lane % 4);
      copy_weight(to.low + place, low, true);
      copy_weight(to.high + place, high, true);
      copy_async_word(to.low_scale + lane, scales.low.word);
      copy_async_word(to.high_scale + lane, scales.high.word);
      low += kChunkWeights<Form>, high += kChunkWeights<Form>;
      scales.low.word += words, scales.high.word += words;
      if (--left == 0) tile += gridDim.x, open();
    }
    commit_copies(); /* also without a copy: they are counted */
  }
  /* Where the chunk lies that was asked for first. */
  __device__ __forceinline__ const CodeGemvSlot& take(uint32_t slot) const {
    wait_for_copies<kCodeGemvSlots - 1>();
    __syncwarp(); /* those of all lanes have come */
    return slots[slot];
  }
};

/* How a kernel multiplies chunks: numbers. A lane has 32 neighbouring columns. */
template <typename Half, ScaleForm Form>
struct CodeProduct {
  using X = uint4[1][kLaneVectors<Form>];

  __device__ __forceinline__ explicit CodeProduct(uint32_t) {}
  /* The lane's row of x, from its first column of a chunk on. */
  static __device__ __forceinline__ uint32_t column() { return threadIdx.x % 4 * kLaneWeights<Form>; }
  static __device__ __forceinline__ void load(X& x, const Half* row) {
#pragma unroll
    for (uint32_t v = 0; v < kLaneVectors<Form>; ++v) x[0][v] = *reinterpret_cast<const uint4*>(row + 8 * v);
  }
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvSlot& slot, const ScalePlaces<Form>& scales,
                                      const X& x, uint32_t, bool) const {
    const uint32_t lane = threadIdx.x % 32, place = CodeGemvSlot::place(lane / 4, lane % 4);
    LaneChunk<Form> chunk;
    chunk.low = slot.low[place], chunk.high = slot.high[place];
    chunk.low_scale = scales.low.of(slot.low_scale[lane]), chunk.high_scale = scales.high.of(slot.high_scale[lane]);
    multiply_chunk<Half, Form, 1>(&acc, chunk, x);
  }
};

/* The same of integers, in Groups groups a chunk. A lane has columns c and c + 1 of each 8, c = 2 (lane % 4). */
template <typename Half, uint32_t Groups>
struct IntegerProduct {
  using X = uint32_t[16];
  static constexpr uint32_t kPieces = 4 / Groups; /* of 32 columns, of a group */
  float2* of_x; /* the sums of x over the warp's groups, by the rows that lanes 0 to 3 have sums of */

  __device__ __forceinline__ explicit IntegerProduct(uint32_t first_chunk)
      : of_x(reinterpret_cast<float2*>(reinterpret_cast<char*>(dynamic_shared()) + kCodeGemvBytes) +
             first_chunk * (kCodeGemvSumBytes / sizeof(float2))) {}
  static __device__ __forceinline__ uint32_t column() { return threadIdx.x % 4 * 2; }
  static __device__ __forceinline__ void load(X& x, const Half* row) {
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) x[i] = *reinterpret_cast<const uint32_t*>(row + 8 * i);
  }
  /* `fresh`: x is the chunk's for the first time. */
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvSlot& slot, const ScalePlaces<kInt4ByGroup>&,
                                      const X& x, uint32_t chunk, bool fresh) const {
    const uint32_t lane = threadIdx.x % 32, from = CodeGemvSlot::place(lane % 8, lane / 8);
    uint32_t low[4], high[4]; /* a word of each 32 columns */
    load_matrices<false>(low, slot.low + from);
    load_matrices<false>(high, slot.high + from);
    float2* const sums = of_x + chunk * 16;
    if (fresh) sum_x(sums, x);
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g) {
      float part[4] = {};
#pragma unroll
      for (uint32_t j = g * kPieces; j < (g + 1) * kPieces; ++j)
#pragma unroll
        for (uint32_t p = 0; p < 4; p += 2) {
          const uint32_t a[4] = {code_pair(low[j], p, Half()), code_pair(high[j], p, Half()),
                                 code_pair(low[j], p + 1, Half()), code_pair(high[j], p + 1, Half())};
          mma(part, a, x[4 * j + p], x[4 * j + p + 1], Half());
        }
      const float2 of = sums[4 * g + lane % 4];
      add_scaled(acc[0], acc[1], part[0], part[1], of, slot.low_scale[lane / 4 * 4 + g * kPieces]);
      add_scaled(acc[2], acc[3], part[2], part[3], of, slot.high_scale[lane / 4 * 4 + g * kPieces]);
    }
    __syncwarp(); /* every lane has read the slot */
  }

 private:
  /* By the tensor cores, like the products that they are subtracted from. */
  static __device__ __forceinline__ void sum_x(float2* to, const X& x) {
    const uint32_t one = pack<Half>(1.0f, 1.0f), ones[4] = {one, one, one, one}, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g) {
      float sums[4] = {};
#pragma unroll
      for (uint32_t i = 4 * g * kPieces; i < 4 * (g + 1) * kPieces; i += 2) mma(sums, ones, x[i], x[i + 1], Half());
      if (lane < 4) to[4 * g + lane] = make_float2(sums[0], sums[1]);
    }
    __syncwarp();
  }
  static __device__ __forceinline__ void add_scaled(float& first, float& second, float part, float next,
                                                    const float2& of_x, uint32_t raw) {
    const Half* scale_and_added = reinterpret_cast<const Half*>(&raw);
    const float scale = to_float(scale_and_added[0]), added = to_float(scale_and_added[1]);
    first += scale * (part + added * of_x.x), second += scale * (next + added * of_x.y);
  }
};

/* All tiles of a block. */
template <typename Product, typename Half, int Output, ScaleForm Form>
__device__ __forceinline__ void multiply_code_tiles(GemvSums<1>& sums, const GemvTiles<Half, Output, Form>& tiles,
                                                    CodeStream<Half, Output, Form>& stream, const Half* x, void* y,
                                                    uint32_t m) {
  constexpr uint32_t kOutputs = GemvTiles<Half, Output, Form>::kOutputs, kChunk = kChunkWeights<Form>;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_in = tiles.n_in, n_out = tiles.n_out;
  const Product product(tiles.first_chunk);
  /* What is computed for rows past the end is not stored. */
  const Half* row = x + uint64_t(min(m - 1, lane / 4)) * n_in + tiles.first_chunk * kChunk + Product::column();
  typename Product::X ahead, part; /* of x: of the chunk that is taken next, and of this one */
  if (tiles.n_chunks) Product::load(ahead, row);
  uint32_t buffer = 0, slot = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles.n_tiles; tile += gridDim.x, buffer ^= 1) {
    const ScalePlaces<Form> scales = stream.scales_of_tile(tile);
    float acc[4] = {};
#pragma unroll 2
    for (uint32_t chunk = 0; chunk < tiles.n_chunks; ++chunk, slot = (slot + 1) % kCodeGemvSlots) {
      memcpy(&part, &ahead, sizeof part);
      Product::load(ahead, row + (chunk + 1 == tiles.n_chunks ? 0 : chunk + 1) * kChunk);
      product.add(acc, stream.take(slot), scales, part, chunk, tile == blockIdx.x);
      stream.request(slot);
    }
    sums.part[buffer][warp][0][lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
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
  if constexpr (Form != kInt4ByGroup)
    multiply_code_tiles<CodeProduct<Half, Form>>(sums, tiles, stream, x, y, m);
  else if (w.shift == 7) /* groups of 128, 64 and 32 columns */
    multiply_code_tiles<IntegerProduct<Half, 1>>(sums, tiles, stream, x, y, m);
  else if (w.shift == 6)
    multiply_code_tiles<IntegerProduct<Half, 2>>(sums, tiles, stream, x, y, m);
  else
    multiply_code_tiles<IntegerProduct<Half, 4>>(sums, tiles, stream, x, y, m);
  wait_for_copies<0>(); /* the last ones, of nothing */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_CODE_GEMV_H */
