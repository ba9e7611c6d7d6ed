/* Grouped GEMM of experts whose weights are codes of four bits (primitives/codes.h), with many pairs each: the kernel
 * of grouped_gemm_sm90.h with weights that each multiplying warpgroup converts to halves in registers, from where the
 * tensor cores take their 64-row operand, while they multiply those before. Units have up to 128 pairs, so that the
 * sums leave registers for the operands. Arguments are those of grouped_gemm_sm90.h, and where the scales lie.
 *
 * A stage is 128 of k: the tile's codes by one bulk copy, and two panels of the unit's rows of x. Scales come in
 * windows: 16 bytes of each row of the tile, which are of 128 columns or more, have a place of their own beside the
 * stages, since what one stage needs of a row would be a few bytes at any address. A row's scales may begin anywhere,
 * so a window is copied from the 8 bytes on in which it begins. Neighbouring threads copy neighbouring bytes, and
 * nothing waits for them but the stage with which they come.
 */
#ifndef BLINK_OPS_MOE_GROUPED_CODES_GEMM_SM90_H
#define BLINK_OPS_MOE_GROUPED_CODES_GEMM_SM90_H

#include "kernels/ops/gemm/skinny_codes_sm90.h"
#include "grouped_gemm_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kGroupedCodesUnit = 128; /* pairs of a unit */
constexpr uint32_t kGroupedCodesK = 128;    /* of a stage */
constexpr uint32_t kGroupedCodesStages = 4;
constexpr uint32_t kGroupedCodesRow = kGroupedCodesK / 2; /* bytes of codes, on which the swizzle works */
constexpr uint32_t kGroupedCodesPanels = kGroupedCodesK / kGroupedK;
static_assert(kGroupedK == kSkinnyCodeTurn, "a turn has a panel of x");

/* A row's scales of a window: up to 16 bytes, which begin in the first 8. */
constexpr uint32_t kWindowBytes = 16, kWindowPiece = 8, kWindowPieces = 3;

struct GroupedCodesStage {
  unsigned char w[kGroupedWeights * kGroupedCodesRow], x[kGroupedCodesPanels][kGroupedCodesUnit * kSwizzleBytes];
};
struct GroupedCodesWindow {
  unsigned char rows[kGroupedWeights][kWindowPieces * kWindowPiece];
};
/* There are as many windows as stages: a window's first stage is filled when the stage that lies kGroupedCodesStages
 * before it is empty, and thereby every stage of the window whose place it takes. */
struct GroupedCodesPipeline {
  GroupedCodesStage stages[kGroupedCodesStages];
  GroupedCodesWindow windows[kGroupedCodesStages];
  unsigned char turned[2 * kWarpgroup / 32][512]; /* a warp's results on their way out */
  uint64_t full[kGroupedCodesStages], empty[kGroupedCodesStages];
};
constexpr uint32_t kGroupedCodesSharedBytes = 225344;
static_assert(sizeof(GroupedCodesPipeline) == kGroupedCodesSharedBytes, "the engine launches with so much");

/* Where the scales of a matrix lie, by bytes. */
template <ScaleForm Form>
struct GroupedScales {
  static constexpr uint32_t kUnitBytes = Form == kFp4By32 ? 1 : 4;
  const uint8_t* first;
  uint32_t row_bytes, shift;

  __device__ __forceinline__ GroupedScales(const CodeMatrix& w, uint32_t n_in)
      : first(static_cast<const uint8_t*>(w.scales)), row_bytes((n_in >> w.shift) * kUnitBytes), shift(w.shift) {}
  /* Where the unit of column k lies in its row. */
  __device__ __forceinline__ uint32_t byte(uint32_t k) const { return (k >> shift) * kUnitBytes; }
  /* Whether a stage from column k on is the first of a window. */
  __device__ __forceinline__ bool begins_window(uint32_t k) const {
    return (k & ((kWindowBytes / kUnitBytes << shift) - 1)) == 0;
  }
  /* How far a row's scales lie behind a multiple of kWindowPiece, as those of all rows 8 before or behind do. */
  __device__ __forceinline__ uint32_t offset(uint32_t row) const { return row % 8 * row_bytes % kWindowPiece; }
};

