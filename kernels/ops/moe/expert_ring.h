/* The experts' narrow weights on their way to the lanes of narrow_expert_gemv.h, through shared memory.
 *
 * A lane copies its own 16 bytes of two rows of a chunk to a place of its own, a slot, and takes chunks in the order in
 * which it asked for them. So no warp waits for another's weights, and what is on its way takes no registers: x is
 * there instead. Loads to registers would be waited for too early. A warp notes what it waits for on six scoreboards,
 * so waiting for one load (of x, say) means waiting for all later ones that share its scoreboard; and ptxas copies
 * registers at the end of a loop, which waits for them. With 32 tokens, warps waited for loads half of the time.
 *
 * The scales of codes come the same way, in words behind the weights of their chunk: at the head of a tile, loads of
 * them would take longer than a block has for all of the tile.
 */
#ifndef BLINK_OPS_MOE_EXPERT_RING_H
#define BLINK_OPS_MOE_EXPERT_RING_H

#include "expert_sums.h"

#ifdef __CUDACC__

namespace blink {

/* A tile of a unit; those of a unit follow each other. */
struct ExpertTile {
  uint32_t unit, tile;
};

/* Which tiles are the block's: neighbours, so that most of them are of one unit, whose x the lanes keep in registers.
 * The blocks' parts cost about the same. */
struct ExpertPart {
  ExpertTile begin, end;

  /* A tile of a unit of one group of pairs costs 4, of two groups 5. By the block, which has met since it made the
   * plan, and meets in it. */
  __device__ __forceinline__ ExpertPart(const ExpertUnit* units, uint32_t n_units, uint32_t n_groups,
                                        uint32_t n_tiles) {
    constexpr uint32_t kOfUnit = 3;
    __shared__ ExpertTile cut[2];
    const uint32_t all = (kOfUnit * n_units + n_groups) * n_tiles, each = all / gridDim.x, more = all % gridDim.x;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t block = blockIdx.x + i, at = block * each + min(block, more);
      if (threadIdx.x == 0 && at == all) cut[i] = {n_units, 0};
      for (uint32_t u = threadIdx.x; u < n_units; u += kExpertThreads) {
        const uint32_t before = (kOfUnit * u + units[u].groups_before) * n_tiles;
        const bool two = units[u].count > kPairGroup;
        if (at >= before && at - before < (kOfUnit + 1 + two) * n_tiles)
          cut[i] = {u, two ? (at - before) / (kOfUnit + 2) : (at - before) / (kOfUnit + 1)};
      }
    }
    __syncthreads();
    begin = cut[0], end = cut[1];
  }

  __device__ __forceinline__ uint32_t count(uint32_t n_tiles) const {
    return (end.unit - begin.unit) * n_tiles + end.tile - begin.tile;
  }
};

/* Chunks of a tile that a warp multiplies in a round: of fp8 all it has in Qwen3-30B-A3B, of codes also in gpt-oss. */
template <ExpertMatmul Matmul, ScaleForm Form>
constexpr uint32_t kRingDepth = Matmul == kGateUp && !kIsCodes<Form> ? 4 : 3;
constexpr uint32_t kRingRounds = 2; /* in flight */
constexpr uint32_t kExpertRingBytes = 65536;
/* Vectors of a slot: 16 bytes a lane of both rows of a chunk, and of codes a word a lane of both rows' scales. */
template <ScaleForm Form>
constexpr uint32_t kSlotVectors = kIsCodes<Form> ? 64 + 16 : 64;
/* Chunks of a row of codes from which on it is kLongDown's: more than one round of kDown. */
constexpr uint32_t kLongDownChunks = 13;
static_assert(kLongDownChunks == ExpertLayout<kDown>::kSplits * kRingDepth<kDown, kInt4ByGroup> + 1, "see above");
constexpr uint32_t kTileScales = 32; /* of a tile's rows, at most */
/* Tiles whose scales are there: those in flight, the present one, and one that other warps may still be storing. */
constexpr uint32_t kScaledTiles = 4;
static_assert(kRingRounds + 2 <= kScaledTiles, "no tile's scales are overwritten before they are used");

/* A lane's view of what is in flight, and of what is to be requested next. */
template <ExpertMatmul Matmul, ScaleForm Form>
struct ExpertRing {
  using Types = WeightTypes<__half, Form>; /* of fp8 or of codes: the same for all halves */
  using Layout = ExpertLayout<Matmul>;
  static constexpr uint32_t kDepth = kRingDepth<Matmul, Form>, kSlots = kRingRounds * kDepth;
  static constexpr uint32_t kChunk = kChunkWeights<Form>, kStride = kSlotVectors<Form>;
  static constexpr uint32_t kRows = Layout::kOutputs * (Matmul == kGateUp ? 2 : 1); /* of a tile */
  static constexpr uint32_t kUnitBytes = Form == kFp4By32 ? 1 : 4;                  /* of a unit's scale */
  static_assert(kExpertWarps * kSlots * kStride * sizeof(uint4) <= kExpertRingBytes, "a slot for each chunk in flight");

