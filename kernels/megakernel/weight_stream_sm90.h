/* Weight stream: the sequence in which a warp reads its share of all weights of a step, and the keys and values that it
 * attends to. It is the order in which the step uses them.
 *
 * They depend on nothing that the step computes, so they are requested as early as there is room for them: a dedicated
 * warp copies the share of each other warp (producer_sm90.h) into a pipeline of stages in shared memory. The
 * pipelines of a multiprocessor hold about 5 us of its share of the memory's bandwidth, which keeps the memory busy
 * while the blocks wait for each other between two matmuls. But no more is requested at once than keeps the memory
 * busy, 64 KB: with all 192 KB on their way every other access waits behind them (measured on an H200: a load that hits
 * L2 takes 3,000 cycles instead of 850, and an atomic 14,000 instead of 5,000, at the same bandwidth).
 *
 * A matrix w [n_out][n_in] is divided into tiles of 16 rows. A block has every row of its tiles, a warp of it one
 * eighth of k; k is counted in words of 16 bits, a half, two elements of fp8 or four codes. The block takes up to
 * kPassTiles tiles together, so that it loads x once for all of them: a pass goes through k in stages, and at each
 * stage through its tiles. One bulk copy brings 16 rows of up to kStageK: smaller copies, or 16 bytes a thread, were
 * measured to stop at 2.3 TB/s. Where a warp's share of k is short, so that a tile fills half of a stage or less, a
 * stage brings two.
 *
 * Codes of four bits come with their scales, which lie behind each tile's codes: loads of their own would be waited
 * for. Their stages are smaller, as a tile has fewer bytes, so more of them hold as much, and two are requested at
 * once.
 */
#ifndef BLINK_MEGAKERNEL_WEIGHT_STREAM_SM90_H
#define BLINK_MEGAKERNEL_WEIGHT_STREAM_SM90_H

#include "kernels/ops/attention/kv_tile.h"
#include "kernels/ops/gemm/gemv.h"
#include "kernels/primitives/pipeline_state.h"
#include "arguments.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kMegakernelWarps = 8, kMegakernelThreads = 32 * kMegakernelWarps;
constexpr uint32_t kMegakernelBlock = kMegakernelThreads + 128; /* and a warpgroup, of which one warp copies */
constexpr uint32_t kStageK = BLINK_STAGE_CHUNKS * kGemvChunk;
constexpr uint32_t kKeyAlign = 1024; /* of boxes of keys */
constexpr uint32_t kBoxGrain = 16;   /* bytes: where in a row of a matrix a box may begin, and of which it has some */
template <ScaleForm Form>
constexpr uint32_t kStageChunks = kIsCodes<Form> ? BLINK_CODE_STAGE_CHUNKS : BLINK_STAGE_CHUNKS; /* at most */
constexpr uint32_t kStageBytes = 2 * kGemvRows * kStageK; /* at most; keys and values take up as much */

/* The stages of a warp's pipeline, in a kernel whose layers' matrices have a form. Keys and values take a stage, or two
 * of those of codes, of which every other one is aligned as their boxes need it. */
template <ScaleForm Form>
struct StageShape {
  static constexpr uint32_t kCount = kIsCodes<Form> ? 5 : 3;
  static constexpr uint32_t kBytes = kIsCodes<Form> ? BLINK_CODE_STAGE_BYTES : kStageBytes;
  static constexpr uint32_t kOfKeys = (kStageBytes + kBytes - 1) / kBytes;
  static constexpr uint32_t kAlign = kOfKeys == 1 ? 128 : kKeyAlign; /* of a pipeline, where its size is no multiple */
  static_assert(kOfKeys <= 2 && kOfKeys * kBytes % kKeyAlign == 0, "where keys begin");

  /* Whether keys may begin with a stage. */
  static __device__ __forceinline__ bool takes_keys(uint32_t index) {
    return kOfKeys == 1 || (index % kOfKeys == 0 && index + kOfKeys <= kCount);
  }
};

constexpr uint32_t kPassTiles = 8; /* the tiles whose sums a block accumulates at once */

/* Tiles of keys and values that a stage brings. */
template <typename Cache, int HeadDim>
constexpr uint32_t kStageTiles = kStageBytes / kTileBytes<Cache, HeadDim>;

/* The scales of a matrix of codes. Their boxes have those of a stage's chunks. A box can only begin at a multiple of 16
 * bytes of a row (else the copy is an illegal instruction), so where stages' scales do not, boxes begin before them,
 * and are wider. */
