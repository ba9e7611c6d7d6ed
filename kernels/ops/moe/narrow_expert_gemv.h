/* The matmuls of expert_gemv.h with weights in fp8 or in four bits, whose tiles go to the blocks in parts of
 * neighbours.
 */
#ifndef BLINK_OPS_MOE_NARROW_EXPERT_GEMV_H
#define BLINK_OPS_MOE_NARROW_EXPERT_GEMV_H

#include "expert_ring.h"

#ifdef __CUDACC__

namespace blink {

/* What x is in a matmul of the experts. Tokens are normed for gate_up alone (router.h), which multiplies fp8 by
 * float16, in which not everything has a place that an expert puts out. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form>
using ExpertInput = typename Multiplied<Half, Matmul == kGateUp ? Form : kUnscaled>::Type;

/* Where a block is in its ring of slots, and how many tiles come before. */
struct RingTurn {
  uint32_t slot = 0, tile = 0;
};

/* Multiplies tiles tile.. of a unit, whose pairs are Groups groups; by the block. The lane's x stays in registers while
 * the tiles follow each other, if a warp's part of a row is one round. Biases lie in the ring. */
template <typename Half, uint32_t Groups, bool Biased, typename X, ExpertMatmul Matmul, ScaleForm Form>
__device__ __forceinline__ void multiply_unit(ExpertSums& sums, ExpertRing<Matmul, Form>& ring, RingTurn& turn,
                                              const ExpertUnit unit, const uint32_t* pairs, const X* x, Half* out,
                                              uint32_t tile, uint32_t end) {
  using Ring = ExpertRing<Matmul, Form>;
  constexpr uint32_t kVectors = kLaneVectors<Form>, kDepth = Ring::kDepth, kOutputs = ExpertLayout<Matmul>::kOutputs;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const X* row[Groups];
#pragma unroll
  for (uint32_t g = 0; g < Groups; ++g) { /* what is computed for pairs past the end is not stored */
    const uint32_t sorted = unit.first + min(unit.count - 1, lane / 4 + kPairGroup * g);
    row[g] = x + uint64_t(Matmul == kGateUp ? pairs[sorted] : sorted) * ring.n_in + ring.first;
  }
  uint4 part[kDepth][Groups][kVectors] = {};
  LaneChunk<Form> chunk[kDepth] = {};
  for (bool fresh = true; tile < end; ++tile, ++turn.tile) {
    float acc[Groups][4] = {};
    for (uint32_t done = 0; done < ring.columns; done += kDepth) {
      /* Otherwise nothing is loaded to registers here: a warp that waits for x would wait for that, too. */
      const bool changes = fresh || ring.columns > kDepth;
      if (changes) {
#pragma unroll
        for (uint32_t i = 0; i < kDepth; ++i)
#pragma unroll
          for (uint32_t g = 0; g < Groups; ++g)
#pragma unroll
            for (uint32_t v = 0; v < kVectors; ++v)
              part[i][g][v] = done + i < ring.n_lane
                                  ? *reinterpret_cast<const uint4*>(row[g] + (done + i) * Ring::kChunk + 8 * v)
                                  : make_uint4(0, 0, 0, 0);
      }
      if (Form == kScaleByBlock && (changes || tile * kOutputs % kScaleBlock == 0)) {
        const LaneScales<Form> scales = ring.lane_scales(unit.expert, tile, done);
#pragma unroll
        for (uint32_t i = 0; i < kDepth; ++i) scales.load(i, done + i < ring.n_lane, chunk[i]);
      }
      fresh = false;
      ring.request_scales();
      ring.request_biases();
#pragma unroll
      for (uint32_t i = 0; i < kDepth; ++i) {
        ring.take(turn.slot + i, done + i < ring.n_lane, chunk[i]);
        /* Of codes, a warp's chunks past its last would cost as much as others; of fp8, little. */
        if (!kIsCodes<Form> || done + i < ring.n_warp) multiply_chunk<X, Form, Groups>(acc, chunk[i], part[i]);
        ring.request(i, turn.slot + i);
      }
      ring.advance();
      turn.slot = turn.slot + kDepth == Ring::kSlots ? 0 : turn.slot + kDepth;
    }
    const uint32_t buffer = turn.tile % 2;
#pragma unroll
    for (uint32_t g = 0; g < Groups; ++g)
      sums.part[buffer][warp][g][lane] = make_float4(acc[g][0], acc[g][1], acc[g][2], acc[g][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    /* Of codes the last warps first: where a row is not divided evenly, they have less of it, and so the time. */
    const uint32_t thread = kIsCodes<Form> ? kExpertThreads - 1 - threadIdx.x : threadIdx.x;
    const OutputScales scale = ring.output_scales(turn.tile, thread % kOutputs);
    const Half* bias = reinterpret_cast<const Half*>(ring.bias_of_tile[turn.tile % kScaledTiles]);
    store_tile<Half, Matmul, Biased>(sums, buffer, unit, pairs, out, tile, ring.n_out, scale, thread, bias, kOutputs);
  }
}

/* The matmul; by the block, which has met since it made the plan. `await_x` returns when x is there, for which the
 * first weights are not kept waiting. */
template <typename Half, ExpertMatmul Matmul, ScaleForm Form, bool Biased, typename Plan, typename AwaitX>
__device__ __forceinline__ void multiply_narrow(ExpertSums& sums, const Plan& plan,
                                                const typename WeightTypes<Half, Form>::Matrix& w,
                                                const ExpertInput<Half, Matmul, Form>* x, Half* out, uint32_t n_in,
                                                uint32_t n_out, const Half* bias, const AwaitX& await_x) {
  constexpr uint32_t kOutputs = ExpertLayout<Matmul>::kOutputs;
  __shared__ float scales[kScaledTiles][kTileScales];
  __shared__ uint4 biases[kScaledTiles][2];
  const uint32_t n_tiles = (n_out + kOutputs - 1) / kOutputs;
  const ExpertPart part(plan.units, plan.n_units, plan.n_groups, n_tiles);
  ExpertRing<Matmul, Form> ring(plan.units, w, n_in, n_out, part, n_tiles, scales, Biased ? bias : nullptr, biases);
  await_x();
  RingTurn turn;
  for (uint32_t unit = part.begin.unit, tile = part.begin.tile; unit <= part.end.unit; ++unit, tile = 0) {
    const uint32_t end = unit == part.end.unit ? part.end.tile : n_tiles;
    if (tile >= end) continue;
    if (kUnitPairs<Form> > kPairGroup && plan.units[unit].count > kPairGroup)
      multiply_unit<Half, kUnitPairs<Form> / kPairGroup, Biased>(sums, ring, turn, plan.units[unit], plan.pairs, x, out,
                                                                 tile, end);
    else
      multiply_unit<Half, 1, Biased>(sums, ring, turn, plan.units[unit], plan.pairs, x, out, tile, end);
  }
  wait_for_copies<0>(); /* they bring nothing, but write zeros */
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_NARROW_EXPERT_GEMV_H */
