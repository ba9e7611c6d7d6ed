/* How the product of linear_wide.h is cut up, and the rings in shared memory through which its operands come.
 */
#ifndef BLINK_OPS_WIDE_RING_H
#define BLINK_OPS_WIDE_RING_H

#include "common.h"
#include "ring_turn.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kWideThreads = 192; /* a warpgroup that multiplies, and two warps that copy */
constexpr uint32_t kWideMembers = 128;
constexpr uint32_t kWidePanel = 64; /* columns: 128 bytes */
constexpr uint32_t kWideRowBytes = 2 * kWidePanel;
constexpr uint32_t kWideAtom = 8 * kWideRowBytes; /* rows that a swizzle covers */
constexpr uint32_t kWideMaxSlots = 32;
constexpr uint32_t kWideMaxSplits = 8;
constexpr uint32_t kWideMaxColumns = 32;
/* Where the rings start, behind barriers, scales and squares: panels are aligned to 1024 bytes. */
constexpr uint32_t kWideRingStart = 6144;

/* How a product is cut up: made on the host (gpu_backend/cuda/wide.py). */
struct WideCut {
  uint32_t m, n_in, n_out; /* n_out outputs of a row */
  uint32_t tile_rows;      /* of w, a multiple of 8, for kStreamSilu of 16 */
  uint32_t n_tiles;
  uint32_t panels;           /* of a stage */
  uint32_t w_slots, x_slots; /* stages that the rings hold */
  uint32_t splits;           /* of k: blocks of a cluster. More than 1: a cluster has one tile */
};

/* A block's part: tiles first, first + step, ..., and stages of k. */
struct WidePart {
  uint32_t tile, step, n_tiles, rank, first_stage, n_stages;

  __device__ __forceinline__ WidePart(const WideCut& cut) : tile(blockIdx.y), step(gridDim.y), rank(blockIdx.x) {
    const uint32_t stage_k = cut.panels * kWidePanel, all = (cut.n_in + stage_k - 1) / stage_k;
    n_tiles = tile < cut.n_tiles ? (cut.n_tiles - tile + step - 1) / step : 0;
    first_stage = all * rank / cut.splits;
    n_stages = all * (rank + 1) / cut.splits - first_stage;
  }
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
  __device__ __forceinline__ void init() const {
#pragma unroll 1
    for (uint32_t s = 0; s < n_slots; ++s) barrier_init(full + s), barrier_init_count(empty + s, kWideMembers / 32);
  }
};

/* Fills a ring with all that the block needs, by one thread: of w (`tile_rows` rows for each tile) it waits for nothing
 * but room, of x (0) its caller has waited for the predecessor. */
__device__ __forceinline__ void copy_stages(const WideRing& ring, const BoxMap& map, const WidePart& part,
                                            uint32_t panels, uint32_t tile_rows, bool gate_up, uint64_t policy) {
  RingTurn turn;
  uint32_t filled = 0;
#pragma unroll 1
  for (uint32_t t = 0; t < part.n_tiles; ++t) {
    const uint32_t row = (part.tile + t * part.step) * tile_rows;
    const uint32_t first = gate_up ? 0 : row, group = gate_up ? row / 16 : 0;
#pragma unroll 1
    for (uint32_t stage = 0; stage < part.n_stages; ++stage, turn.next(ring.n_slots)) {
      if (++filled > ring.n_slots) barrier_wait(ring.empty + turn.slot, turn.parity ^ 1);
      barrier_expect(ring.full + turn.slot, ring.stage_bytes);
#pragma unroll 1
      for (uint32_t p = 0; p < panels; ++p)
        copy_box(ring.panel(turn.slot, p), map, ((part.first_stage + stage) * panels + p) * kWidePanel, first, 0, group,
                 ring.full + turn.slot, policy);
    }
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_WIDE_RING_H */
