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

/* The word that a lane's scale lies in: of kFp4By32, where a scale is a byte and rows begin at any, the word around it.
 */
template <ScaleForm Form>
struct ScalePlace {
  const uint32_t* word;
  uint32_t byte;

  /* `unit`: the scale's number in the matrix. */
  __device__ __forceinline__ ScalePlace(const CodeMatrix& w, uint64_t unit)
      : word(static_cast<const uint32_t*>(w.scales) + (Form == kFp4By32 ? unit / 4 : unit)),
        byte(Form == kFp4By32 ? unit % 4 : 0) {}
  /* The scale, from its word. */
  __device__ __forceinline__ uint32_t of(uint32_t raw) const {
    return Form == kFp4By32 ? permute_bytes(raw, 0, byte | 0x4440) : raw;
  }
};

/* What a lane asks for, chunk after chunk of the warp's part of each of the block's tiles. */
template <typename Half, int Output, ScaleForm Form>
struct CodeStream {
  using Tiles = GemvTiles<Half, Output, Form>;
  const Tiles& tiles;
  CodeGemvSlot* slots; /* the warp's */
  uint32_t tile, done; /* of what is asked for next */
  CodePointer low, high;
  uint64_t low_unit, high_unit; /* the first of the lane's rows */

  __device__ __forceinline__ CodeStream(const Tiles& all)
      : tiles(all),
        slots(reinterpret_cast<CodeGemvSlot*>(dynamic_shared()) + threadIdx.x / 32 * kCodeGemvSlots),
        tile(blockIdx.x),
        done(0) {
    open();
#pragma unroll 1
    for (uint32_t slot = 0; slot < kCodeGemvSlots; ++slot) request(slot);
  }

  /* The lane's first column of the chunk that is its `number`-th of a tile. */
  __device__ __forceinline__ uint32_t column(uint32_t number) const {
    return (tiles.first_chunk + number) * kChunkWeights<Form> + threadIdx.x % 4 * kLaneWeights<Form>;
  }
  /* The lane's two rows of the tile that comes next; rows past the end repeat the last one. */
  __device__ __forceinline__ void open() {
    const GemvRows rows = tiles.rows(tile);
    const uint64_t k = column(0), units = tiles.n_in >> tiles.w.shift;
    low = elements_of(tiles.w) + (uint64_t(rows.low) * tiles.n_in + k);
    high = elements_of(tiles.w) + (uint64_t(rows.high) * tiles.n_in + k);
    low_unit = rows.low * units, high_unit = rows.high * units;
  }
  __device__ __forceinline__ ScalePlace<Form> scale(uint64_t first_unit, uint32_t number) const {
    return {tiles.w, first_unit + (column(number) >> tiles.w.shift)};
  }
  /* Asks for the next chunk; where there is none left, for nothing. */
  __device__ __forceinline__ void request(uint32_t slot) {
    if (tile < tiles.n_tiles && tiles.n_chunks) {
      CodeGemvSlot& to = slots[slot];
      const uint32_t lane = threadIdx.x % 32;
      copy_weight(to.low + lane, low, true);
      copy_weight(to.high + lane, high, true);
      copy_async_word(&to.scales[lane].x, scale(low_unit, done).word);
      copy_async_word(&to.scales[lane].y, scale(high_unit, done).word);
      low += kChunkWeights<Form>, high += kChunkWeights<Form>;
      if (++done == tiles.n_chunks) done = 0, tile += gridDim.x, open();
    }
    commit_copies(); /* also without a copy: they are counted */
  }
  /* The chunk that was asked for first, of the tile whose rows begin at these units: the warp's `number`-th. */
  __device__ __forceinline__ LaneChunk<Form> take(uint32_t slot, uint64_t of_low, uint64_t of_high,
                                                  uint32_t number) const {
    wait_for_copies<kCodeGemvSlots - 1>();
    const CodeGemvSlot& from = slots[slot];
    const uint32_t lane = threadIdx.x % 32;
    const uint2 raw = from.scales[lane];
    LaneChunk<Form> chunk;
    chunk.low = from.low[lane], chunk.high = from.high[lane];
    chunk.low_scale = scale(of_low, number).of(raw.x), chunk.high_scale = scale(of_high, number).of(raw.y);
    return chunk;
  }
};

/* grid (at most the tiles), block (kGemvThreads), kCodeGemvBytes of shared memory; m at most 8, n_in a multiple of
 * kChunkWeights<Form>. Blocks take tiles blockIdx.x, blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    code_gemv_kernel(CodeMatrix w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out) {
  using Tiles = GemvTiles<Half, Output, Form>;
  constexpr uint32_t kVectors = kLaneVectors<Form>;
  __shared__ GemvSums<1> sums;
  allow_successor();
  const Tiles tiles(w, n_in, n_out);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  CodeStream<Half, Output, Form> stream(tiles);
  wait_for_predecessor();

  const Half* row = x + uint64_t(min(m - 1, lane / 4)) * n_in + stream.column(0); /* rows past the end are not stored */
  uint4 ahead[kVectors]; /* x of the chunk that is taken next */
  const auto load_x = [&](uint32_t chunk) {
#pragma unroll
    for (uint32_t v = 0; v < kVectors; ++v)
      if (tiles.n_chunks) ahead[v] = *reinterpret_cast<const uint4*>(row + chunk * kChunkWeights<Form> + 8 * v);
  };
  load_x(0);
  uint32_t buffer = 0, slot = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles.n_tiles; tile += gridDim.x, buffer ^= 1) {
    const GemvRows rows = tiles.rows(tile);
    const uint64_t units = n_in >> w.shift, of_low = rows.low * units, of_high = rows.high * units;
    float acc[1][4] = {};
#pragma unroll 2
    for (uint32_t chunk = 0; chunk < tiles.n_chunks; ++chunk, slot = (slot + 1) % kCodeGemvSlots) {
      uint4 part[1][kVectors];
#pragma unroll
      for (uint32_t v = 0; v < kVectors; ++v) part[0][v] = ahead[v];
      load_x(chunk + 1 == tiles.n_chunks ? 0 : chunk + 1);
      multiply_chunk<Half, Form, 1>(acc, stream.take(slot, of_low, of_high, chunk), part);
      stream.request(slot);
    }
    sums.part[buffer][warp][0][lane] = make_float4(acc[0][0], acc[0][1], acc[0][2], acc[0][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    for (uint32_t e = threadIdx.x; e < m * Tiles::kOutputs; e += kGemvThreads) {
      const uint32_t o = e % Tiles::kOutputs, column = e / Tiles::kOutputs, out = tile * Tiles::kOutputs + o;
      if (out < n_out)
        store_gemv<Half, Output>(sums, buffer, y, o, column, uint64_t(column) * n_out + out, OutputScales{1.0f, 1.0f});
    }
  }
  wait_for_copies<0>(); /* the last ones, of nothing */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_CODE_GEMV_H */
