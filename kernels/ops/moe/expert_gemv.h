/* Expert GEMV: the experts' MLPs (MoE), down(silu(gate(x)) * up(x)) for every (token, expert) pair, in
 * two matmuls over the units of an expert plan.
 *
 *   topk_ids [tokens][per_token] (routing.h); the plan orders its pairs
 *   kGateUp  x [tokens][n_in] half, or float16 if w is fp8 with scales by row: the token of each pair;
 *            w [experts][2][n_out][n_in] half: gate, then up;
 *            out [pairs, sorted][n_out] half: silu(x gate^T) * (x up^T)
 *   kDown    x [pairs, sorted][n_in], what kGateUp put out; w [experts][n_out][n_in];
 *            out [tokens][per_token][n_out]: x w^T, each row in its pair's own place
 *
 * w may be fp8, with scales of all experts' rows or blocks (gemm/weight_lanes.h).
 *
 * For few pairs an expert, here; for many, grouped_gemm_sm90.h; of one token, single_token.h.
 *
 * E8. What an expert puts out for a token is a function of the token's normed hidden state alone: not of the other
 * tokens of its unit, of the unit's block, or of the order of units. Each row is written in its own place, and rows are
 * summed in the order in which the router ranks the experts. Nothing is added up by atomics except the router at batch
 * 1, in integers, whose sum has no order. A padding token is routed nowhere. (At batch 1, neither what the router
 * multiplies nor what the experts put out is rounded.)
 * E14. The gate_up of few tokens lets its successor, down, start only when all its blocks have waited for the router
 * (or for the output projection into which the router is fused), and, where the blocks route themselves, when the last
 * one has published the routing. So down may read the routing, from L2, before its own wait: it plans and requests
 * weights while gate_up ends.
 */
#ifndef BLINK_OPS_MOE_EXPERT_GEMV_H
#define BLINK_OPS_MOE_EXPERT_GEMV_H

#include "expert_sums.h"
#include "kernels/reference/matmul.h"

namespace blink {

#ifndef __CUDACC__

/* One pair: x [hidden] to out [hidden] through gate_up [2][intermediate][hidden] and down
 * [hidden][intermediate]; gated [2 * intermediate] and product [intermediate] are scratch. */
inline void expert_mlp(const float* x, const float* gate_up, const float* down, float* gated, float* product,
                       float* out, uint32_t hidden, uint32_t intermediate, Activation activation) {
  linear(x, gate_up, gated, 1, hidden, 2 * intermediate, 0, 2 * intermediate);
  gated_row(activation, gated, product, intermediate);
  linear(product, down, out, 1, intermediate, hidden, 0, hidden);
}

#else

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

/* Where a kernel gets its routing from: an earlier kernel made it, or the kernel itself does, for up to kFewTokens. */
enum RoutingSource { kRoutingGiven, kRoutingFused };

constexpr uint32_t kExpertBlocks = 2; /* of a multiprocessor: they fill its registers */
/* Chunks in flight in every warp, measured for bf16: with 8 a step is 2 % slower. Down in fp8 has an item's in
 * Qwen3-30B-A3B: slots that stay empty would be multiplied, too. */
template <ExpertMatmul Matmul, ScaleForm Form>
constexpr uint32_t kExpertDepth = Matmul == kDown && Form != kUnscaled ? 3 : 4;

/* Where a warp's chunks of an item come from: the lane's two rows of w at the warp's first k. */
template <typename Half, ScaleForm Form>
struct ExpertSource {
  const typename WeightTypes<Half, Form>::Element *low, *high;
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
    const auto* expert = elements_of(w) + first_row * n_in + at;
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
};

/* Adds a round of chunks to acc, for 8 * Columns pairs, and puts those of `next` in their place. `row` is the
 * lane's row of x in the first 8 pairs, at the round's first k of the lane, and that in the next 8 `apart` further on.
 *
 * A chunk of fp8 is taken out of its registers and the next one requested before it is multiplied: turning a round into
 * halves takes about as long as memory does. The compiler, which does this by itself for halves, must be kept from
 * moving the requests behind all multiplications: it moves them behind branches, so weights in fp8, which are numbers
 * even where they are stale, are multiplied by zeros past the end; and it hoists loads of x until no register is left,
 * but not over a __syncwarp. Of more than 8 pairs there are no registers for that. */
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
    if (Form != kUnscaled && Columns == 1) __syncwarp();
  }
}

/* What x is in a matmul of the experts. Tokens are normed for gate_up alone (router.h), which multiplies fp8 by float16
 * where that is quicker. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form>
using ExpertInput = typename Multiplied<Half, Matmul == kGateUp && Form == kScaleByRow ? Form : kUnscaled>::Type;

/* Of so many pairs an expert on average, or more, almost every expert has one. */
constexpr uint32_t kLikelyPairs = 2;
constexpr uint32_t kLikelyBytes = 131072; /* that a block asks for before the routing is known */

/* Brings the block's first items of gate_up to L2, as they are if every expert has a pair: until the routing is known
 * there is nothing else to read. An item lies there for whichever block has it. */
