/* How skinny_gemm_sm90.h multiplies weights in codes of four bits: converted to halves in registers, with their scales,
 * while those of the step before are multiplied. A panel of weights has four panels of x.
 *
 * A plain load of a scale would be waited for at its first use, 300 to 1,000 cycles, in every turn. So each warp copies
 * those of its rows to shared memory, a panel or more ahead, across stages and tiles, and waits once a panel.
 */
#ifndef BLINK_OPS_GEMM_SKINNY_CODES_SM90_H
#define BLINK_OPS_GEMM_SKINNY_CODES_SM90_H

#include "kernels/primitives/codes.h"
#include "skinny_fp8_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSkinnyCodePanel = 2 * kSkinnyRowBytes; /* columns */
constexpr uint32_t kSkinnyCodeTurn = 64;                   /* columns that are converted together: 32 bytes */
static_assert(2 * kSkinnyFp8Turn == kSkinnyCodeTurn && kSkinnyPanel == kSkinnyCodeTurn, "a turn has a panel of x");

constexpr uint32_t kSkinnyCodeTurns = kSkinnyCodePanel / kSkinnyCodeTurn;
constexpr uint32_t kSkinnyTurnScales = 32; /* words of scales that a warp needs in a turn: four for each two rows */
/* Shared memory for the scales of a panel's 64 rows. */
constexpr uint32_t kSkinnyScaleBytes = kSkinnyCodeTurns * kSkinnyTurnScales * sizeof(uint32_t) * 4;

/* The units of scales of a thread's two rows of 64 rows, at a turn's two groups of 32 columns: [row][group], as they
 * lie in memory. */
struct SkinnyUnits {
  uint32_t raw[2][2];
};

/* The scales of what a warp converts, in shared memory: of the panel that it multiplies, and of one or more
 * that follow. Matrices of other forms have none.
 *
 * Four lanes have the same rows r and r + 8, and need four units in a turn: of both rows, at both groups of 32 columns,
 * which a lane reads with one load. They are copied row by row: neighbouring lanes copy a row's units of all turns,
 * which lie in one sector of memory or two. By turns, each lane its own, the same sectors would be read in each turn,
 * and L1 would be busier with scales than with anything else. Of kFp4By32, whose units are bytes, a lane copies the
 * aligned word that has the unit in it. The last word may reach up to 3 bytes beyond the matrix, but not beyond what
 * the driver maps: an allocation begins at a multiple of 256 bytes (gpu_backend/cuda/memory.py), and words are aligned.
 */
template <ScaleForm Form, typename Split, int Output, bool Codes = kIsCodes<Form>>
struct SkinnyScales {
  static constexpr uint32_t kBytes = 0;

  template <typename Factors>
  __device__ __forceinline__ SkinnyScales(const SkinnyWeightRows<Output>&, const Factors&, char*) {}
  __device__ __forceinline__ void start() {}
};

template <ScaleForm Form, typename Split, int Output>
struct SkinnyScales<Form, Split, Output, true> {
  static constexpr uint32_t kTurns = kSkinnyCodeTurns / Split::kTurnGroups, kAll = Split::kTiles * kTurns;
  static constexpr uint32_t kWords = kAll * kSkinnyTurnScales;        /* of a panel */
  static constexpr uint32_t kPanels = Split::kTurnGroups > 1 ? 4 : 2; /* that there is room for */
  static constexpr uint32_t kBytes = Split::kRowGroups * Split::kTiles * kPanels * kSkinnyScaleBytes;
  static constexpr bool kInBytes = Form == kFp4By32;
  static constexpr uint32_t kRowLanes = 2 * kTurns; /* that copy the units of a row */
  static constexpr uint32_t kRows = 32 / kRowLanes; /* of which a warp copies units at once */
  static_assert(kRows <= 8, "they lie within 8 rows, as the places of their units do");
  static_assert(Split::kConsumers / 32 * kPanels * kWords * sizeof(uint32_t) == kBytes, "its warps fill it");

  const SkinnyWeightRows<Output>& weights;
  const CodeMatrix& codes;
  uint32_t* at;               /* the warp's place */
  uint32_t now = 0;           /* the place of the panel that is read next, in panels */
  uint32_t tile = blockIdx.y; /* of the panel that is copied next, as the warpgroup's first column k of it */
  uint32_t k;
  uint32_t left;                       /* panels of the tile, that one too */
  uint32_t row[Split::kTiles][kTurns]; /* of the matrix, of which the lane copies a unit in each of a panel's copies */
  uint32_t order;                      /* kInBytes: how the units of rows r and r + 8 lie in their words */

