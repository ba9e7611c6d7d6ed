/* GEMV of weights in codes of four bits: y = x w^T for up to 8 rows of x, what gemv.h computes with other weights, with
 * its arguments, tiles and ends. CPU reference: matmul.h.
 *
 * Weights come through shared memory in stages: of the 16 rows of a tile up to 2,048 columns, and their scales. Bulk
 * copies bring them, one for each row of codes and of scales: copies by lanes would be 16 bytes long, or a word where
 * they are scales, and so many of them occupy the L1 that it delivers half of what memory has. Stages are on their way
 * across tiles and, before the predecessor has ended, across kernels.
 *
 * A warp has 128 columns of each 1,024. Where a row has no more than two stages, each lane keeps its part of x. No warp
 * waits for all others: at the end of a tile each leaves its sums, and one, another for each tile, adds them up and
 * stores the outputs. The warps take turns, too, in asking for the stage behind those that are on their way, when all
 * have given back the stage whose place it takes. So none is further ahead of another than there are stages; and who
 * stores a tile gives back its last stage behind that, so that as many tiles' sums have room (kCodeGemvSums).
 *
 * Numbers of e2m1 are converted to halves by the lane that reads them (weight_lanes.h). Of integers, the tensor
 * cores multiply the patterns, which are the codes plus the same number everywhere. Scale and zero are applied to the
 * sums of each group, in fp32, with the sum of x over the group's columns: half the instructions of converting each
 * weight. For that a product of the tensor cores has to lie in one group, so lanes take a word of each 32 columns, and
 * k is in its order. The patterns are at most 143 beside bfloat16 and 1,039 beside float16, so what is subtracted is
 * up to that much larger than what is left of it, which has 24 bits before, and more than a half's behind.
 */
#ifndef BLINK_OPS_GEMM_CODE_GEMV_SM90_H
#define BLINK_OPS_GEMM_CODE_GEMV_SM90_H

#include "gemv.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kCodeGemvColumns = 2048; /* of a stage, or what is left of a row */
constexpr uint32_t kCodeGemvStages = 4;
constexpr uint32_t kCodeGemvHeldStages = 2;                             /* of a row whose part of x a lane can keep */
constexpr uint32_t kCodeChunk = 128;                                    /* columns that a warp multiplies at once */
constexpr uint32_t kCodeChunks = kCodeGemvColumns / kCodeChunk;         /* of a stage */
constexpr uint32_t kCodeWarpChunks = kCodeChunks / kGemvWarps;          /* a warp's of a stage */
constexpr uint32_t kCodeScaleBytes = 4 * kCodeGemvColumns / kCodeGroup; /* of a row of a stage, at most */

static_assert(kCodeChunk == kChunkWeights<kInt4ByGroup>, "four lanes have a chunk of a row");

/* Rows begin 16 bytes of the banks apart where eight lanes read 16 bytes of eight rows, and 64 where they read 64 bytes
 * of two. */
template <ScaleForm Form>
struct CodeGemvStage {
  char rows[kGemvRows][kCodeGemvColumns / 2 + (Form == kInt4ByGroup ? 16 : 64)];
  char scales[kGemvRows][kCodeScaleBytes + 16];
};
/* Of dynamic shared memory: stages of numbers, and of integers, behind which the sums of x lie. */
constexpr uint32_t kCodeGemvBytes = 87040, kCodeGemvIntegerBytes = 83968;
static_assert(kCodeGemvStages * sizeof(CodeGemvStage<kFp4By32>) == kCodeGemvBytes &&
                  kCodeGemvStages * sizeof(CodeGemvStage<kInt4ByGroup>) == kCodeGemvIntegerBytes,
              "the host launches with so much");
constexpr uint32_t kCodeGemvSumBytes = 128; /* of a chunk: the sums of 8 rows of x over each of up to 4 groups */
constexpr uint32_t kCodeScaleAlign = 16;    /* the scales of a row are a multiple of so many bytes */

constexpr uint32_t kCodeGemvSums = kCodeGemvStages; /* tiles whose sums have room: a row has one stage or more */