  const ExpertUnit* units;
  typename Types::Matrix w;
  uint32_t n_in, n_out, n_tiles;
  uint32_t first;   /* the lane's first k */
  uint32_t n_lane;  /* chunks of a tile of which the lane has a part: k may end within a chunk */
  uint32_t n_warp;  /* chunks of which some lane has a part */
  uint32_t columns; /* chunks of a warp's rounds */
  uint4* place;     /* the lane's, of a chunk's first row in the warp's first slot */
  /* Of codes, for scales: the lane's word of a chunk's first row in the first slot, which byte of it the lane's scale
   * begins with, and bytes of a row. */
  uint32_t *word, byte, row_bytes;
  float (*scales)[kTileScales];
  /* Of codes, for biases: [experts][2][n_out] halves, or null; those of tiles' outputs, 8 of gate and 8 of up. */
  const uint16_t* biases;
  uint4 (*bias_of_tile)[2];
  /* Of what is requested next: the lane's first row, and of codes its scales; its output; how many tiles are left; the
   * unit. */
  typename Types::Pointer low;
  const uint8_t* low_units;
  uint32_t o, left, unit, done, turn;

  __device__ __forceinline__ ExpertRing(const ExpertUnit* all, const typename Types::Matrix& weight, uint32_t in,
                                        uint32_t out, const ExpertPart& part, uint32_t tiles,
                                        float (&scales_of_tiles)[kScaledTiles][kTileScales], const void* all_biases,
                                        uint4 (&biases_of_tiles)[kScaledTiles][2])
      : units(all),
        w(weight),
        n_in(in),
        n_out(out),
        n_tiles(tiles),
        scales(scales_of_tiles),
        biases(static_cast<const uint16_t*>(all_biases)),
        bias_of_tile(biases_of_tiles),
        low_units(nullptr) {
    const uint32_t chunks = (in + kChunk - 1) / kChunk, share = (chunks + Layout::kSplits - 1) / Layout::kSplits;
    const uint32_t begin = min(chunks, threadIdx.x / 32 % Layout::kSplits * share);
    first = begin * kChunk + threadIdx.x % 4 * kLaneWeights<Form>;
    n_warp = min(chunks, begin + share) - begin;
    n_lane = in > first ? min(n_warp, (in - first + kChunk - 1) / kChunk) : 0;
    columns = (share + kDepth - 1) / kDepth * kDepth;
    place = reinterpret_cast<uint4*>(dynamic_shared()) + threadIdx.x / 32 * (kSlots * kStride) + threadIdx.x % 32;
    if constexpr (kIsCodes<Form>) {
      word = reinterpret_cast<uint32_t*>(place - threadIdx.x % 32 + 64) + threadIdx.x % 32;
      row_bytes = (in >> unit_shift()) * kUnitBytes;
      /* The rows of the lane are multiples of 8 apart, so that where words begin is the same for all. */
      byte = Form == kFp4By32 ? (output() * row_bytes + unit_of(first)) % 4 : 0;
    }
    left = part.count(n_tiles), unit = part.begin.unit, done = 0, turn = 0;
    open(part.begin.tile);
#pragma unroll
    for (uint32_t round = 0; round < kRingRounds; ++round, advance()) {
      request_scales();
      request_biases();
#pragma unroll
      for (uint32_t i = 0; i < kDepth; ++i) request(i, round * kDepth + i);
    }
  }