  __device__ __forceinline__ SkinnyScales(const SkinnyWeightRows<Output>& weights, const SkinnyFactors<Form>& factors,
                                          char* place)
      : weights(weights),
        codes(factors.weights),
        at(reinterpret_cast<uint32_t*>(place) + threadIdx.x / 32 * (kPanels * kWords)),
        k(first_column()),
        left(weights.params.share * weights.params.panels) {
    find_rows();
    /* Tiles, and gate and up rows, begin at multiples of 8 rows, which have whole words. */
    const uint32_t first = (threadIdx.x % 32 / 4 * n_units() + Split::turn_group() * kTurns * 2) % 4;
    order = 0x32103210 >> 4 * first & 0xffff;
  }

  /* Copies those of the first panels. */
  __device__ __forceinline__ void start() {
#pragma unroll
    for (uint32_t i = 0; i + 1 < kPanels; ++i) copy(i);
  }

  /* Where the lane finds the four units of the first turn of the panel whose turn it is, as `load` takes it. Another
   * panel's are copied to where the panel before was. */
  __device__ __forceinline__ const uint32_t* panel() {
    const uint32_t* four = at + now * kWords + threadIdx.x % 32 / 4 * 4;
    wait_for_copies<kPanels - 2>();
    __syncwarp(); /* those of all lanes have come, and all lanes have read the panel before */
    copy((now + kPanels - 1) % kPanels);
    now = (now + 1) % kPanels;
    return four;
  }
  static __device__ __forceinline__ uint4 load(const uint32_t* panel, uint32_t turn) {
    return *reinterpret_cast<const uint4*>(panel + turn * kSkinnyTurnScales);
  }
  /* Those of a turn, from its words. */
  __device__ __forceinline__ SkinnyUnits of(const uint4& words, uint32_t turn) const {
    return {{{unit_in(words.x, 2 * turn), unit_in(words.y, 2 * turn + 1)},
             {unit_in(words.z, 2 * turn), unit_in(words.w, 2 * turn + 1)}}};
  }

 private:
  __device__ __forceinline__ uint32_t unit_in(uint32_t word, uint32_t group) const {
    return kInBytes ? permute_bytes(word, order) >> 8 * (group % 4) & 0xff : word;
  }
  __device__ __forceinline__ uint32_t n_units() const { return weights.params.n_in >> codes.shift; }
  __device__ __forceinline__ uint32_t first_column() const {
    return blockIdx.x * weights.params.share * weights.params.panels * kSkinnyCodePanel +
           Split::turn_group() * kTurns * kSkinnyCodeTurn;
  }
  /* A group of copies, of the next panel if there is one. */
  __device__ __forceinline__ void copy(uint32_t to) {
    const SkinnyParams& params = weights.params;
    if (tile < params.n_tiles) {
      const uint32_t unit_of_row = threadIdx.x % kRowLanes, turn = unit_of_row / 2;
      uint32_t* const first = at + to * kWords + turn * kSkinnyTurnScales + own_row() * 4 + unit_of_row % 2;
#pragma unroll
      for (uint32_t i = 0; i < kAll; ++i) {
        const uint32_t t = i / kTurns, r = i % kTurns * kRows;
        copy_scales(first + t * kTurns * kSkinnyTurnScales + r % 8 * 4 + r / 8 * 2,
                    unit(row[t][i % kTurns], k + turn * kSkinnyCodeTurn + unit_of_row % 2 * kCodeGroup));
      }
      k += kSkinnyCodePanel;
      if (--left == 0) {
        tile += gridDim.y, k = first_column(), left = params.share * params.panels;
        find_rows();
      }
    }
    commit_copies();
  }
  static __device__ __forceinline__ uint32_t own_row() { return threadIdx.x % 32 / kRowLanes; }
  __device__ __forceinline__ void find_rows() {
#pragma unroll
    for (uint32_t t = 0; t < Split::kTiles; ++t)
#pragma unroll
      for (uint32_t i = 0; i < kTurns; ++i) {
        const uint32_t r = threadIdx.x % kWarpgroup / 32 * 16 + i * kRows + own_row();
        row[t][i] = weights.index(tile, 64 * Split::rows(t) + r);
      }
  }
  /* The word with the unit of a row at column `k`. Behind the last column x is zero, and any scales of the matrix will
   * do. */
  __device__ __forceinline__ const uint32_t* unit(uint32_t row, uint32_t k) const {
    const uint32_t i = k >> codes.shift, n = n_units();
    if constexpr (kInBytes) {
      const char* at = static_cast<const char*>(codes.scales) + uint64_t(row) * n + (i < n ? i : max(n, 4u) - 4);
      return reinterpret_cast<const uint32_t*>(at - reinterpret_cast<uint64_t>(at) % 4);
    } else {
      return static_cast<const uint32_t*>(codes.scales) + uint64_t(row) * n + min(i, n - 1);
    }
  }
};

