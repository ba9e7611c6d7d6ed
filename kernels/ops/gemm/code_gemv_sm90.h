/* GEMV of weights in codes of four bits: y = x w^T for up to 8 rows of x, what gemv.h computes with other weights, with
 * its arguments, tiles and ends. CPU reference: matmul.h.
 *
 * Weights come through shared memory in stages: of the 16 rows of a tile up to 2,048 columns, and their scales. Bulk
 * copies bring them, one for each row of codes and of scales: copies by lanes would be 16 bytes long, or a word where
 * they are scales, and so many of them occupy the L1 that it delivers half of what memory has. Stages are on their way
 * across tiles and, before the predecessor has ended, across kernels. The warps take turns in asking for the stage
 * behind those that are on their way, when all warps have done with the stage whose place it takes.
 *
 * A warp has 128 columns of each 1,024. Where a row has no more than two stages, each lane keeps its part of x.
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
#include "kernels/primitives/pipeline_state.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kCodeGemvColumns = 2048; /* of a stage, or what is left of a row */
constexpr uint32_t kCodeGemvStages = 4;
constexpr uint32_t kCodeGemvHeldStages = 2;                             /* of a row whose part of x a lane can keep */
constexpr uint32_t kCodeChunk = 128;                                    /* columns that a warp multiplies at once */
constexpr uint32_t kCodeChunks = kCodeGemvColumns / kCodeChunk;         /* of a stage */
constexpr uint32_t kCodeWarpChunks = kCodeChunks / kGemvWarps;          /* a warp's of a stage */
constexpr uint32_t kCodeScaleBytes = 4 * kCodeGemvColumns / kCodeGroup; /* of a row of a stage, at most */

/* Rows begin 16 bytes of the banks apart where eight lanes read 16 bytes of eight rows, and 64 where they read 64 bytes
 * of two. */
template <ScaleForm Form>
struct CodeGemvStage {
  char rows[kGemvRows][kCodeGemvColumns / 2 + (Form == kInt4ByGroup ? 16 : 64)];
  char scales[kGemvRows][kCodeScaleBytes + 16];
};
constexpr uint32_t kCodeGemvBytes = 87040; /* of dynamic shared memory */
static_assert(kCodeGemvStages * sizeof(CodeGemvStage<kFp4By32>) == kCodeGemvBytes &&
                  sizeof(CodeGemvStage<kFp4By32>) >= sizeof(CodeGemvStage<kInt4ByGroup>),
              "the host launches with so much");
constexpr uint32_t kCodeGemvSumBytes = 128; /* of a chunk: the sums of 8 rows of x over each of up to 4 groups */
constexpr uint32_t kCodeScaleAlign = 16;    /* the scales of a row are a multiple of so many bytes */

struct CodeGemvBarriers {
  uint64_t full[kCodeGemvStages], empty[kCodeGemvStages];
};

/* The block's stages, in the order in which it takes them: those of its tiles, one tile after the other. */
template <typename Half, int Output, ScaleForm Form>
struct CodeStages {
  using Tiles = GemvTiles<Half, Output, Form>;
  using Stage = CodeGemvStage<Form>;
  const Tiles& tiles;
  CodeGemvBarriers& barriers;
  Stage* stages;
  uint32_t of_row;                                   /* stages that a row has */
  uint32_t tile = blockIdx.x, of_tile = 0, next = 0; /* what is asked for next, and its place */
  PipelineState taken;