/* The loading warpgroup. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form>
struct GroupedCodesProducer {
  const void* map;
  GroupedScales<Form> scales;
  uint32_t n_out;
  GroupedRows<Half, Matmul, kGroupedCodesUnit> rows;

  /* The scales of a tile's rows from column k on. Rows behind the last, of which nothing is stored, have another's,
   * which lie as theirs would. */
  __device__ __forceinline__ void copy_window(GroupedCodesWindow& window, uint32_t k, uint32_t expert,
                                              uint32_t tile) const {
    constexpr uint32_t kOutputs = GroupedItems<Matmul>::kOutputs, kLanes = 4;
    static_assert(kWindowPieces <= kLanes, "each has a lane");
    const uint32_t lane = threadIdx.x % kLanes, from = scales.byte(k) + lane * kWindowPiece;
    if (lane == kWindowPieces) return;
#pragma unroll
    for (uint32_t i = 0; i < kGroupedWeights * kLanes / kWarpgroup; ++i) {
      const uint32_t r = threadIdx.x / kLanes + i * (kWarpgroup / kLanes), o = tile + r % kOutputs;
      const uint32_t matrix = Matmul == kGateUp ? 2 * expert + r / kOutputs : expert;
      const uint64_t row = uint64_t(matrix) * n_out + (o < n_out ? o : o % 8);
      const int32_t at = int32_t(from) - int32_t(scales.offset(r)); /* the row's first piece may begin before it */
      const int32_t left = int32_t(scales.row_bytes) - at;
      if (left > 0)
        copy_async_piece(shared_address(window.rows[r] + lane * kWindowPiece),
                         scales.first + int64_t(row * scales.row_bytes) + at, min(uint32_t(left), kWindowPiece));
    }
  }

  __device__ __forceinline__ void run(GroupedCodesPipeline& pipeline, const GroupedItems<Matmul>& items) const {
    PipelineState window;
    fill_stages<kGroupedCodesK, kGroupedCodesStages, 4>(
        pipeline, items, rows, map, [&](GroupedCodesStage& stage, const StagePlace& at, const uint32_t (&from)[2]) {
          if (scales.begins_window(at.k)) {
            copy_window(pipeline.windows[window.index], at.k, at.unit.expert, at.tile);
            window.next(kGroupedCodesStages);
          }
#pragma unroll
          for (uint32_t p = 0; p < kGroupedCodesPanels; ++p)
            if (at.k + p * kGroupedK < rows.n_in) rows.copy(stage.x[p], at.k + p * kGroupedK, at.unit.count, from);
        });
  }
};

/* Where in a stage and a window a thread finds its part of the codes and of their scales: two rows of each 64. */
template <ScaleForm Form>
struct GroupedCodesRows {
  uint32_t row;   /* byte of the codes that the lane passes to ldmatrix, but for its chunk */
  uint32_t chunk; /* the lane's first 16 bytes, where the swizzle has put them */
  uint32_t units; /* byte of the window */

  __device__ __forceinline__ GroupedCodesRows(const GroupedScales<Form>& scales, uint32_t first) {
    const uint32_t lane = threadIdx.x % 32, r = first + threadIdx.x % kWarpgroup / 32 * 16;
    row = (r + lane % 16) * kGroupedCodesRow;
    chunk = (lane / 16 ^ lane / 2 % 4) * 16;
    units = (r + lane / 4) * sizeof(GroupedCodesWindow::rows[0]) + scales.offset(lane / 4);
  }
  /* From `first` rows further on: rows r and r + 8 at a word of 32 columns, then at the next 32. */
  __device__ __forceinline__ void load(uint32_t (&words)[4], const GroupedCodesStage& stage, uint32_t first,
                                       uint32_t turn) const {
    load_matrices<false>(words, stage.w + first * kGroupedCodesRow + row + (chunk ^ turn * (kSkinnyCodeTurn / 2)));
  }
  /* The scales of the same, byte at[c] of the window. */
  __device__ __forceinline__ void load(SkinnyUnits& to, const GroupedCodesWindow& window, uint32_t first,
                                       const uint32_t (&at)[2]) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h)
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const unsigned char* unit = window.rows[first + 8 * h] + units + at[c];
        to.raw[h][c] = Form == kFp4By32 ? *unit : *reinterpret_cast<const uint32_t*>(unit);
      }
  }
};