template <typename Half, ScaleForm Form>
__device__ __forceinline__ void prefetch_likely(const typename WeightTypes<Half, Form>::Matrix& w, uint32_t n_experts,
                                                uint32_t n_in, uint32_t n_out) {
  constexpr uint32_t kRows = ExpertLayout<kGateUp>::kOutputs; /* of gate, and of up */
  const uint32_t row_bytes = n_in * uint32_t(sizeof(typename WeightTypes<Half, Form>::Element));
  const uint32_t n_tiles = (n_out + kRows - 1) / kRows, n_items = max(1u, kLikelyBytes / (2 * kRows * row_bytes));
  const uint32_t i = threadIdx.x / 2, is_up = threadIdx.x % 2;
  const uint32_t item = blockIdx.x + i * gridDim.x, expert = item / n_tiles, first = item % n_tiles * kRows;
  if (i >= n_items || expert >= n_experts || row_bytes % 16) return;
  const uint64_t row = (uint64_t(expert) * 2 + is_up) * n_out + first;
  prefetch_bytes(elements_of(w) + row * n_in, min(kRows, n_out - first) * row_bytes);
}

/* grid (any), block (kExpertThreads); at most kSmallBatchTokens tokens and kSmallBatchPairs pairs; n_in a multiple
 * of 8. Every weight of a unit is read once, 16 bytes a lane straight into registers; the loads of the next tile are in
 * flight while the warps add up this one. Launch kExpertBlocks blocks a multiprocessor at most.
 *
 * kGateUp lets kDown start when all of its blocks have waited for the router, and the routing is there: kDown may then
 * read it, plan and request weights before its own wait, while the last blocks of kGateUp are at work. */
template <typename Half, ExpertMatmul Matmul, RoutingSource Source, ScaleForm Form = kUnscaled>
__global__ void __launch_bounds__(kExpertThreads, kExpertBlocks)
    moe_gemv_kernel(const __grid_constant__ Routing routing, typename WeightTypes<Half, Form>::Matrix w,
                    const ExpertInput<Half, Matmul, Form>* x, Half* out, uint32_t tokens, uint32_t n_in, uint32_t n_out,
                    uint32_t per_token) {
  using X = ExpertInput<Half, Matmul, Form>;
  __shared__ ExpertSums sums;
  constexpr bool kFew = Source != kRoutingGiven;
  __shared__ SmallBatchPlan<kFew ? kFewTokens : kSmallBatchTokens, kFew ? kFewPairs : kSmallBatchPairs> plan;
  if (Matmul == kGateUp && tokens * per_token >= kLikelyPairs * routing.n_experts)
    prefetch_likely<Half, Form>(w, routing.n_experts, n_in, n_out);
  plan.clear();
  if (Matmul == kGateUp) wait_for_predecessor();
  if constexpr (kFew) plan.choose(routing, tokens, per_token);
  allow_successor();
  plan.template make<Matmul == kGateUp>(Source == kRoutingGiven ? routing.topk_ids : nullptr, tokens, per_token);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, *pairs = plan.pairs; /* of gate_up, tokens */
  constexpr uint32_t kDepth = kExpertDepth<Matmul, Form>;
  const ExpertGemv<X, Matmul, kDepth, Form> stream(plan.units, plan.n_units, w, n_in, n_out);
  LaneChunk<Form> chunk[kDepth] = {};
  ExpertRound present = stream.first();
  ExpertSource<X, Form> source = stream.source(present);
#pragma unroll
  for (uint32_t slot = 0; slot < kDepth; ++slot) source.load(slot, chunk[slot]);
  if (Matmul == kDown) wait_for_predecessor();

  uint32_t buffer = 0;
  for (; stream.exists(present); buffer ^= 1) {
    const ExpertItem item = present.item;
    const ExpertUnit unit = plan.units[item.unit];
    const OutputScales scale = stream.output_scales(present, threadIdx.x % ExpertLayout<Matmul>::kOutputs);
    const auto place = [&](uint32_t column) { /* in x; what is computed for pairs past the end is not stored */
                                              const uint32_t sorted = unit.first + min(unit.count - 1, column);
                                              return (Matmul == kGateUp ? pairs[sorted] : sorted) * n_in;
    };
    const uint32_t first = place(lane / 4), apart = place(lane / 4 + 8) - first;
    const X* row = x + first + stream.first_k + lane % 4 * kLaneWeights<Form>;
    float acc[2][4] = {};
    for (bool last = false; !last;) {
      last = stream.ends_item(present);
      present = stream.after(present);
      const ExpertSource<X, Form> next = stream.source(present);
      if (unit.count > 8)
        expert_round<X, 2, kDepth, Form>(acc, chunk, row, apart, source, next);
      else
        expert_round<X, 1, kDepth, Form>(acc, chunk, row, 0, source, next);
      source = next;
      row += kDepth * kChunkWeights<Form>;
    }
#pragma unroll
    for (int g = 0; g < 2; ++g)
      sums.part[buffer][warp][g][lane] = make_float4(acc[g][0], acc[g][1], acc[g][2], acc[g][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    store_tile<Half, Matmul>(sums, buffer, unit, pairs, out, item.tile, n_out, scale);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_EXPERT_GEMV_H */