  __device__ __forceinline__ CodeStages(const Tiles& all, CodeGemvBarriers& of)
      : tiles(all),
        barriers(of),
        stages(reinterpret_cast<Stage*>(dynamic_shared())),
        of_row((all.n_in + kCodeGemvColumns - 1) / kCodeGemvColumns) {
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < kCodeGemvStages; ++i)
        barrier_init(barriers.full + i), barrier_init_count(barriers.empty + i, kGemvWarps);
      barrier_init_done();
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = 0; i < kCodeGemvStages; ++i) request(threadIdx.x < 32);
  }

  /* Waits for the next stage. */
  __device__ __forceinline__ const Stage& take() const {
    barrier_wait(barriers.full + taken.index, taken.phase);
    return stages[taken.index];
  }
  /* The warp has done with it. One of the warps, each in turn, asks for another in place of the stage before, with
   * which the slowest warp has done long ago. `turn`: how many stages were taken before this one. */
  __device__ __forceinline__ void give_back(uint32_t turn) {
    __syncwarp(); /* every lane has read it */
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers.empty + taken.index);
    if (turn) {
      const bool asks = turn % kGemvWarps == threadIdx.x / 32 && tile < tiles.n_tiles;
      if (asks) barrier_wait(barriers.empty + next, (turn - 1) / kCodeGemvStages % 2);
      request(asks);
    }
    taken.next(kCodeGemvStages);
  }

 private:
  /* Of the next stage, if there is one: by the warp that `asks`, of which half copies codes and half scales. */
  __device__ __forceinline__ void request(bool asks) {
    if (tile >= tiles.n_tiles) return;
    if (asks) copy();
    next = (next + 1) % kCodeGemvStages;
    if (++of_tile == of_row) of_tile = 0, tile += gridDim.x;
  }
  __device__ __forceinline__ void copy() const {
    const uint32_t first = of_tile * kCodeGemvColumns, n = min(kCodeGemvColumns, tiles.n_in - first);
    const uint32_t unit_bytes = Form == kFp4By32 ? 1 : 4, n_scales = (n >> tiles.w.shift) * unit_bytes;
    const uint32_t lane = threadIdx.x % 32, i = lane % kGemvRows;
    uint64_t* const full = barriers.full + next;
    if (lane == 0) barrier_expect(full, kGemvRows * (n / 2 + n_scales));
    __syncwarp();
    const uint64_t row = index(i);
    if (lane < kGemvRows) {
      copy_bytes(stages[next].rows[i], tiles.w.codes + (row * tiles.n_in + first) / 2, n / 2, full);
    } else {
      const uint64_t unit = row * (tiles.n_in >> tiles.w.shift) + (first >> tiles.w.shift);
      copy_bytes(stages[next].scales[i], static_cast<const char*>(tiles.w.scales) + unit * unit_bytes, n_scales, full);
    }
  }
  /* Of row i of the tile in the matrix; past the end it is the last one again. */
  __device__ __forceinline__ uint32_t index(uint32_t i) const {
    const uint32_t last = tiles.n_out - 1;
    if (Output != kEpilogueSilu) return min(last, tile * kGemvRows + i);
    return (i < 8 ? 0 : tiles.n_out) + min(last, tile * Tiles::kOutputs + i % 8);
  }
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
  /* `chunk`: of the stage. */
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvStage<Form>& stage, uint32_t chunk, const X& x,
                                      uint32_t, bool) const {
    const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
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
  float2* of_x; /* the sums of x over each chunk's groups, by the rows that lanes 0 to 3 have sums of */

  __device__ __forceinline__ IntegerProduct()
      : of_x(reinterpret_cast<float2*>(reinterpret_cast<char*>(dynamic_shared()) + kCodeGemvBytes)) {}
  static __device__ __forceinline__ uint32_t column() { return threadIdx.x % 4 * 2; }
  static __device__ __forceinline__ void load(X& x, const Half* row) {
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) x[i] = *reinterpret_cast<const uint32_t*>(row + 8 * i);
  }
  /* `chunk`: of the stage, whose first one is `before` in its row. `fresh`: x is the chunk's for the first time. */
  __device__ __forceinline__ void add(float (&acc)[4], const CodeGemvStage<kInt4ByGroup>& stage, uint32_t chunk,
                                      const X& x, uint32_t before, bool fresh) const {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4;
    const char* const from = stage.rows[lane % 8] + chunk * (kCodeChunk / 2) + lane / 8 * 16;
    uint32_t low[4], high[4]; /* a word of each 32 columns */
    load_matrices<false>(low, from);
    load_matrices<false>(high, from + 8 * sizeof stage.rows[0]);
    float2* const sums = of_x + (before + chunk) * (kCodeGemvSumBytes / sizeof(float2));
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
      add_scaled(acc[0], acc[1], part[0], part[1], of, scale(stage, r, chunk * Groups + g));
      add_scaled(acc[2], acc[3], part[2], part[3], of, scale(stage, r + 8, chunk * Groups + g));
    }
  }

 private:
  static __device__ __forceinline__ uint32_t scale(const CodeGemvStage<kInt4ByGroup>& stage, uint32_t r, uint32_t g) {
    return reinterpret_cast<const uint32_t*>(stage.scales[r])[g];
  }
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

/* The lane's part of x, of a row's chunks that are the warp's; of those that a row does not have, the last one's. */
template <typename Product, typename Half>
struct CodeInput {
  using X = typename Product::X;
  const Half* row;
  uint32_t n_chunks;