/* A multiplying warpgroup. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form, bool Biased>
struct GroupedCodesConsumer {
  using Outputs = GroupedOutputs<Half, Matmul, kGroupedCodesUnit, Biased>;
  using Sums = typename Outputs::Sums;
  Outputs outputs;
  GroupedScales<Form> scales;
  uint32_t n_in;

  /* Where a turn's scales lie in the window; columns behind the last, whose codes and x are zero, have the last's. */
  __device__ __forceinline__ void find(uint32_t (&at)[2], uint32_t k) const {
#pragma unroll
    for (uint32_t c = 0; c < 2; ++c) at[c] = scales.byte(min(k + kCodeGroup * c, n_in - kCodeGroup)) % kWindowBytes;
  }

  /* Adds the product of 64 rows and 64 columns of weights with the columns x of the first N pairs. */
  template <int N>
  __device__ __forceinline__ void multiply_turn(float (&sums)[kGroupedCodesUnit / 2], const uint32_t (&a)[4][4],
                                                uint64_t x, bool add) const {
    auto& of_pairs = reinterpret_cast<float (&)[N / 2]>(sums);
    wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step)
      wgmma_along_k(of_pairs, a[step], advance(x, 2 * kWgmmaK * step), add || step != 0, Half());
    wgmma_commit();
  }

  /* Sums of an item over k, of its first `count` pairs or more. What follows the issue of wgmma goes on while they run:
   * codes and scales are loaded one turn ahead, which is one of the two times 64 rows and 64 columns, and become
   * operands in the registers that the wgmma before the last have read. The widths branch around the wgmma alone: of a
   * loop for each width ptxas gives each operands of its own, and then has too few registers to let wgmma overlap. */
  __device__ __forceinline__ void multiply(GroupedCodesPipeline& pipeline, const GroupedCodesRows<Form>& rows,
                                           PipelineState& state, PipelineState& window, Sums& sums,
                                           uint32_t count) const {
    constexpr uint32_t kTurns = 2 * kGroupedCodesPanels;
    /* The stage before, whose x is read until its wgmma have ended; by then every lane of the warp has converted what
     * it has read of the codes and scales. */
    uint64_t* used = nullptr;
    uint32_t place = 0; /* of the window */
    for (uint32_t k = 0; k < n_in; k += kGroupedCodesK, state.next(kGroupedCodesStages)) {
      const GroupedCodesStage& stage = pipeline.stages[state.index];
      if (scales.begins_window(k)) place = window.index, window.next(kGroupedCodesStages);
      uint32_t at[kGroupedCodesPanels][2], words[2][4], a[2][4][4];
      SkinnyUnits units[2];
#pragma unroll
      for (uint32_t p = 0; p < kGroupedCodesPanels; ++p) find(at[p], k + p * kGroupedK);
      barrier_wait(pipeline.full + state.index, state.phase);
      fence_async_proxy(); /* x, which came by generic copies */
      const auto load = [&](uint32_t i) {
        const uint32_t first = i % 2 * Outputs::kSecondRow;
        rows.load(words[i % 2], stage, first, i / 2);
        rows.load(units[i % 2], pipeline.windows[place], first, at[i / 2]);
      };
      load(0);
#pragma unroll
      for (uint32_t i = 0; i < kTurns; ++i) {
        if (i == kTurns / 2 && k + kGroupedK >= n_in) break; /* nothing has copied the last stage's other panel */
        if (i + 1 < kTurns) load(i + 1);
        wgmma_wait<1>();
        if (i == 1 && used && threadIdx.x % 32 == 0) barrier_arrive(used);
        convert_codes<Half, Form>(a[i % 2], words[i % 2], units[i % 2]);
        const uint64_t x = matrix_descriptor(stage.x[i / 2], kGroupBytes, kNoColumns);
        const bool add = k + i / 2 != 0;
        if (count <= 32)
          multiply_turn<32>(sums[i % 2], a[i % 2], x, add);
        else if (count <= 64)
          multiply_turn<64>(sums[i % 2], a[i % 2], x, add);
        else if (count <= 96)
          multiply_turn<96>(sums[i % 2], a[i % 2], x, add);
        else
          multiply_turn<kGroupedCodesUnit>(sums[i % 2], a[i % 2], x, add);
      }
      used = pipeline.empty + state.index;
    }
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(used);
    settle(sums[0]);
    settle(sums[1]);
  }

  __device__ __forceinline__ void run(GroupedCodesPipeline& pipeline, const GroupedItems<Matmul>& items) const {
    const GroupedCodesRows<Form> own(scales, outputs.first_row());
    PipelineState state, window;
    ExpertUnit unit = items.unit(blockIdx.x);
    for (uint32_t at = blockIdx.x; at < items.n_items; at += gridDim.x) {
      const ExpertUnit next = items.unit(at + gridDim.x);
      const uint32_t tile = at % items.n_tiles;
      uint32_t rows[kGroupedCodesUnit / 32];
      outputs.find(unit, rows);
      Sums sums;
      multiply(pipeline, own, state, window, sums, unit.count);
      if constexpr (Biased) outputs.add_bias(sums, unit.expert, unit.count, tile);
      outputs.store(pipeline.turned[threadIdx.x / 32 - 4], sums, rows, unit.count, tile);
      unit = next;
    }
  }
};

