/* Linear for many rows: y = x w^T at the speed of the tensor cores. CPU twin: linear.h.
 *
 *   x  [m][n_in] half
 *   w  [n_out][n_in] half, or [2][n_out][n_in] for kStreamSilu: gate rows, then up rows
 *   y  [m][n_out], what becomes of the product: kStreamAdd or kStreamSilu of linear_stream.h (E20)
 *
 * A pair of blocks, a cluster, has a tile: 256 rows of w, for kStreamSilu 8 gate rows and their 8 up rows in turn, and
 * up to 256 rows of x. Each block multiplies 128 of the rows of w with all of x, of which it brings half to both.
 * The weights are the 64-row operand of the warpgroups' instructions, so that a tile may have any multiple of 16 rows
 * of x: as many as make the tiles fill the multiprocessors (gpu_backend/ops/tiled_cut.py).
 *
 * In a block one warp copies w and one x into a ring of stages, 64 of k, and two warpgroups multiply 64 rows of w each.
 *
 * E20. Sums are added up over k in order, within one block. An output depends on its row of x and the weights alone,
 * not on how the matmul is divided. Each element of the residual is added to once.
 * E21. The two blocks of a pair bring each other half of x. A block writes to a stage of both when the warpgroups of
 * both have read it, and ends when the other has done so too: until then the other's copies and arrivals may still
 * come.
 */
#ifndef BLINK_OPS_LINEAR_TILED_H
#define BLINK_OPS_LINEAR_TILED_H

#include "ring_turn.h"
#include "tiled_end.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kTiledThreads = 3 * kWarpgroup;
constexpr uint32_t kTiledRows = 128; /* of w, of a block */
constexpr uint32_t kTiledPanel = 64; /* of k: a swizzled row */
constexpr uint32_t kTiledWBytes = kTiledRows * kSwizzleBytes;
constexpr uint32_t kTiledRingBytes = 196608;
constexpr uint32_t kTiledMaxSlots = 6;
constexpr uint32_t kTiledLoaderRegisters = 40, kTiledProductRegisters = 232; /* of a thread: 168 on average */

/* How a product is cut up: made on the host (gpu_backend/ops/tiled_cut.py). */
struct TiledCut {
  uint32_t m, n_in;
  uint32_t columns;          /* rows of x of a tile: a multiple of 16, 128 to kTiledColumns */
  uint32_t w_tiles, x_tiles; /* tiles along w and along x */
  uint32_t band;             /* tiles along x that follow each other before the next along w */
};

struct TiledShared {
  unsigned char ring[kTiledRingBytes];
  unsigned char turned[2][kTiledTurnBytes];
  uint64_t full[kTiledMaxSlots], empty[kTiledMaxSlots];
};
constexpr uint32_t kTiledSharedBytes = 229472;
static_assert(sizeof(TiledShared) == kTiledSharedBytes, "the engine launches with so much");

/* A stage of the ring: w's rows, then x's. */
struct TiledPlace : RingTurn {
  uint32_t n_slots;

  __device__ __forceinline__ explicit TiledPlace(const TiledCut& cut)
      : n_slots(min(kTiledMaxSlots, kTiledRingBytes / stage_bytes(cut))) {}
  __device__ __forceinline__ static uint32_t stage_bytes(const TiledCut& cut) {
    return kTiledWBytes + cut.columns * kSwizzleBytes;
  }
  __device__ __forceinline__ void advance() { next(n_slots); }
};

/* Where a tile begins: neighbours in order share their rows of w, or, a band of x later, those of x. */
struct TiledTile {
  uint32_t w, x; /* tile along w, row of x */

  __device__ __forceinline__ TiledTile(const TiledCut& cut, uint32_t tile) {
    const uint32_t first = tile / (cut.band * cut.w_tiles) * cut.band, width = min(cut.band, cut.x_tiles - first);
    const uint32_t rest = tile - first * cut.w_tiles;
    w = rest / width;
    x = (first + rest % width) * cut.columns;
  }
};

/* Fills the ring with this block's rows of w, by one thread, which waits for nothing but room. */
template <int Output>
__device__ __forceinline__ void copy_tiled_w(TiledShared& shared, const BoxMap& map, const TiledCut& cut) {
  TiledPlace place(cut);
  const uint32_t stage_bytes = TiledPlace::stage_bytes(cut);
  const uint64_t policy = cut.band < cut.x_tiles ? evict_normal() : evict_first(); /* whether it is read again */
  for (uint32_t tile = blockIdx.x / 2; tile < cut.w_tiles * cut.x_tiles; tile += gridDim.x / 2) {
    const uint32_t row = (2 * TiledTile(cut, tile).w + cluster_rank()) * kTiledRows;
    for (uint32_t k = 0; k < cut.n_in; k += kTiledPanel, place.advance()) {
      uint64_t* const full = shared.full + place.slot;
      barrier_wait(shared.empty + place.slot, place.parity ^ 1);
      barrier_expect(full, kTiledWBytes);
      copy_box(shared.ring + place.slot * stage_bytes, map, k, Output == kStreamSilu ? 0 : row, 0,
               Output == kStreamSilu ? row / 16 : 0, full, policy);
    }
  }
}

