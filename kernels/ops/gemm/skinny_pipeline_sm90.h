/* How skinny_gemm_sm90.h is tiled, and the pipelines in shared memory through which its operands come.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_PIPELINE_SM90_H
#define BLINK_OPS_GEMM_SKINNY_PIPELINE_SM90_H

#include "kernels/primitives/fp8.h"
#include "kernels/primitives/pipeline_state.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSkinnyProducers = 64; /* two warps that copy */
/* Beside four warpgroups that convert, two idle warps make these a warpgroup: only a whole one can give the others
 * registers. Without, a thread may have 96, too few for 64 rows of x. */
constexpr uint32_t kSkinnyConsumerRegisters = 112, kSkinnyProducerRegisters = 32;
/* Codes take long to convert, and a warp spends most of that time waiting for its own last instruction. So several
 * warpgroups convert them, whose warps hide each other's waits. Not so in clusters of more than two blocks, whose
 * multiprocessors have to have room for two (gpu_backend/ops/gpu.py). */
template <int Splits, ScaleForm Form>
constexpr bool kSkinnySeveralConvert = kIsCodes<Form> && Splits <= 2;
/* Warpgroups that convert weights of a tile, each those of its rows. Of fp8 a tile of more than 64 rows has two, since
 * one alone leaves its multiprocessor idle at every wait. Where a cluster splits k, its blocks share the end, and one
 * is faster, by 10 to 20 %. */
template <int Tiles, int Splits, ScaleForm Form>
constexpr uint32_t kSkinnyRowGroups = kSkinnySeveralConvert<Splits, Form>             ? (Tiles > 2 ? 4 : Tiles)
                                      : Form != kUnscaled && Tiles > 1 && Splits == 1 ? 2
                                                                                      : 1;
/* Of a tile too low for four, two share the columns of the same rows, and add up what they have at its end. Measured on
 * an H200: four for 64 rows take 8 to 24 % longer than two, since each has a turn of a panel, and waits for all of it.
 */
template <int Tiles, int Splits, ScaleForm Form>
constexpr uint32_t kSkinnyTurnGroups = kSkinnySeveralConvert<Splits, Form> && Tiles <= 2 ? 2 : 1;
constexpr uint32_t kSkinnyTurnFragments = 2; /* of each 64 rows, which they add up at a time */
/* Warpgroups that multiply: of many rows of x at least two, since a tile's end is long for one. */
template <int Columns, int Tiles, int Splits, ScaleForm Form>
constexpr uint32_t kSkinnyGroups = Columns > 32 && Splits == 1 && !kSkinnySeveralConvert<Splits, Form>
                                       ? 2
                                       : kSkinnyRowGroups<Tiles, Splits, Form> * kSkinnyTurnGroups<Tiles, Splits, Form>;
/* Blocks for which a multiprocessor has registers. Several warpgroups that convert need more than half of them; two
 * blocks fit its shared memory only where k is split (gpu_backend/ops/gpu.py). */
template <int Columns, int Tiles, int Splits, ScaleForm Form>
constexpr uint32_t kSkinnyBlocks = Form != kUnscaled && kSkinnyGroups<Columns, Tiles, Splits, Form> > 1 ? 1 : 2;

/* How the warpgroups share a tile. Those that convert weights have rows of w, 64 at a time in turn, so that each weight
 * is converted once, or columns of a panel, or both; others have rows of x. */
template <int Columns, int Tiles, int Splits, ScaleForm Form>
struct SkinnySplit {
  static constexpr uint32_t kGroups = kSkinnyGroups<Columns, Tiles, Splits, Form>;
  static constexpr uint32_t kConsumers = kGroups * kWarpgroup;
  static constexpr bool kGivesRegisters = kGroups == 4;
  static constexpr uint32_t kWorkers = kConsumers + kSkinnyProducers; /* threads that are not idle */
  static constexpr uint32_t kThreads = kGivesRegisters ? kConsumers + kWarpgroup : kWorkers;
  static constexpr uint32_t kRowGroups = kSkinnyRowGroups<Tiles, Splits, Form>;
  static constexpr uint32_t kTurnGroups = kSkinnyTurnGroups<Tiles, Splits, Form>; /* along k */
  static constexpr uint32_t kColumnGroups = kGroups / (kRowGroups * kTurnGroups);
  static constexpr uint32_t kEnders = Splits == 1 ? kConsumers : kWarpgroup; /* threads that end a tile */
  static constexpr uint32_t kTiles = (Tiles + kRowGroups - 1) / kRowGroups;  /* of 64 rows, a warpgroup's */
  static constexpr uint32_t kSums = Columns / 2 / kColumnGroups;             /* of a thread, of 64 rows */
  static constexpr uint32_t kFragments = Tiles * Columns / 8;