  /* What is computed for rows past the end is not stored. */
  __device__ __forceinline__ CodeInput(const Half* x, uint32_t m, uint32_t n_in)
      : row(x + uint64_t(min(m - 1, threadIdx.x % 32 / 4)) * n_in + Product::column()), n_chunks(n_in / kCodeChunk) {}
  __device__ __forceinline__ void load(X (&x)[kCodeWarpChunks], uint32_t stage) const {
#pragma unroll
    for (uint32_t i = 0; i < kCodeWarpChunks; ++i)
      Product::load(x[i], row + min(n_chunks - 1, stage * kCodeChunks + own_chunk(i)) * kCodeChunk);
  }
  static __device__ __forceinline__ uint32_t own_chunk(uint32_t i) { return i * kGemvWarps + threadIdx.x / 32; }
};

/* All tiles of a block. `Held`: a lane keeps its part of x. */
template <typename Product, bool Held, typename Half, int Output, ScaleForm Form>
__device__ __forceinline__ void multiply_code_tiles(GemvSums<1>& sums, const GemvTiles<Half, Output, Form>& tiles,
                                                    CodeStages<Half, Output, Form>& stages, const Half* x, void* y,
                                                    uint32_t m) {
  constexpr uint32_t kOutputs = GemvTiles<Half, Output, Form>::kOutputs, kKept = Held ? kCodeGemvHeldStages : 1;
  using Input = CodeInput<Product, Half>;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_out = tiles.n_out;
  const Product product;
  const Input input(x, m, tiles.n_in);
  typename Product::X part[kKept][kCodeWarpChunks];
  if (Held) {
#pragma unroll
    for (uint32_t s = 0; s < kKept; ++s) input.load(part[s], s);
  }
  uint32_t buffer = 0, turn = 0;
  for (uint32_t tile = blockIdx.x; tile < tiles.n_tiles; tile += gridDim.x, buffer ^= 1) {
    float acc[4] = {};
    const auto multiply = [&](uint32_t s, typename Product::X(&of)[kCodeWarpChunks]) {
      if (!Held) input.load(of, s);
      const CodeGemvStage<Form>& stage = stages.take();
#pragma unroll
      for (uint32_t i = 0; i < kCodeWarpChunks; ++i) {
        const uint32_t chunk = Input::own_chunk(i), before = s * kCodeChunks;
        if (before + chunk < input.n_chunks) product.add(acc, stage, chunk, of[i], before, tile == blockIdx.x);
      }
      stages.give_back(turn++);
    };
    if constexpr (Held) {
#pragma unroll
      for (uint32_t s = 0; s < kKept; ++s)
        if (s < stages.of_row) multiply(s, part[s]);
    } else {
#pragma unroll 1
      for (uint32_t s = 0; s < stages.of_row; ++s) multiply(s, part[0]);
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

/* grid (at most the tiles), block (kGemvThreads), kCodeGemvBytes of shared memory and of integers kCodeGemvSumBytes for
 * each chunk of a row; m at most 8, n_in a multiple of kCodeChunk, of which no row's scales are but a multiple of
 * kCodeScaleAlign bytes. `Held`: n_in is at most kCodeGemvHeldStages * kCodeGemvColumns. Blocks take tiles blockIdx.x,
 * blockIdx.x + gridDim.x, ... */
template <typename Half, int Output, bool Held, ScaleForm Form>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    code_gemv_kernel(CodeMatrix w, const Half* x, void* y, uint32_t m, uint32_t n_in, uint32_t n_out) {
  __shared__ GemvSums<1> sums;
  __shared__ CodeGemvBarriers barriers;
  allow_successor();
  const GemvTiles<Half, Output, Form> tiles(w, n_in, n_out);
  CodeStages<Half, Output, Form> stages(tiles, barriers);
  wait_for_predecessor();
  if constexpr (Form != kInt4ByGroup)
    multiply_code_tiles<CodeProduct<Half, Form>, Held>(sums, tiles, stages, x, y, m);
  else if (w.shift == 7) /* groups of 128, 64 and 32 columns */
    multiply_code_tiles<IntegerProduct<Half, 1>, Held>(sums, tiles, stages, x, y, m);
  else if (w.shift == 6)
    multiply_code_tiles<IntegerProduct<Half, 2>, Held>(sums, tiles, stages, x, y, m);
  else
    multiply_code_tiles<IntegerProduct<Half, 4>, Held>(sums, tiles, stages, x, y, m);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_CODE_GEMV_SM90_H */