/* The same with this block's half of the rows of x, to both blocks, after the predecessor's end. */
__device__ __forceinline__ void copy_tiled_x(TiledShared& shared, const BoxMap& map, const TiledCut& cut) {
  TiledPlace place(cut);
  const uint32_t stage_bytes = TiledPlace::stage_bytes(cut), half = cluster_rank() * (cut.columns / 2);
  for (uint32_t tile = blockIdx.x / 2; tile < cut.w_tiles * cut.x_tiles; tile += gridDim.x / 2) {
    const uint32_t row = TiledTile(cut, tile).x + half;
    for (uint32_t k = 0; k < cut.n_in; k += kTiledPanel, place.advance()) {
      uint64_t* const full = shared.full + place.slot;
      barrier_wait(shared.empty + place.slot, place.parity ^ 1);
      barrier_expect(full, cut.columns * kSwizzleBytes);
      copy_box_to_pair(shared.ring + place.slot * stage_bytes + kTiledWBytes + half * kSwizzleBytes, map, k, row, 0, 0,
                       full);
    }
  }
}

/* A multiplying warpgroup, `group` 0 or 1. */
template <typename Half, int Output>
struct TiledMultiplier {
  using End = TiledEnd<Half, Output>;
  TiledShared& shared;
  const TiledCut& cut;
  uint32_t group;

  /* Room for the next stage, in this block and in the other, whose x comes from both (E21). */
  __device__ __forceinline__ void release(uint32_t slot) const {
    const uint32_t thread = threadIdx.x % kWarpgroup;
    if (thread % 32 == 0 && thread < 64) barrier_arrive_at(shared.empty + slot, thread / 32);
  }

  /* Sums of a tile over k, of Columns rows of x. */
  template <int Columns>
  __device__ __forceinline__ void multiply(TiledPlace& place, typename End::Sums& all) const {
    auto& sums = reinterpret_cast<float (&)[Columns / 2]>(all);
    const uint64_t w0 = matrix_descriptor(shared.ring + group * 64 * kSwizzleBytes, kGroupBytes, kNoColumns),
                   x0 = matrix_descriptor(shared.ring + kTiledWBytes, kGroupBytes, kNoColumns);
    constexpr uint32_t kStage = kTiledWBytes + Columns * kSwizzleBytes;
    uint32_t used = 0;
    for (uint32_t k = 0; k < cut.n_in; k += kTiledPanel, place.advance()) {
      barrier_wait(shared.full + place.slot, place.parity);
      const uint64_t w = advance(w0, place.slot * kStage), x = advance(x0, place.slot * kStage);
      products_begin();
#pragma unroll
      for (uint32_t part = 0; part < kTiledPanel / kProductK; ++part)
        product(sums, advance(w, 2 * kProductK * part), advance(x, 2 * kProductK * part), k + part != 0, Half());
      products_commit();
      products_wait<1>();
      if (k) release(used);
      used = place.slot;
    }
    products_wait<0>();
    release(used);
    settle(sums);
  }

  __device__ __forceinline__ void run(const End& end) const {
    TiledPlace place(cut);
    for (uint32_t tile = blockIdx.x / 2; tile < cut.w_tiles * cut.x_tiles; tile += gridDim.x / 2) {
      const TiledTile at(cut, tile);
      typename End::Sums sums;
      if (cut.columns == 256) multiply<256>(place, sums);
      if (cut.columns == 240) multiply<240>(place, sums);
      if (cut.columns == 224) multiply<224>(place, sums);
      if (cut.columns == 208) multiply<208>(place, sums);
      if (cut.columns == 192) multiply<192>(place, sums);
      if (cut.columns == 176) multiply<176>(place, sums);
      if (cut.columns == 160) multiply<160>(place, sums);
      if (cut.columns == 144) multiply<144>(place, sums);
      if (cut.columns == 128) multiply<128>(place, sums);
      end.store(sums, ((2 * at.w + cluster_rank()) * 2 + group) * End::kOutputs, at.x, cut.columns, cut.m);
    }
    end.finish();
  }
};

/* grid (2 * pairs), clusters of 2, block (kTiledThreads), kTiledSharedBytes of shared memory; n_in and n_out multiples
 * of 8. The maps have swizzled boxes of kTiledPanel columns: w_map kTiledRows rows, of kStreamSilu 8 gate and 8 up rows
 * in turn, x_map cut.columns / 2 rows; y_map is TiledEnd's. */
template <typename Half, int Output>
__global__ void __launch_bounds__(kTiledThreads, 1)
    linear_tiled_kernel(const __grid_constant__ BoxMap w_map, const __grid_constant__ BoxMap x_map,
                        const __grid_constant__ BoxMap y_map, const __grid_constant__ TiledCut cut) {
  TiledShared& shared = *reinterpret_cast<TiledShared*>(dynamic_shared());
  allow_successor();
  if (threadIdx.x == 0) {
    prefetch_map(w_map);
    for (uint32_t s = 0; s < kTiledMaxSlots; ++s) {
      barrier_init_count(shared.full + s, 2);
      barrier_init_count(shared.empty + s, 2 * 2);
    }
    barrier_init_done();
  }
  __syncthreads();
  cluster_arrive(); /* before either block's copies and arrivals reach the other */
  cluster_wait();
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kTiledLoaderRegisters>();
    if (threadIdx.x == 0) copy_tiled_w<Output>(shared, w_map, cut);
    if (threadIdx.x == 32) {
      prefetch_map(x_map);
      wait_for_predecessor();
      copy_tiled_x(shared, x_map, cut);
    }
    __syncwarp();
    if (threadIdx.x >= 32) wait_for_predecessor();
  } else {
    take_registers<kTiledProductRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    wait_for_predecessor();
    TiledMultiplier<Half, Output>{shared, cut, group}.run(TiledEnd<Half, Output>{shared.turned[group], y_map, group});
  }
  cluster_arrive(); /* E21 */
  cluster_wait();
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_LINEAR_TILED_H */