  /* Which 64 rows of the tile the thread's warpgroup has as its t-th. Where there are none left, those that another has
   * as well: then they are not `wanted` from it. */
  static __device__ __forceinline__ uint32_t rows(uint32_t t) { return min(t * kRowGroups + row_group(), Tiles - 1u); }
  static __device__ __forceinline__ bool wanted(uint32_t t) { return t * kRowGroups + row_group() < uint32_t(Tiles); }
  static __device__ __forceinline__ uint32_t column_group() { return kColumnGroups == 1 ? 0 : group(); }
  static __device__ __forceinline__ uint32_t turn_group() { return kTurnGroups == 1 ? 0 : group() / kRowGroups; }
  static __device__ __forceinline__ bool ends() { return kEnders == kConsumers || threadIdx.x < kEnders; }
  static __device__ __forceinline__ uint32_t group() { return threadIdx.x / kWarpgroup; }

 private:
  static __device__ __forceinline__ uint32_t row_group() { return kRowGroups == 1 ? 0 : group() % kRowGroups; }
};
constexpr uint32_t kSkinnyPanel = 64; /* columns of halves, words of 16 bits: 128 bytes */
/* Panels of x for a panel of weights: one of fp8 has twice as many columns, one of codes four times. */
template <ScaleForm Form>
constexpr uint32_t kSkinnyXPanels = Form == kUnscaled ? 1
                                    : kIsFp8<Form>    ? 2
                                                      : 4;
constexpr uint32_t kSkinnyRowBytes = 2 * kSkinnyPanel;
constexpr uint32_t kSkinnyAtom = 8 * kSkinnyRowBytes; /* rows that a swizzle covers */
constexpr uint32_t kSkinnyMaxStages = 32;
constexpr uint32_t kSkinnyMaxColumns = 64;
/* Where what has no fixed size starts, behind barriers, scales and squares: panels are aligned to 1024 bytes. */
constexpr uint32_t kSkinnyPipelineStart = 4096;

/* Of a thread among those that multiply: its place in its warpgroup. */
template <uint32_t Consumers>
__device__ __forceinline__ uint32_t consumer_thread() {
  return Consumers == kWarpgroup ? threadIdx.x : threadIdx.x % kWarpgroup;
}

/* The tiling of a matmul: made on the host (gpu_backend/ops/skinny_cut.py). */
struct SkinnyParams {
  uint32_t m, n_in, n_out; /* n_out outputs of a row */
  uint32_t tile_rows;      /* of w, a multiple of 8, for kEpilogueSilu of 16 */
  uint32_t n_tiles;
  uint32_t panels;             /* of w in a stage */
  uint32_t w_stages, x_stages; /* stages that the pipelines hold */
  uint32_t share;              /* stages of k, a block. What lies behind the end of k is zero */
};

/* A pipeline of stages in shared memory: panels of the tile's rows of w, or of the rows of x. */
struct SkinnyPipeline {
  char* data;
  uint64_t *full, *empty;
  uint32_t n_stages, panel_bytes, stage_bytes;

  __device__ __forceinline__ SkinnyPipeline(char* at, uint64_t* barriers, uint32_t stages, uint32_t rows,
                                            uint32_t panels)
      : data(at),
        full(barriers),
        empty(barriers + stages),
        n_stages(stages),
        panel_bytes(rows * kSkinnyRowBytes),
        stage_bytes(panels * panel_bytes) {}
  __device__ __forceinline__ char* panel(uint32_t stage, uint32_t p) const {
    return data + stage * stage_bytes + p * panel_bytes;
  }
  /* By a warp, before the barriers are used: a warp of `users` gives back its part of a stage. */
  __device__ __forceinline__ void init(uint32_t users) const {
    const uint32_t s = threadIdx.x % 32;
    if (s < n_stages) barrier_init(full + s), barrier_init_count(empty + s, users);
    barrier_init_done();
    __syncwarp();
  }
};

/* Fills a pipeline with all that the block needs, by one thread: of w for each tile its `tile_rows` rows, of x (0) all,
 * in stages of `panels`. */
__device__ __forceinline__ void copy_stages(const SkinnyPipeline& pipeline, const BoxMap& map,
                                            const SkinnyParams& params, uint32_t panels, uint32_t tile_rows,
                                            bool gate_up, uint64_t policy) {
  PipelineState state; /* before the first phase of a barrier, that of parity 1 is complete */
#pragma unroll 1
  for (uint32_t tile = blockIdx.y; tile < params.n_tiles; tile += gridDim.y) {
    const uint32_t row = tile * tile_rows, first = gate_up ? 0 : row, group = gate_up ? row / 16 : 0;
    uint32_t k = blockIdx.x * params.share * panels * kSkinnyPanel; /* words of a row */
#pragma unroll 1
    for (uint32_t stage = 0; stage < params.share; ++stage, state.next(pipeline.n_stages)) {
      barrier_wait(pipeline.empty + state.index, state.phase ^ 1);
      barrier_expect(pipeline.full + state.index, pipeline.stage_bytes);
#pragma unroll 1
      for (uint32_t p = 0; p < panels; ++p, k += kSkinnyPanel)
        copy_box(pipeline.panel(state.index, p), map, k, first, 0, group, pipeline.full + state.index, policy);
    }
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SKINNY_PIPELINE_SM90_H */