/* Shared memory of the block beside its stages. */
struct CodeGemvScratch {
  GemvSums<1, kCodeGemvSums> sums;
  uint64_t full[kCodeGemvStages], empty[kCodeGemvStages], summed[kCodeGemvSums];

  __device__ __forceinline__ void init() {
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < kCodeGemvStages; ++i) barrier_init(full + i), barrier_init_count(empty + i, kGemvWarps);
      for (uint32_t i = 0; i < kCodeGemvSums; ++i) barrier_init_count(summed + i, kGemvWarps);
      barrier_init_done();
    }
    __syncthreads();
  }
};

/* The block's stages, in the order in which it takes them: those of its tiles, one tile after the other. */
template <typename Half, int Output, ScaleForm Form>
struct CodeStages {
  using Tiles = GemvTiles<Half, Output, Form>;
  using Stage = CodeGemvStage<Form>;
  const Tiles& tiles;
  CodeGemvScratch& scratch;
  Stage* stages;
  uint32_t of_row;   /* stages that a row has */
  uint32_t turn = 0; /* stages that the warp has given back */

  __device__ __forceinline__ CodeStages(const Tiles& all, CodeGemvScratch& of)
      : tiles(all),
        scratch(of),
        stages(reinterpret_cast<Stage*>(dynamic_shared())),
        of_row((all.n_in + kCodeGemvColumns - 1) / kCodeGemvColumns) {
    if (threadIdx.x >= 32) return;
#pragma unroll 1
    for (uint32_t i = 0; i < kCodeGemvStages; ++i) request(i);
  }

  /* Waits for the stage whose turn it is. */
  __device__ __forceinline__ const Stage& take() const {
    const uint32_t place = turn % kCodeGemvStages;
    barrier_wait(scratch.full + place, turn / kCodeGemvStages % 2);
    return stages[place];
  }
  /* The warp has done with it. One of the warps asks for another in place of the stage before, when the slowest warp
   * has given that back. */
  __device__ __forceinline__ void give_back() {
    __syncwarp(); /* every lane has read it */
    if (threadIdx.x % 32 == 0) barrier_arrive(scratch.empty + turn % kCodeGemvStages);
    if (turn % kGemvWarps == threadIdx.x / 32 && turn) {
      barrier_wait(scratch.empty + (turn - 1) % kCodeGemvStages, (turn - 1) / kCodeGemvStages % 2);
      request(turn - 1 + kCodeGemvStages);
    }
    ++turn;
  }

 private:
  /* Of the stage of a turn, if there is one: by a warp, of which half copies codes and half scales. */
  __device__ __forceinline__ void request(uint32_t of_turn) const {
    const uint32_t tile = blockIdx.x + of_turn / of_row * gridDim.x, first = of_turn % of_row * kCodeGemvColumns;
    if (tile >= tiles.n_tiles) return;
    const uint32_t n = min(kCodeGemvColumns, tiles.n_in - first), unit_bytes = Form == kFp4By32 ? 1 : 4;
    const uint32_t n_scales = (n >> tiles.w.shift) * unit_bytes, lane = threadIdx.x % 32, i = lane % kGemvRows;
    Stage& stage = stages[of_turn % kCodeGemvStages];
    uint64_t* const full = scratch.full + of_turn % kCodeGemvStages;
    if (lane == 0) barrier_expect(full, kGemvRows * (n / 2 + n_scales));
    __syncwarp();
    const uint64_t row = index(tile, i);
    if (lane < kGemvRows) {
      copy_bytes(stage.rows[i], tiles.w.codes + (row * tiles.n_in + first) / 2, n / 2, full);
    } else {
      const uint64_t unit = row * (tiles.n_in >> tiles.w.shift) + (first >> tiles.w.shift);
      copy_bytes(stage.scales[i], static_cast<const char*>(tiles.w.scales) + unit * unit_bytes, n_scales, full);
    }
  }
  /* Of row i of a tile in the matrix; past the end it is the last one again. */
  __device__ __forceinline__ uint32_t index(uint32_t tile, uint32_t i) const {
    const uint32_t last = tiles.n_out - 1;
    if (Output != kEpilogueSilu) return min(last, tile * kGemvRows + i);
    return (i < 8 ? 0 : tiles.n_out) + min(last, tile * Tiles::kOutputs + i % 8);
  }
};

