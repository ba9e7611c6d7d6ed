/* The experts' narrow weights on their way to the lanes of narrow_expert_gemv.h, through shared memory.
 *
 * A lane copies its own 16 bytes of two rows of a chunk to a place of its own, a slot, and takes chunks in the order in
 * which it asked for them. So no warp waits for another's weights, and what is on its way takes no registers: x is
 * there instead. Loads to registers would be waited for too early. A warp notes what it waits for on six scoreboards,
 * so waiting for one load (of x, say) means waiting for all later ones that share its scoreboard; and ptxas copies
 * registers at the end of a loop, which waits for them. With 32 tokens, warps waited for loads half of the time.
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

/* Chunks of a tile that a warp multiplies in a round: all it has in Qwen3-30B-A3B. */
template <ExpertMatmul Matmul>
constexpr uint32_t kRingDepth = Matmul == kDown ? 3 : 4;
constexpr uint32_t kRingRounds = 2; /* in flight */
constexpr uint32_t kRingSlots = 8;  /* for chunks of a warp, of 1,024 bytes each */
constexpr uint32_t kExpertRingBytes = kExpertWarps * kRingSlots * 1024;
static_assert(kRingRounds * kRingDepth<kGateUp> <= kRingSlots, "a slot for each chunk in flight");
constexpr uint32_t kTileScales = 32; /* of a tile's rows, at most */
/* Tiles whose scales are there: those in flight, the present one, and one that other warps may still be storing. */
constexpr uint32_t kScaledTiles = 4;
static_assert(kRingRounds + 2 <= kScaledTiles, "no tile's scales are overwritten before they are used");

/* A lane's view of what is in flight, and of what is to be requested next. */
template <ExpertMatmul Matmul, ScaleForm Form>
struct ExpertRing {
  using Types = WeightTypes<__half, Form>; /* of fp8 or of codes: the same for all halves */
  using Layout = ExpertLayout<Matmul>;
  static constexpr uint32_t kDepth = kRingDepth<Matmul>, kSlots = kRingRounds * kDepth, kChunk = kChunkWeights<Form>;
  static constexpr uint32_t kRows = Layout::kOutputs * (Matmul == kGateUp ? 2 : 1); /* of a tile */

  const ExpertUnit* units;
  typename Types::Matrix w;
  uint32_t n_in, n_out, n_tiles;
  uint32_t first;   /* the lane's first k */
  uint32_t n_lane;  /* chunks of a tile of which the lane has a part: k may end within a chunk */
  uint32_t columns; /* chunks of a warp's rounds */
  uint4* place;     /* the lane's, of a chunk's first row in the warp's first slot */
  float (*scales)[kTileScales];
  /* Of what is requested next: the lane's first row, its output; how many tiles are left; the unit. */
  typename Types::Pointer low;
  uint32_t o, left, unit, done, turn;

  __device__ __forceinline__ ExpertRing(const ExpertUnit* all, const typename Types::Matrix& weight, uint32_t in,
                                        uint32_t out, const ExpertPart& part, uint32_t tiles,
                                        float (&scales_of_tiles)[kScaledTiles][kTileScales])
      : units(all), w(weight), n_in(in), n_out(out), n_tiles(tiles), scales(scales_of_tiles) {
    const uint32_t chunks = (in + kChunk - 1) / kChunk, share = (chunks + Layout::kSplits - 1) / Layout::kSplits;
    const uint32_t begin = min(chunks, threadIdx.x / 32 % Layout::kSplits * share);
    first = begin * kChunk + threadIdx.x % 4 * kLaneWeights<Form>;
    n_lane = in > first ? min(min(chunks, begin + share) - begin, (in - first + kChunk - 1) / kChunk) : 0;
    columns = (share + kDepth - 1) / kDepth * kDepth;
    place = reinterpret_cast<uint4*>(dynamic_shared()) + threadIdx.x / 32 * (kSlots * 64) + threadIdx.x % 32;
    left = part.count(n_tiles), unit = part.begin.unit, done = 0, turn = 0;
    open(part.begin.tile);
#pragma unroll
    for (uint32_t round = 0; round < kRingRounds; ++round, advance()) {
      request_scales();
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
    low = low + ((units[unit].expert * rows() + o) * n_in + first);
  }
  /* Before a round is requested: the scales of its tile, by the first threads. When these have waited for the round and
   * the block has met, all may read them. */
  __device__ __forceinline__ void request_scales() const {
    if (Form != kScaleByRow || done || threadIdx.x >= kRows || !left) return;
    const uint32_t own = o / Layout::kOutputs * Layout::kOutputs + threadIdx.x % Layout::kOutputs;
    const uint64_t row = units[unit].expert * rows() + threadIdx.x / Layout::kOutputs * n_out + own;
    if (own < n_out) copy_async_word(&scales[turn % kScaledTiles][threadIdx.x], scales_of(w) + row);
  }
  /* Requests chunk `i` of the round to a slot. */
  __device__ __forceinline__ void request(uint32_t i, uint32_t slot) const {
    const bool wanted = done + i < n_lane;
    typename Types::Pointer from = low + i * kChunk;
    copy_weight(place + slot * 64, from, wanted && o < n_out);
    from = from + uint64_t(Matmul == kGateUp ? n_out : 8) * n_in;
    copy_weight(place + slot * 64 + 32, from, wanted && o + (Matmul == kGateUp ? 0 : 8) < n_out);
    commit_copies();
  }
  /* To the next round. */
  __device__ __forceinline__ void advance() {
    if (done + kDepth < columns) {
      done += kDepth, low += kDepth * kChunk;
      return;
    }
    low += int64_t(Layout::kOutputs) * n_in - int64_t(done) * kChunk;
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
  /* The chunk that was requested first. */
  __device__ __forceinline__ void take(uint32_t slot, LaneChunk<Form>& chunk) const {
    wait_for_copies<kSlots - 1>();
    chunk.low = place[slot * 64], chunk.high = place[slot * 64 + 32];
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_EXPERT_RING_H */
