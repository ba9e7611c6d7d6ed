/* The experts' weights straight into registers: in halves (expert_gemv.h), and in either type for one token
 * (single_token.h), whose x lies in shared memory. In fp8 and in codes, those of several tokens go through
 * expert_ring.h.
 */
#ifndef BLINK_OPS_MOE_EXPERT_STREAM_H
#define BLINK_OPS_MOE_EXPERT_STREAM_H

#include "expert_sums.h"

#ifdef __CUDACC__

namespace blink {

/* A block's items are the units of the plan, times the tiles of an output: item i is tile i % n_tiles of unit
 * i / n_tiles. An expert's tiles are neighbours, and so in memory are its weights. */
struct ExpertItem {
  uint32_t unit, tile;
};

/* A warp goes through its share of an item in rounds of chunks. */
struct ExpertRound {
  ExpertItem item;
  uint32_t number;
};

constexpr uint32_t kExpertDepth = 4; /* chunks in flight in every warp of expert_gemv.h: with 8 a step is 2 % slower */

/* Where a warp's chunks of an item come from: the lane's two rows of w at the warp's first k. */
template <typename Half, ScaleForm Form>
struct ExpertSource {
  typename WeightTypes<Half, Form>::Pointer low, high;
  uint32_t n_chunks, n; /* left for the warp, and for the lane */
  LaneScales<Form> scales;

  __device__ __forceinline__ bool has(uint32_t slot) const { return slot < n; }
  __device__ __forceinline__ void load(uint32_t slot, LaneChunk<Form>& chunk) const {
    load_weight(low + slot * kChunkWeights<Form>, has(slot), chunk.low);
    load_weight(high + slot * kChunkWeights<Form>, has(slot), chunk.high);
    scales.load(slot, has(slot), chunk);
  }
};

/* A warp's view of the whole matmul. */
template <typename Half, ExpertMatmul Matmul, uint32_t Depth, ScaleForm Form>
struct ExpertGemv {
  using Layout = ExpertLayout<Matmul>;
  using Source = ExpertSource<Half, Form>;
  using Matrix = typename WeightTypes<Half, Form>::Matrix;
  const ExpertUnit* units;
  Matrix w;
  uint32_t n_units, n_in, n_out, n_tiles, first_k, n_chunks, rounds;
  ExpertItem step; /* of a block from an item to its next */

  __device__ __forceinline__ ExpertGemv(const ExpertUnit* all_units, uint32_t all, const Matrix& weight, uint32_t in,
                                        uint32_t out)
      : units(all_units), w(weight), n_units(all), n_in(in), n_out(out) {
    constexpr uint32_t kChunk = kChunkWeights<Form>;
    n_tiles = (out + Layout::kOutputs - 1) / Layout::kOutputs;
    step = {gridDim.x / n_tiles, gridDim.x % n_tiles};
    const uint32_t chunks = (in + kChunk - 1) / kChunk;
    const uint32_t share = (chunks + Layout::kSplits - 1) / Layout::kSplits;
    const uint32_t first = min(chunks, threadIdx.x / 32 % Layout::kSplits * share);
    first_k = first * kChunk;
    n_chunks = min(chunks, first + share) - first;
    rounds = (share + Depth - 1) / Depth;
  }

  /* The block's first round and the one after another, without a division. Member by member: the address of a chosen
   * item would put items into memory. */
  __device__ __forceinline__ ExpertRound first() const { return {{blockIdx.x / n_tiles, blockIdx.x % n_tiles}, 0}; }
  __device__ __forceinline__ ExpertRound after(const ExpertRound& round) const {
    const bool last = ends_item(round);
    const uint32_t tile = round.item.tile + (last ? step.tile : 0), turn = tile >= n_tiles;
    return {{round.item.unit + (last ? step.unit : 0) + turn, turn ? tile - n_tiles : tile},
            last ? 0 : round.number + 1};
  }
  __device__ __forceinline__ bool ends_item(const ExpertRound& round) const { return round.number + 1 == rounds; }
  __device__ __forceinline__ bool exists(const ExpertRound& round) const { return round.item.unit < n_units; }
  /* The warp's first k of a round. */
  __device__ __forceinline__ uint32_t k(const ExpertRound& round) const {
    return first_k + round.number * (Depth * kChunkWeights<Form>);
  }

  /* Rows of w of an expert. */
  __device__ __forceinline__ uint64_t rows() const { return Matmul == kGateUp ? 2 * n_out : n_out; }