/* grid (any), block (kGroupedThreads), kGroupedCodesSharedBytes of shared memory; units of kGroupedCodesUnit pairs;
 * n_in a multiple of kCodeGroup and of a unit of w's scales, n_out of 8, the scales aligned to kWindowPiece. The map is
 * that of moe_grouped_gemm_kernel, of four codes as words of 16 bits, in swizzled boxes of kGroupedCodesK columns. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form, bool Biased = false>
__global__ void __launch_bounds__(kGroupedThreads, 1)
    moe_grouped_codes_gemm_kernel(const ExpertUnit* plan, const uint32_t* pairs, const __grid_constant__ TensorMap map,
                                  CodeMatrix w, const Half* x, Half* out, uint32_t n_in, uint32_t n_out,
                                  uint32_t per_token, const Half* bias) {
  static_assert(!Biased || Matmul == kGateUp, "no such kernel");
  GroupedCodesPipeline& pipeline = *reinterpret_cast<GroupedCodesPipeline*>(dynamic_shared());
  begin_grouped<kGroupedCodesStages>(pipeline);
  const GroupedItems<Matmul> items(plan, n_out);
  const GroupedScales<Form> scales(w, n_in);
  if (threadIdx.x < kWarpgroup) {
    keep_registers<kGroupedProducerRegisters>();
    GroupedCodesProducer<Half, Matmul, Form>{&map, scales, n_out, {pairs, x, n_in, per_token}}.run(pipeline, items);
  } else {
    take_registers<kGroupedConsumerRegisters>();
    const uint32_t group = threadIdx.x / kWarpgroup - 1;
    GroupedCodesConsumer<Half, Matmul, Form, Biased>{{group, n_out, pairs, out, bias}, scales, n_in}.run(pipeline,
                                                                                                         items);
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_GROUPED_CODES_GEMM_SM90_H */