struct ScaleBoxes {
  const void* map = nullptr;
  uint32_t chunk_bytes = 0; /* of a row, a power of two up to 16; 0 if the matrix is not of codes */
  uint32_t row_bytes = 0;   /* of a box */

  __device__ __forceinline__ ScaleBoxes() {}
  __device__ __forceinline__ ScaleBoxes(const void* of, uint32_t bytes, uint32_t stage_chunks, uint32_t share_chunks)
      : map(of), chunk_bytes(bytes) {
    const bool begins_there = (stage_chunks * bytes | share_chunks * bytes) % kBoxGrain == 0;
    const uint32_t before = begins_there ? 0 : kBoxGrain - bytes;
    row_bytes = (stage_chunks * bytes + before + kBoxGrain - 1) / kBoxGrain * kBoxGrain;
  }
};

/* The tiles of one matrix that are this block's. A tile is a box of its tensor map, which sees w as [n_out / 8][8]
 * [n_in], or gate_up, of which a tile has 8 gate rows and their up rows, as [2][n_out / 2][n_in]. */
template <ScaleForm Layers>
struct BlockTiles {
  const void* map;
  uint32_t n_in, stage_chunks; /* k of a stage, in chunks: those of the map's boxes */
  uint32_t first, count;       /* every gridDim.x-th from `first` on */
  bool gate_up;
  ScaleBoxes scales;

  /* `turn` shifts which blocks have one tile fewer, so that over many matrices all blocks have the same work. */
  __device__ __forceinline__ BlockTiles(const void* tensor_map, uint32_t in, uint32_t out, uint32_t chunks,
                                        bool is_gate_up, uint32_t turn)
      : map(tensor_map), n_in(in), stage_chunks(chunks), gate_up(is_gate_up) {
    first = (blockIdx.x + 29 * turn) % gridDim.x;
    count = (out / kGemvRows + gridDim.x - 1 - first) / gridDim.x;
  }

  /* Which tile of the matrix the block's `tile` is. Different blocks read neighbouring tiles at the same time: a step
   * takes 1 % less than if each block had neighbouring tiles. */
  __device__ __forceinline__ uint32_t index(uint32_t tile) const { return first + tile * gridDim.x; }

  __device__ __forceinline__ uint32_t share() const { return n_in / kMegakernelWarps; } /* of k, a warp */
  __device__ __forceinline__ uint32_t first_k(uint32_t warp) const { return warp * share(); }
  __device__ __forceinline__ uint32_t stage_k() const { return stage_chunks * kGemvChunk; }
  /* Those of the stage at the warp's k + done. Of codes, the last stage has fewer if they do not divide its share: its
   * boxes reach into the columns of the next warp, or past the end of the rows, where zeros are. */
  __device__ __forceinline__ uint32_t chunks(uint32_t done) const {
    return scales.chunk_bytes ? min(stage_chunks, (share() - done) / kGemvChunk) : stage_chunks;
  }
  /* Where in a row of the scales those of a warp's k + done begin. */
  __device__ __forceinline__ uint32_t first_scale(uint32_t warp, uint32_t done) const {
    return (first_k(warp) + done) / kGemvChunk * scales.chunk_bytes;
  }
  /* What a stage has of a tile: weights and, behind them, scales. */
  __device__ __forceinline__ uint32_t weight_bytes() const { return 2 * kGemvRows * stage_k(); }
  __device__ __forceinline__ uint32_t tile_bytes() const { return weight_bytes() + kGemvRows * scales.row_bytes; }
  /* Whether a tile has half of the chunks of a full stage or fewer; then a stage has two, of codes if their scales have
   * room, too. */
  __device__ __forceinline__ bool fills_half() const { return 2 * stage_chunks <= BLINK_STAGE_CHUNKS; }
  __device__ __forceinline__ uint32_t stage_tiles() const {
    return fills_half() && (!kIsCodes<Layers> || 2 * tile_bytes() <= StageShape<Layers>::kBytes) ? 2 : 1;
  }
  /* What a stage has of the block's tile `tile`, at the warp's k + done. */
  __device__ __forceinline__ void copy(char* to, uint32_t warp, uint32_t tile, uint32_t done, uint64_t* barrier) const {
    const uint32_t at = index(tile), k = first_k(warp) + done, y = gate_up ? 8 * at : 0, z = gate_up ? 0 : 2 * at;
    copy_box(to, map, k, y, z, barrier);
    if (scales.chunk_bytes)
      copy_box(to + weight_bytes(), scales.map, first_scale(warp, done) / kBoxGrain * (kBoxGrain / 2), y, z, barrier);
  }
};

