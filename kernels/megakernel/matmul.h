/* Matmul: y = x w^T of up to BLINK_MEGAKERNEL_TOKENS tokens, in which a block computes its tiles of w, from the weight
 * stream.
 *
 * Other blocks write x while this runs (../primitives/ll_protocol.h); it is loaded once for a pass. What is computed
 * for tokens past the last one is never stored.
 */
#ifndef BLINK_MEGAKERNEL_MATMUL_H
#define BLINK_MEGAKERNEL_MATMUL_H

#include "kernels/primitives/ll_protocol.h"
#include "input_order.h"
#include "weight_stream_sm90.h"

#ifdef __CUDACC__

namespace blink {

/* The partial sums of a block's warps, a fragment of each. They stay in shared memory because registers cannot be
 * indexed: the loop over a pass's tiles would be unrolled into more code than the multiprocessor's instruction cache
 * holds. */
struct MatmulSums {
  float4 part[kPassTiles][kMegakernelWarps][32];

  /* A lane's fragment of a tile: rows r and r + 8 (r = lane / 4) for token 2 (lane % 4), elements 0 and 2, and the next
   * token, 1 and 3. */
  __device__ __forceinline__ float4 total(uint32_t tile) const {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (uint32_t warp = 0; warp < kMegakernelWarps; ++warp) {
      const float4& of = part[tile][warp][threadIdx.x % 32];
      sum.x += of.x, sum.y += of.y, sum.z += of.z, sum.w += of.w;
    }
    return sum;
  }
};

/* x, in the order of input_order.h, which other blocks write while this kernel runs (ll_protocol.h). */
template <typename Half>
struct MatmulInput {
  const Half* x;
  uint32_t n_tokens;
};

/* The elements of x that one lane needs for a stage. */
template <ScaleForm Form, ScaleForm Layers>
struct StageRows {
  StageVectors<Form> x[kStageChunks<Form>];

  /* Requests them, from the warp's k + done on, the second half only for a stage that has it. In place of a token that
   * does not exist the last one is loaded, and in place of a chunk, too: a branch for each would make the loads wait
   * for each other. */
  template <typename Half>
  __device__ __forceinline__ void load(const MatmulInput<Half>& input, const BlockTiles<Layers>& tiles, uint32_t done) {
    const uint4* from = first(input, tiles, done);
    const uint32_t last = tiles.chunks(done) - 1;
#pragma unroll
    for (uint32_t i = 0; i < kVectors / 2; ++i) vector(i) = load_relaxed(at(from, last, i));
    if (2 * (last + 1) <= kStageChunks<Form>) {
#pragma unroll
      for (uint32_t i = kVectors / 2; i < kVectors; ++i) vector(i) = make_uint4(1, 1, 1, 1); /* not missing */
    } else {
#pragma unroll
      for (uint32_t i = kVectors / 2; i < kVectors; ++i) vector(i) = load_relaxed(at(from, last, i));
    }
  }
  /* Waits for what had not been written when it was requested. */
  template <typename Half>
  __device__ __forceinline__ void complete(const MatmulInput<Half>& input, const BlockTiles<Layers>& tiles,
                                           uint32_t done) {
    if (input.n_tokens == 0) return;
    const uint4* from = first(input, tiles, done);
    const uint32_t last = tiles.chunks(done) - 1;
    for (Patience patience;; patience.spend()) {
      bool missing = false;
#pragma unroll
      for (uint32_t i = 0; i < kVectors; ++i) missing |= is_missing(vector(i));
      if (!missing) return;
#pragma unroll
      for (uint32_t i = 0; i < kVectors; ++i)
        if (is_missing(vector(i))) vector(i) = load_relaxed(at(from, last, i));
    }
  }

 private:
  static constexpr uint32_t kOfChunk = kLaneVectors<Form>, kVectors = kStageChunks<Form> * kOfChunk;

  __device__ __forceinline__ uint4& vector(uint32_t i) { return x[i / kOfChunk].of[0][i % kOfChunk]; }
  template <typename Half>
  static __device__ __forceinline__ const uint4* first(const MatmulInput<Half>& input, const BlockTiles<Layers>& tiles,
                                                       uint32_t done) {
    const uint32_t lane = threadIdx.x % 32, existing = min(lane, 4 * (input.n_tokens - 1) + lane % 4);
    const uint32_t chunk = (tiles.first_k(threadIdx.x / 32) + done) / kGemvChunk;
    return opaque(reinterpret_cast<const uint4*>(input.x) + InputOrder<Form>::vector(chunk, 0, existing));
  }
  static __device__ __forceinline__ const uint4* at(const uint4* first, uint32_t last, uint32_t i) {
    return first + InputOrder<Form>::vector(min(i / kOfChunk, last), i % kOfChunk, 0);
  }
};

static_assert(kPassTiles == kMegakernelWarps, "a warp ends a tile");

/* Multiplies by the next matrix of the stream; called by the whole block. As each pass begins, it calls
 * epilogue.request_scales(pass). While the weights of the first pass stream,
 * it calls epilogue.request() and then epilogue.receive(), for what the outputs need besides the matmul's result. At
 * the end of every pass it calls epilogue.prepare(), and then one warp for each of the block's tiles calls
 * epilogue.put(tile, fragment), where the fragment is MatmulSums::total(). */
template <typename Half, ScaleForm Form, ScaleForm Layers, typename Epilogue>
__device__ __forceinline__ void multiply(WeightStream<Half, Layers>& stream, const BlockTiles<Layers>& tiles,
                                         const MatmulInput<Half>& input, MatmulSums& sums, Epilogue& epilogue) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (uint32_t pass = 0; pass < tiles.count; pass += kPassTiles) {
    const uint32_t n = min(kPassTiles, tiles.count - pass);
    sync_workers(); /* the sums of the pass before, or attention's scratch, have been read */
#pragma unroll 1
    for (uint32_t done = 0; done < tiles.share(); done += tiles.stage_k()) {
      StageRows<Form, Layers> now;
      now.load(input, tiles, done);
      now.complete(input, tiles, done);
      if (done == 0) epilogue.request_scales(pass);
      if (done == 0 && pass == 0) epilogue.request();
#pragma unroll 1
      for (uint32_t t = 0; t < n;) {
        const char* stage = stream.wait();
#pragma unroll 1
        for (const uint32_t end = min(n, t + tiles.stage_tiles()); t < end; ++t, stage += tiles.tile_bytes()) {
          float4& sum = sums.part[t][warp][lane];
          float acc[4] = {};
          if (done) acc[0] = sum.x, acc[1] = sum.y, acc[2] = sum.z, acc[3] = sum.w;
          stream.template add<Form>(stage, acc, now.x, tiles, done);
          sum = make_float4(acc[0], acc[1], acc[2], acc[3]);
        }
        stream.release();
      }
      if (done == 0 && pass == 0) epilogue.receive();
    }
    sync_workers();
    epilogue.prepare();
    if (warp < n) epilogue.put(pass + warp, sums.total(warp));
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_MATMUL_H */