/* A warp's chunk of a stage: where its codes and scales are, and its number in the row, by which its sums of x lie. Of
 * a chunk that the row does not have, x is zero, and codes and scales are those of one that it has. */
struct CodeChunkPlace {
  uint32_t in_stage, in_row;
};

/* How a kernel multiplies chunks: numbers. A lane has 32 neighbouring columns. */
template <typename Half, ScaleForm Form>
struct CodeProduct {
  using X = uint4[1][kLaneVectors<Form>];

  /* The lane's row of x, from its first column of a chunk on. */
  static __device__ __forceinline__ uint32_t column() { return threadIdx.x % 4 * kLaneWeights<Form>; }
  static __device__ __forceinline__ void load(X& x, const Half* row) {
#pragma unroll
    for (uint32_t v = 0; v < kLaneVectors<Form>; ++v) x[0][v] = *reinterpret_cast<const uint4*>(row + 8 * v);
  }
  __device__ __forceinline__ void sum(uint32_t, const X&) const {}
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvStage<Form>& stage, const CodeChunkPlace& place,
                                      const X& x) const {
    const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4, chunk = place.in_stage;
    LaneChunk<Form> of;
    of.low = codes(stage, r, chunk, q), of.high = codes(stage, r + 8, chunk, q);
    of.low_scale = scale(stage, r, chunk, q), of.high_scale = scale(stage, r + 8, chunk, q);
    multiply_chunk<Half, Form, 1>(&acc, of, x);
  }

 private:
  static __device__ __forceinline__ uint4 codes(const CodeGemvStage<Form>& stage, uint32_t r, uint32_t chunk,
                                                uint32_t q) {
    return *reinterpret_cast<const uint4*>(stage.rows[r] + chunk * (kCodeChunk / 2) + 16 * q);
  }
  static __device__ __forceinline__ uint32_t scale(const CodeGemvStage<Form>& stage, uint32_t r, uint32_t chunk,
                                                   uint32_t q) {
    const char* const at = stage.scales[r];
    if constexpr (Form == kFp4By32)
      return reinterpret_cast<const uint8_t*>(at)[4 * chunk + q];
    else
      return reinterpret_cast<const uint32_t*>(at)[4 * chunk + q];
  }
};

/* The same of integers, in Groups groups a chunk. A lane has columns c and c + 1 of each 8, c = 2 (lane % 4). */
template <typename Half, uint32_t Groups>
struct IntegerProduct {
  using X = uint32_t[16];
  static constexpr uint32_t kPieces = 4 / Groups; /* of 32 columns, of a group */
  static constexpr uint32_t kChunkSums = kCodeGemvSumBytes / sizeof(float2);
  float2* of_x; /* the sums of x over each chunk's groups, by the rows that lanes 0 to 3 have sums of */

