/* How the product of linear_wide.h is cut up, and the rings in shared memory through which its operands come.
 */
#ifndef BLINK_OPS_WIDE_RING_H
#define BLINK_OPS_WIDE_RING_H

#include "common.h"
#include "ring_turn.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kWideCopiers = 64; /* two warps that copy */
/* Those that multiply, of an instance: of many rows of x two warpgroups with half of them each, since a tile's end is
 * long for one. Where a cluster splits k, its blocks share the end, and one is faster. */
template <int Columns, int Splits>
constexpr uint32_t kWideMembers = Columns > 32 && Splits == 1 ? 2 * kWarpgroup : kWarpgroup;
/* Of a block. */
template <int Columns, int Splits>
constexpr uint32_t kWideThreads = kWideMembers<Columns, Splits> + kWideCopiers;
constexpr uint32_t kWidePanel = 64; /* columns: 128 bytes */
constexpr uint32_t kWideRowBytes = 2 * kWidePanel;
constexpr uint32_t kWideAtom = 8 * kWideRowBytes; /* rows that a swizzle covers */
constexpr uint32_t kWideMaxSlots = 32;
constexpr uint32_t kWideMaxColumns = 64;
/* Where what has no fixed size starts, behind barriers, scales and squares: panels are aligned to 1024 bytes. */
constexpr uint32_t kWideRingStart = 4096;

/* Of a thread among those that multiply: its warpgroup, and its place there. */
template <uint32_t Members>
__device__ __forceinline__ uint32_t wide_group() {
  return Members == kWarpgroup ? 0 : threadIdx.x / kWarpgroup;
}
template <uint32_t Members>
__device__ __forceinline__ uint32_t wide_place() {
  return Members == kWarpgroup ? threadIdx.x : threadIdx.x % kWarpgroup;
}

/* How a product is cut up: made on the host (gpu_backend/ops/skinny_cut.py). */
struct WideCut {
  uint32_t m, n_in, n_out; /* n_out outputs of a row */
  uint32_t tile_rows;      /* of w, a multiple of 8, for kStreamSilu of 16 */
  uint32_t n_tiles;
  uint32_t panels;           /* of a stage */
  uint32_t w_slots, x_slots; /* stages that the rings hold */
  uint32_t share;            /* stages of k, a block. What lies behind the end of k is zero */
};

/* A ring of stages in shared memory: panels of the tile's rows of w, or of the rows of x. */
struct WideRing {
  char* data;
  uint64_t *full, *empty;
  uint32_t n_slots, panel_bytes, stage_bytes;

  __device__ __forceinline__ WideRing(char* at, uint64_t* barriers, uint32_t slots, uint32_t rows, uint32_t panels)
      : data(at),
        full(barriers),
        empty(barriers + slots),
        n_slots(slots),
        panel_bytes(rows * kWideRowBytes),
        stage_bytes(panels * panel_bytes) {}
  __device__ __forceinline__ char* panel(uint32_t slot, uint32_t p) const {
    return data + slot * stage_bytes + p * panel_bytes;
  }
  /* By a warp, before the barriers are used: a warp of `users` gives back its part of a slot. */
  __device__ __forceinline__ void init(uint32_t users) const {
    const uint32_t s = threadIdx.x % 32;
    if (s < n_slots) barrier_init(full + s), barrier_init_count(empty + s, users);
    barrier_init_done();
    __syncwarp();
  }
};

/* Fills a ring with all that the block needs, by one thread: of w for each tile its `tile_rows` rows, of x (0) all. */
__device__ __forceinline__ void copy_stages(const WideRing& ring, const BoxMap& map, const WideCut& cut,
                                            uint32_t tile_rows, bool gate_up, uint64_t policy) {
  RingTurn turn; /* before the first phase of a barrier, that of parity 1 is complete */
#pragma unroll 1
  for (uint32_t tile = blockIdx.y; tile < cut.n_tiles; tile += gridDim.y) {
    const uint32_t row = tile * tile_rows, first = gate_up ? 0 : row, group = gate_up ? row / 16 : 0;
    uint32_t k = blockIdx.x * cut.share * cut.panels * kWidePanel;
#pragma unroll 1
    for (uint32_t stage = 0; stage < cut.share; ++stage, turn.next(ring.n_slots)) {
      barrier_wait(ring.empty + turn.slot, turn.parity ^ 1);
      barrier_expect(ring.full + turn.slot, ring.stage_bytes);
#pragma unroll 1
      for (uint32_t p = 0; p < cut.panels; ++p, k += kWidePanel)
        copy_box(ring.panel(turn.slot, p), map, k, first, 0, group, ring.full + turn.slot, policy);
    }
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_WIDE_RING_H */