/* Register by register: the address of a chosen array element would put the array into memory. */
__device__ __forceinline__ void swap_if(bool wanted, uint4& a, uint4& b) {
  const uint4 c = a;
  a = make_uint4(wanted ? b.x : a.x, wanted ? b.y : a.y, wanted ? b.z : a.z, wanted ? b.w : a.w);
  b = make_uint4(wanted ? c.x : b.x, wanted ? c.y : b.y, wanted ? c.z : b.z, wanted ? c.w : b.w);
}

/* __syncthreads of the warps that multiply. */
__device__ __forceinline__ void sync_workers() {
  group_sync(1, kMegakernelThreads);
}

/* A block's pipelines, with two barriers for each stage: its data has come; its data has been used. */
template <ScaleForm Form>
struct __align__(128) WeightPipelines {
  using Shape = StageShape<Form>;
  struct __align__(Shape::kAlign) Pipeline {
    char stage[Shape::kCount][Shape::kBytes];
  } of[kMegakernelWarps];
  uint64_t full[kMegakernelWarps][Shape::kCount], empty[kMegakernelWarps][Shape::kCount];

  /* Called by the whole block, before anything else. */
  __device__ __forceinline__ void init() {
    constexpr uint32_t kCount = Shape::kCount;
    if (threadIdx.x < kMegakernelWarps * kCount) {
      barrier_init(&full[threadIdx.x / kCount][threadIdx.x % kCount]);
      barrier_init(&empty[threadIdx.x / kCount][threadIdx.x % kCount]);
    }
    barrier_init_done();
    __syncthreads();
  }
};

/* What a lane needs of x for a chunk. */
template <ScaleForm Form>
struct StageVectors {
  uint4 of[1][kLaneVectors<Form>];
};

/* A tile of codes in a stage, as a lane sees it: its part of rows lane / 4 and + 8. */
template <ScaleForm Form>
class CodeTile {
 public:
  /* Of the stage at the warp's k + done. */
  __device__ __forceinline__ CodeTile(const char* tile, const BlockTiles<Form>& tiles, uint32_t done)
      : row_bytes_(2 * tiles.stage_k()), scale_bytes_(tiles.scales.row_bytes), chunk_bytes_(tiles.scales.chunk_bytes) {
    const uint32_t row = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
    const uint32_t unit = Form == kFp4By32 ? quarter : quarter * chunk_bytes_ / 16 * 4; /* of a chunk's scales */
    codes_ = tile + row * row_bytes_ + quarter * 16;
    scales_ = tile + tiles.weight_bytes() + row * scale_bytes_ + unit;
    scales_ += tiles.first_scale(threadIdx.x / 32, done) % kBoxGrain;
  }

  __device__ __forceinline__ LaneChunk<Form> load(uint32_t chunk) const {
    const char *const codes = codes_ + 2 * kGemvChunk * chunk, *const scales = scales_ + chunk * chunk_bytes_;
    LaneChunk<Form> of;
    of.low = *reinterpret_cast<const uint4*>(codes);
    of.high = *reinterpret_cast<const uint4*>(codes + 8 * row_bytes_);
    of.low_scale = *reinterpret_cast<const Unit*>(scales);
    of.high_scale = *reinterpret_cast<const Unit*>(scales + 8 * scale_bytes_);
    return of;
  }

 private:
  using Unit = typename CodeUnit<Form>::Type;

  const char *codes_, *scales_;
  uint32_t row_bytes_, scale_bytes_, chunk_bytes_;
};

/* The consumer side of a warp's pipeline. Layers: the form of the layers' matrices. */
template <typename Half, ScaleForm Layers>
class WeightStream {
 public:
  using Shape = StageShape<Layers>;

  __device__ __forceinline__ explicit WeightStream(WeightPipelines<Layers>& pipelines) : pipelines_(pipelines) {}

  /* Waits until the next stage has come, and returns where it lies. */
  __device__ __forceinline__ char* wait() const {
    const uint32_t warp = threadIdx.x / 32;
    barrier_wait(&pipelines_.full[warp][state_.index], state_.phase);
    return pipelines_.of[warp].stage[state_.index];
  }
  __device__ __forceinline__ void release() {
    __syncwarp(); /* every lane has read the stage */
    if (threadIdx.x % 32 == 0) barrier_arrive(&pipelines_.empty[threadIdx.x / 32][state_.index]);
    state_.next(Shape::kCount);
  }
  /* The same of keys and values. Stages that they cannot begin with come empty. */
  __device__ __forceinline__ char* wait_keys() {
    while (!Shape::takes_keys(state_.index)) wait(), release();
    return wait();
  }
  __device__ __forceinline__ void release_keys() {
    release();
#pragma unroll
    for (uint32_t more = 1; more < Shape::kOfKeys; ++more) wait(), release();
  }