  __device__ __forceinline__ uint64_t rows() const { return Matmul == kGateUp ? 2 * n_out : n_out; }
  /* The lane's output in tile 0; of kDown, it has another 8 further on. */
  __device__ __forceinline__ static uint32_t output() {
    return 16 * (threadIdx.x / 32 / Layout::kSplits) + threadIdx.x % 32 / 4;
  }
  /* The next tile is this one of `unit`, if one is left. */
  __device__ __forceinline__ void open(uint32_t tile) {
    low = elements_of(w), o = n_out; /* nothing is wanted */
    if (!left) return;
    o = tile * Layout::kOutputs + output();
    const uint64_t row = units[unit].expert * rows() + o;
    low = low + (row * n_in + first);
    if constexpr (kIsCodes<Form>) low_units = static_cast<const uint8_t*>(w.scales) + row * row_bytes - byte;
  }
  __device__ __forceinline__ uint32_t unit_shift() const { return Form == kInt4ByGroup ? w.shift : 5; }
  /* Where in a row of scales that of column k is. */
  __device__ __forceinline__ uint32_t unit_of(uint32_t k) const { return (k >> unit_shift()) * kUnitBytes; }
  /* Before a round is requested: the scales of its tile, by the first threads. When these have waited for the round and
   * the block has met, all may read them. */
  __device__ __forceinline__ void request_scales() const {
    if (Form != kScaleByRow || done || threadIdx.x >= kRows || !left) return;
    const uint32_t own = o / Layout::kOutputs * Layout::kOutputs + threadIdx.x % Layout::kOutputs;
    const uint64_t row = units[unit].expert * rows() + threadIdx.x / Layout::kOutputs * n_out + own;
    if (own < n_out) copy_async_word(&scales[turn % kScaledTiles][threadIdx.x], scales_of(w) + row);
  }
  /* The same of the biases of its outputs. */
  __device__ __forceinline__ void request_biases() const {
    if (!biases || done || threadIdx.x >= 2 || !left) return;
    const uint64_t row = units[unit].expert * rows() + threadIdx.x * n_out;
    copy_weight(&bias_of_tile[turn % kScaledTiles][threadIdx.x], biases + row + o, true);
  }
  __device__ __forceinline__ void request_word(uint32_t slot, uint32_t of_row, const uint8_t* from, bool wanted) const {
    if (wanted) copy_async_word(word + slot * kStride * 4 + of_row, reinterpret_cast<const uint32_t*>(from));
  }
  /* Requests chunk `i` of the round to a slot. */
  __device__ __forceinline__ void request(uint32_t i, uint32_t slot) const {
    const bool wanted = done + i < n_lane, has_high = o + (Matmul == kGateUp ? 0 : 8) < n_out;
    typename Types::Pointer from = low + i * kChunk;
    copy_weight(place + slot * kStride, from, wanted && o < n_out);
    from = from + uint64_t(Matmul == kGateUp ? n_out : 8) * n_in;
    copy_weight(place + slot * kStride + 32, from, wanted && has_high);
    if constexpr (kIsCodes<Form>) {
      const uint8_t* scale = low_units + unit_of(first + (done + i) * kChunk);
      request_word(slot, 0, scale, wanted && o < n_out);
      request_word(slot, 32, scale + uint64_t(Matmul == kGateUp ? n_out : 8) * row_bytes, wanted && has_high);
    }
    commit_copies();
  }
  /* To the next round. */
  __device__ __forceinline__ void advance() {
    if (done + kDepth < columns) {
      done += kDepth, low += kDepth * kChunk;
      return;
    }
    low += int64_t(Layout::kOutputs) * n_in - int64_t(done) * kChunk;
    if constexpr (kIsCodes<Form>) low_units += Layout::kOutputs * row_bytes;
    done = 0, o += Layout::kOutputs;
    if (!left) return;
    ++turn, --left;
    if (!left)
      o = n_out;
    else if (o >= n_tiles * Layout::kOutputs)
      ++unit, open(0);
  }
  /* Those of the lane's rows of a tile, from chunk `done` on. */
  __device__ __forceinline__ LaneScales<Form> lane_scales(uint32_t expert, uint32_t tile, uint32_t done) const {
    const uint32_t o = min(n_out - 1, tile * Layout::kOutputs + output()), next = min(n_out - 1, o + 8);
    const uint64_t row = expert * rows();
    return LaneScales<Form>(w, row + o, row + (Matmul == kGateUp ? n_out + o : next), n_in,
                            first / kChunk * kChunk + done * kChunk);
  }
  /* What output `o` of the block's tile `number` is multiplied by at the end, and its up row. */
  __device__ __forceinline__ OutputScales output_scales(uint32_t number, uint32_t o) const {
    if (Form != kScaleByRow) return {1.0f, 1.0f};
    const float* of = scales[number % kScaledTiles] + o;
    return {of[0], Matmul == kGateUp ? of[Layout::kOutputs] : 1.0f};
  }
  /* The scale of a row's word in a slot, if it was wanted. Otherwise one that makes finite numbers of all codes, for x
   * is zero there: what no copy has brought might make NaN of them, also where the codes are zero. */
  __device__ __forceinline__ uint32_t scale_in(uint32_t slot, uint32_t of_row, bool wanted) const {
    constexpr uint32_t kFinite = 254; /* of bytes the largest exponent, in float16, too; as a half very small */
    const uint32_t* at = word + slot * kStride * 4 + of_row;
    if (!wanted) return kFinite;
    return Form == kFp4By32 ? reinterpret_cast<const uint8_t*>(at)[byte] : *at;
  }
  /* The chunk that was requested first; `wanted`: the lane has a part of it. */
  __device__ __forceinline__ void take(uint32_t slot, bool wanted, LaneChunk<Form>& chunk) const {
    wait_for_copies<kSlots - 1>();
    chunk.low = place[slot * kStride], chunk.high = place[slot * kStride + 32];
    if constexpr (kIsCodes<Form>)
      chunk.low_scale = scale_in(slot, 0, wanted), chunk.high_scale = scale_in(slot, 32, wanted);
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_EXPERT_RING_H */