/* The operands of the tensor cores' four instructions that a turn's words become. */
template <typename Half, ScaleForm Form>
__device__ __forceinline__ void convert_codes(uint32_t (&a)[4][4], const uint32_t (&words)[4],
                                              const SkinnyUnits& units) {
#pragma unroll
  for (uint32_t c = 0; c < 2; ++c) {
    const CodeFactors<Half, Form> low(units.raw[0][c]), high(units.raw[1][c]);
#pragma unroll
    for (uint32_t step = 0; step < 2; ++step) {
      uint32_t (&to)[4] = a[2 * c + step];
      to[0] = low.pair(words[2 * c], 2 * step), to[1] = high.pair(words[2 * c + 1], 2 * step);
      to[2] = low.pair(words[2 * c], 2 * step + 1), to[3] = high.pair(words[2 * c + 1], 2 * step + 1);
    }
  }
}

/* As multiply_tile does it with halves, in turns without a pause at the end of a panel or a stage: while a turn is
 * multiplied, the next is converted, and the words of the one after it are loaded. At the end of a tile those that
 * follow are loaded and converted for nothing, from the last panel. */
template <typename Half, ScaleForm Form, typename Split, typename Scales, int Tiles, int N>
__device__ __forceinline__ void multiply_code_tile(float (&acc)[Tiles][N], const SkinnyParams& params, Scales& scales,
                                                   const SkinnyPipeline& w, const SkinnyPipeline& x,
                                                   PipelineState& w_state, PipelineState& x_state) {
  constexpr uint32_t kTurns = Scales::kTurns, kAll = Scales::kAll, kAhead = 2;
  static_assert(kAll % 2 == 0, "two turns have registers");
  /* One register for all lanes, and so are descriptors, which the tensor cores take from such registers only. */
  const uint32_t group = __shfl_sync(0xffffffffu, Split::turn_group(), 0), first_turn = group * kTurns;
  const uint32_t columns = Split::column_group() * (2 * N * kSkinnyRowBytes);
  const auto give_back = [&](uint32_t w_stage, uint32_t x_stage) {
    __syncwarp(); /* every lane has read the stage */
    if (threadIdx.x % 32 == 0) barrier_arrive(w.empty + w_stage), barrier_arrive(x.empty + x_stage);
  };
  uint32_t words[2][4], a[2][4][4]; /* of two turns each */
  uint4 units[2];
  barrier_wait(w.full + w_state.index, w_state.phase);
  barrier_wait(x.full + x_state.index, x_state.phase);
  SkinnyFp8Rows rows(w.panel(w_state.index, 0));
  const char* x_panel = x.panel(x_state.index, first_turn);
  const uint32_t* of_panel = scales.panel();
  const auto load = [&](uint32_t turn) {
    const uint32_t i = turn % kAll;
    units[turn % 2] = scales.load(of_panel, i);
    rows.load(words[turn % 2], 64 * Split::rows(i / kTurns), first_turn + i % kTurns);
  };
  const auto convert = [&](uint32_t turn) {
    convert_codes<Half, Form>(a[turn % 2], words[turn % 2], scales.of(units[turn % 2], turn % kAll % kTurns));
  };
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i) load(i);
  convert(0);
  uint32_t w_used = 0, x_used = 0, p = 0; /* the stage before, and the panel of this one */
#pragma unroll 1
  for (uint32_t left = params.share * params.panels; left; --left) {
    const uint64_t b = matrix_descriptor(x_panel + columns, kSkinnyAtom, 0);
    const bool first = p == 0 && left != params.share * params.panels;
#pragma unroll
    for (uint32_t turn = 0; turn < kAll; ++turn) {
      const uint64_t at = advance(b, turn % kTurns * x.panel_bytes);
      wgmma_fence();
#pragma unroll
      for (uint32_t step = 0; step < 4; ++step)
        wgmma_along_k(acc[turn / kTurns], a[turn % 2][step], advance(at, kSkinnyFp8Turn * step), true, Half());
      wgmma_commit();
      wgmma_wait<1>(); /* the registers of the other turn are free */
      if (turn == 0 && first) give_back(w_used, x_used);
      if (turn + kAhead == kAll && left != 1) {
        if (++p == params.panels) {
          p = 0, w_used = w_state.index, x_used = x_state.index;
          w_state.next(w.n_stages), x_state.next(x.n_stages);
          barrier_wait(w.full + w_state.index, w_state.phase);
          barrier_wait(x.full + x_state.index, x_state.phase);
          rows = SkinnyFp8Rows(w.panel(w_state.index, 0)), x_panel = x.panel(x_state.index, first_turn);
        } else {
          rows.row += w.panel_bytes, x_panel += kSkinnyCodeTurns * x.panel_bytes;
        }
        of_panel = scales.panel();
      }
      load(turn + kAhead);
      convert(turn + 1);
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (uint32_t t = 0; t < Tiles; ++t) settle(acc[t]);
  give_back(w_state.index, x_state.index);
  w_state.next(w.n_stages), x_state.next(x.n_stages);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SKINNY_CODES_SM90_H */