  __device__ __forceinline__ IntegerProduct()
      : of_x(reinterpret_cast<float2*>(reinterpret_cast<char*>(dynamic_shared()) + kCodeGemvIntegerBytes)) {}
  static __device__ __forceinline__ uint32_t column() { return threadIdx.x % 4 * 2; }
  static __device__ __forceinline__ void load(X& x, const Half* row) {
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) x[i] = *reinterpret_cast<const uint32_t*>(row + 8 * i);
  }
  /* The sums over each group of the row's chunk, by the tensor cores, like the products that they are subtracted from.
   */
  __device__ __forceinline__ void sum(uint32_t in_row, const X& x) const {
    const uint32_t one = pack<Half>(1.0f, 1.0f), ones[4] = {one, one, one, one}, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g) {
      float sums[4] = {};
#pragma unroll
      for (uint32_t i = 4 * g * kPieces; i < 4 * (g + 1) * kPieces; i += 2) mma(sums, ones, x[i], x[i + 1], Half());
      if (lane < 4) of_x[in_row * kChunkSums + 4 * g + lane] = make_float2(sums[0], sums[1]);
    }
  }
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvStage<kInt4ByGroup>& stage,
                                      const CodeChunkPlace& place, const X& x) const {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, chunk = place.in_stage;
    const char* const from = stage.rows[lane % 8] + chunk * (kCodeChunk / 2) + lane / 8 * 16;
    uint32_t low[4], high[4]; /* a word of each 32 columns */
    load_matrices<false>(low, from);
    load_matrices<false>(high, from + 8 * sizeof stage.rows[0]);
    const float2* const sums = of_x + place.in_row * kChunkSums;
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
      add_scaled(acc[0], acc[1], part[0], part[1], of, scale(stage, r, chunk * Groups + g));
      add_scaled(acc[2], acc[3], part[2], part[3], of, scale(stage, r + 8, chunk * Groups + g));
    }
  }

 private:
  static __device__ __forceinline__ uint32_t scale(const CodeGemvStage<kInt4ByGroup>& stage, uint32_t r, uint32_t g) {
    return reinterpret_cast<const uint32_t*>(stage.scales[r])[g];
  }
  static __device__ __forceinline__ void add_scaled(float& first, float& second, float part, float next,
                                                    const float2& of_x, uint32_t raw) {
    const Half* scale_and_added = reinterpret_cast<const Half*>(&raw);
    const float scale = to_float(scale_and_added[0]), added = to_float(scale_and_added[1]);
    first += scale * (part + added * of_x.x), second += scale * (next + added * of_x.y);
  }
};

/* The lane's part of x: of the row's chunks that are the warp's. */
template <typename Product, typename Half>
struct CodeInput {
  using X = typename Product::X;
  const Half* row;
  uint32_t n_chunks;

  /* What is computed for rows past the end is not stored. */
  __device__ __forceinline__ CodeInput(const Half* x, uint32_t m, uint32_t n_in)
      : row(x + uint64_t(min(m - 1, threadIdx.x % 32 / 4)) * n_in + Product::column()), n_chunks(n_in / kCodeChunk) {}
  /* The warp's chunk i of a stage. */
  __device__ __forceinline__ CodeChunkPlace place(uint32_t stage, uint32_t i) const {
    const uint32_t chunk = i * kGemvWarps + threadIdx.x / 32, in_row = stage * kCodeChunks + chunk;
    return {in_row < n_chunks ? chunk : 0, in_row};
  }
  __device__ __forceinline__ void load(X (&x)[kCodeWarpChunks], uint32_t stage) const {
    const bool whole = (stage + 1) * kCodeChunks <= n_chunks; /* of all warps alike: a cheap branch */
#pragma unroll
    for (uint32_t i = 0; i < kCodeWarpChunks; ++i) {
      const uint32_t in_row = place(stage, i).in_row;
      if (whole) {
        Product::load(x[i], row + in_row * kCodeChunk);
      } else {
        memset(&x[i], 0, sizeof x[i]);
        if (in_row < n_chunks) Product::load(x[i], row + in_row * kCodeChunk);
      }
    }
  }
};