  /* The chunks of a round; rows past the end repeat the last one. */
  __device__ __forceinline__ Source source(const ExpertRound& round) const {
    constexpr uint32_t kChunk = kChunkWeights<Form>;
    const ExpertItem item = round.item;
    const uint32_t done = round.number * Depth, r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    if (!exists(round) || done >= n_chunks) return {elements_of(w), elements_of(w), 0, 0, {}};
    const uint32_t chunk = k(round), at = chunk + q * kLaneWeights<Form>;
    const uint32_t group = threadIdx.x / 32 / Layout::kSplits;
    const uint32_t o = item.tile * Layout::kOutputs + 16 * group + r;
    const uint32_t low = min(n_out - 1, o);
    const uint32_t high = Matmul == kGateUp ? n_out + low : min(n_out - 1, o + 8);
    const uint64_t first_row = units[item.unit].expert * rows();
    const auto expert = elements_of(w) + first_row * n_in + at;
    const uint32_t left = n_chunks - done, to_end = n_in > at ? (n_in - at + kChunk - 1) / kChunk : 0;
    return {expert + uint64_t(low) * n_in, expert + uint64_t(high) * n_in, left, min(left, to_end),
            LaneScales<Form>(w, first_row + low, first_row + high, n_in, chunk)};
  }

  /* What output `o` of a round's tile, and for kGateUp its up row, are multiplied by at the end. */
  __device__ __forceinline__ OutputScales output_scales(const ExpertRound& round, uint32_t o) const {
    if (Form != kScaleByRow || !exists(round)) return {1.0f, 1.0f};
    const uint32_t row = min(n_out - 1, round.item.tile * Layout::kOutputs + o);
    const float* of = scales_of(w) + units[round.item.unit].expert * rows() + row;
    return {of[0], Matmul == kGateUp ? of[n_out] : 1.0f};
  }
  /* The same of what kGateUp adds to both: biases [experts][2][n_out]. */
  __device__ __forceinline__ float2 output_biases(const Half* biases, const ExpertRound& round, uint32_t o) const {
    if (!exists(round)) return make_float2(0.0f, 0.0f);
    const uint32_t row = min(n_out - 1, round.item.tile * Layout::kOutputs + o);
    const Half* of = biases + units[round.item.unit].expert * rows() + row;
    return make_float2(to_float(of[0]), to_float(of[n_out]));
  }
};

/* Adds a round of chunks to acc, for 8 * Columns pairs, and puts those of `next` in their place. `row` is the
 * lane's row of x in the first 8 pairs, at the round's first k of the lane, and that in the next 8 `apart` further on.
 *
 * A chunk of fp8 is taken out of its registers and the next one requested before it is multiplied: turning a round into
 * halves takes about as long as memory does. The compiler, which does this by itself for halves, must be kept from
 * moving the requests behind all multiplications: it moves them behind branches, so weights in fp8, which are numbers
 * even where they are stale, are multiplied by zeros past the end; and it hoists loads of x until no register is left,
 * but not over a __syncwarp. */
template <typename Half, int Columns, uint32_t Depth, ScaleForm Form>
__device__ __forceinline__ void expert_round(float (&acc)[2][4], LaneChunk<Form> (&chunk)[Depth], const Half* row,
                                             uint32_t apart, const ExpertSource<Half, Form>& source,
                                             const ExpertSource<Half, Form>& next) {
  constexpr uint32_t kVectors = kLaneVectors<Form>;
  constexpr uint32_t kAhead = 4 / Columns / kVectors; /* chunks whose x is loaded together */
#pragma unroll
  for (uint32_t first = 0; first < Depth; first += kAhead) {
    uint4 x[kAhead][Columns][kVectors];
#pragma unroll
    for (uint32_t i = 0; i < kAhead && first + i < Depth; ++i)
#pragma unroll
      for (int g = 0; g < Columns; ++g)
#pragma unroll
        for (uint32_t v = 0; v < kVectors; ++v) {
          x[i][g][v] = make_uint4(0, 0, 0, 0); /* past the end of k, where chunk holds stale weights */
          if (source.has(first + i))
            x[i][g][v] =
                *reinterpret_cast<const uint4*>(row + int32_t(g * apart) + (first + i) * kChunkWeights<Form> + 8 * v);
        }
#pragma unroll
    for (uint32_t i = 0; i < kAhead && first + i < Depth; ++i) {
      if constexpr (Form == kUnscaled) {
        if (first + i < source.n_chunks) multiply_chunk<Half, Form, Columns>(acc, chunk[first + i], x[i]);
        next.load(first + i, chunk[first + i]);
      } else {
        const LaneChunk<Form> taken = chunk[first + i];
        next.load(first + i, chunk[first + i]);
        multiply_chunk<Half, Form, Columns>(acc, taken, x[i]);
      }
    }
    if (Form != kUnscaled) __syncwarp();
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_EXPERT_STREAM_H */