  /* acc += a tile's weights, which the stage at the warp's k + done has brought, times x, where x[c] is token lane / 4
   * at what the lane has of the stage's chunk c: words 8 (lane % 4) and the next seven. */
  template <ScaleForm Form>
  __device__ __forceinline__ void add(const char* tile, float (&acc)[4],
                                      const StageVectors<Form> (&x)[kStageChunks<Form>],
                                      const BlockTiles<Layers>& tiles, uint32_t done) const {
    const uint32_t n_chunks = tiles.chunks(done);
    if constexpr (kIsCodes<Form>)
      add_codes<Form>({tile, tiles, done}, acc, x, n_chunks);
    else if (n_chunks == kStageChunks<Form>)
      add_chunks<Form, true>(tile, acc, x, kStageChunks<Form>);
    else
      add_chunks<Form, false>(tile, acc, x, n_chunks);
  }

 private:
  /* A tile is added in two halves, each with its loads together, and every other chunk goes into a sum of its own, so
   * that neither the loads nor the mma instructions wait for each other. Of fp8, for which x needs twice the registers,
   * the loads of two chunks are together, and there are none behind the last: zeros would be converted, too. The rows
   * of a full stage start at the same bank, so odd rows load each pair of chunks the other way round. */
  template <ScaleForm Form, bool Full>
  __device__ __forceinline__ void add_chunks(const char* tile, float (&acc)[4],
                                             const StageVectors<Form> (&x)[kStageChunks<Form>],
                                             uint32_t n_chunks) const {
    const uint32_t lane = threadIdx.x % 32, row_bytes = 2 * kGemvChunk * n_chunks;
    const char* low = tile + lane / 4 * row_bytes + lane % 4 * 16;
    const char* high = low + 8 * row_bytes;
    constexpr uint32_t kTogether = Form == kUnscaled ? kStageChunks<Form> / 2 : 2;
    const bool swap = Full && lane / 4 % 2;
    float other[4] = {};
#pragma unroll
    for (uint32_t first = 0; first < kStageChunks<Form>; first += kTogether) {
      if (!Full && Form != kUnscaled && first >= n_chunks) break;
      LaneChunk<Form> chunk[kTogether] = {};
#pragma unroll
      for (uint32_t c = 0; c < kTogether; ++c)
        if (Full || first + c < n_chunks) {
          const uint32_t at = 2 * kGemvChunk * (first + (swap ? c ^ 1 : c));
          chunk[c].low = *reinterpret_cast<const uint4*>(low + at);
          chunk[c].high = *reinterpret_cast<const uint4*>(high + at);
        }
#pragma unroll
      for (uint32_t c = 0; c < kTogether; c += 2) {
        swap_if(swap, chunk[c].low, chunk[c + 1].low);
        swap_if(swap, chunk[c].high, chunk[c + 1].high);
        multiply_chunk<Half, Form, 1>(&acc, chunk[c], x[first + c].of);
        multiply_chunk<Half, Form, 1>(&other, chunk[c + 1], x[first + c + 1].of);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[e] += other[e];
  }

  /* Of codes: each chunk is loaded while the one before it is multiplied. */
  template <ScaleForm Form>
  __device__ __forceinline__ void add_codes(const CodeTile<Form>& tile, float (&acc)[4],
                                            const StageVectors<Form> (&x)[kStageChunks<Form>],
                                            uint32_t n_chunks) const {
    float other[4] = {};
    LaneChunk<Form> next = tile.load(0);
#pragma unroll
    for (uint32_t c = 0; c < kStageChunks<Form>; ++c) {
      const LaneChunk<Form> now = next;
      if (c + 1 < n_chunks) next = tile.load(c + 1);
      const CodeOperands<Half, Form> operands(now);
#pragma unroll
      for (uint32_t p = 0; p < 4; ++p) {
        operands.multiply(&acc, 0, p, x[c].of);
        operands.multiply(&other, 2, p, x[c].of);
      }
      if (c + 1 >= n_chunks) break;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[e] += other[e];
  }

  WeightPipelines<Layers>& pipelines_;
  PipelineState state_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_MEGAKERNEL_WEIGHT_STREAM_SM90_H */