/* The end of the block's n-th tile, by each warp with its sums. */
template <typename Half, int Output, ScaleForm Form>
__device__ __forceinline__ void end_code_tile(CodeGemvScratch& scratch, const GemvTiles<Half, Output, Form>& tiles,
                                              const float (&acc)[4], uint32_t n, void* y, uint32_t m) {
  constexpr uint32_t kOutputs = GemvTiles<Half, Output, Form>::kOutputs;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, buffer = n % kCodeGemvSums;
  scratch.sums.part[buffer][warp][0][lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
  __syncwarp(); /* all lanes have written */
  if (lane == 0) barrier_arrive(scratch.summed + buffer);
  if (n % kGemvWarps != warp) return;
  barrier_wait(scratch.summed + buffer, n / kCodeGemvSums % 2);
#pragma unroll 1
  for (uint32_t e = lane; e < m * kOutputs; e += 32) {
    const uint32_t o = e % kOutputs, column = e / kOutputs, out = (blockIdx.x + n * gridDim.x) * kOutputs + o;
    if (out < tiles.n_out)
      store_gemv<Half, Output>(scratch.sums, buffer, y, o, column, uint64_t(column) * tiles.n_out + out,
                               OutputScales{1.0f, 1.0f});
  }
}

/* All tiles of a block. `Held`: a lane keeps its part of x. */
template <typename Product, bool Held, typename Half, int Output, ScaleForm Form>
__device__ __forceinline__ void multiply_code_tiles(const GemvTiles<Half, Output, Form>& tiles,
                                                    CodeStages<Half, Output, Form>& stages, const Half* x, void* y,
                                                    uint32_t m) {
  constexpr uint32_t kKept = Held ? kCodeGemvHeldStages : 1;
  const Product product;
  const CodeInput<Product, Half> input(x, m, tiles.n_in);
  typename Product::X part[kKept][kCodeWarpChunks];
  /* `fresh`: a stage of the first tile, whose sums of x are wanted. */
  const auto load = [&](uint32_t s, bool fresh) {
    auto& of = part[Held ? s : 0];
    input.load(of, s);
    if (!fresh) return;
#pragma unroll
    for (uint32_t i = 0; i < kCodeWarpChunks; ++i) product.sum(input.place(s, i).in_row, of[i]);
    __syncwarp(); /* the warp's sums are there */
  };
  if (Held) {
#pragma unroll
    for (uint32_t s = 0; s < kKept; ++s)
      if (s < stages.of_row) load(s, true);
  }
  for (uint32_t n = 0; blockIdx.x + n * gridDim.x < tiles.n_tiles; ++n) {
    float acc[4] = {};
    const auto multiply = [&](uint32_t s) {
      if (!Held) load(s, n == 0);
      const CodeGemvStage<Form>& stage = stages.take();
#pragma unroll
      for (uint32_t i = 0; i < kCodeWarpChunks; ++i) product.add(acc, stage, input.place(s, i), part[Held ? s : 0][i]);
      if (s + 1 == stages.of_row) end_code_tile(stages.scratch, tiles, acc, n, y, m);
      stages.give_back();
    };
    if constexpr (Held) {
#pragma unroll
      for (uint32_t s = 0; s < kKept; ++s)
        if (s < stages.of_row) multiply(s);
    } else {
#pragma unroll 1
      for (uint32_t s = 0; s < stages.of_row; ++s) multiply(s);
    }
  }
}

/* grid (at most the tiles), block (kGemvThreads), kCodeGemvBytes of shared memory, or of integers
 * kCodeGemvIntegerBytes and kCodeGemvSumBytes for each chunk of a row's stages; m at most 8, n_in a multiple of
 * kCodeChunk, and the bytes of a row's scales one of kCodeScaleAlign. `Held`: n_in is at most kCodeGemvHeldStages *
 * kCodeGemvColumns. Blocks take tiles blockIdx.x, blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, bool Held, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    code_gemv_kernel(CodeMatrix w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out) {
  __shared__ CodeGemvScratch scratch;
  allow_successor();
  scratch.init();
  const GemvTiles<Half, Output, Form> tiles(w, n_in, n_out);
  CodeStages<Half, Output, Form> stages(tiles, scratch);
  wait_for_predecessor();
  if constexpr (Form != kInt4ByGroup)
    multiply_code_tiles<CodeProduct<Half, Form>, Held>(tiles, stages, x, y, m);
  else if (w.shift == 7) /* groups of 128, 64 and 32 columns */
    multiply_code_tiles<IntegerProduct<Half, 1>, Held>(tiles, stages, x, y, m);
  else if (w.shift == 6)
    multiply_code_tiles<IntegerProduct<Half, 2>, Held>(tiles, stages, x, y, m);
  else
    multiply_code_tiles<IntegerProduct<Half, 4>, Held>(tiles, stages, x, y, m);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_CODE_GEMV_SM90_H */
