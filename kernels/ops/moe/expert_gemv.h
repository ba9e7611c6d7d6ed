/* Expert GEMV: the experts' MLPs (MoE), down(silu(gate(x)) * up(x)) for every (token, expert) pair, in
 * two matmuls over the units of an expert plan.
 *
 *   topk_ids [tokens][per_token] (routing.h); the plan orders its pairs
 *   kGateUp  x [tokens][n_in] half, or float16 if w is fp8: the token of each pair;
 *            w [experts][2][n_out][n_in] half: gate, then up;
 *            out [pairs, sorted][n_out] half: silu(x gate^T) * (x up^T), the products plus `bias`
 *            [experts][2][n_out] if the kernel is Biased
 *   kDown    x [pairs, sorted][n_in], what kGateUp put out; w [experts][n_out][n_in];
 *            out [tokens][per_token][n_out]: x w^T, each row in its pair's own place
 *
 * w may be fp8 or codes of four bits, with scales of all experts' rows, blocks or groups (gemm/weight_lanes.h). A bias
 * of down is added when rows are (combine.h).
 *
 * For few pairs an expert, here, with narrow weights in narrow_expert_gemv.h; for many, grouped_gemm_sm90.h,
 * grouped_fp8_gemm_sm90.h and grouped_codes_gemm_sm90.h; of one token, single_token.h.
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

#include "expert_stream.h"
#include "narrow_expert_gemv.h"
#include "kernels/reference/matmul.h"

namespace blink {

#ifndef __CUDACC__

/* One pair: x [hidden] to out [hidden] through gate_up [2][intermediate][hidden], with gate_up_bias
 * [2][intermediate] unless that is null, and down [hidden][intermediate]; gated [2 * intermediate] and product
 * [intermediate] are scratch. */
inline void expert_mlp(const float* x, const float* gate_up, const float* gate_up_bias, const float* down, float* gated,
                       float* product, float* out, uint32_t hidden, uint32_t intermediate, Activation activation) {
  linear(x, gate_up, gated, 1, hidden, 2 * intermediate, 0, 2 * intermediate);
  for (uint32_t j = 0; gate_up_bias && j < 2 * intermediate; ++j) gated[j] += gate_up_bias[j];
  gated_row(activation, gated, product, intermediate);
  linear(product, down, out, 1, intermediate, hidden, 0, hidden);
}

#else

/* Where a kernel gets its routing from: an earlier kernel made it, or the kernel itself does, for up to kFewTokens. */
enum RoutingSource { kRoutingGiven, kRoutingFused };

/* Of a multiprocessor: they fill its registers, and with narrow weights, whose blocks have a ring, its shared memory
 * (E23). */
constexpr uint32_t kExpertBlocks = 2;

/* The matmul of weights in halves, whose tiles go to the blocks in turn. */
template <typename Half, ExpertMatmul Matmul, bool Biased>
__device__ __forceinline__ void multiply_halves(ExpertSums& sums, const ExpertUnit* units, uint32_t n_units,
                                                const uint32_t* pairs, const Half* w, const Half* x, Half* out,
                                                uint32_t n_in, uint32_t n_out, const Half* bias) {
  constexpr uint32_t kDepth = kExpertDepth;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const ExpertGemv<Half, Matmul, kDepth, kUnscaled> stream(units, n_units, w, n_in, n_out);
  LaneChunk<kUnscaled> chunk[kDepth] = {};
  ExpertRound present = stream.first();
  ExpertSource<Half, kUnscaled> source = stream.source(present);
#pragma unroll
  for (uint32_t slot = 0; slot < kDepth; ++slot) source.load(slot, chunk[slot]);
  if (Matmul != kGateUp) wait_for_predecessor();

  uint32_t buffer = 0;
  for (; stream.exists(present); buffer ^= 1) {
    const ExpertItem item = present.item;
    const ExpertUnit unit = units[item.unit];
    const auto place = [&](uint32_t column) { /* in x; what is computed for pairs past the end is not stored */
                                              const uint32_t sorted = unit.first + min(unit.count - 1, column);
                                              return (Matmul == kGateUp ? pairs[sorted] : sorted) * n_in;
    };
    const uint32_t first = place(lane / 4), apart = place(lane / 4 + kPairGroup) - first;
    const Half* row = x + first + stream.first_k + lane % 4 * kLaneWeights<kUnscaled>;
    float acc[2][4] = {};
    for (bool last = false; !last;) {
      last = stream.ends_item(present);
      present = stream.after(present);
      const ExpertSource<Half, kUnscaled> next = stream.source(present);
      if (unit.count > kPairGroup)
        expert_round<Half, 2, kDepth, kUnscaled>(acc, chunk, row, apart, source, next);
      else
        expert_round<Half, 1, kDepth, kUnscaled>(acc, chunk, row, 0, source, next);
      source = next;
      row += kDepth * kChunkWeights<kUnscaled>;
    }
#pragma unroll
    for (int g = 0; g < 2; ++g)
      sums.part[buffer][warp][g][lane] = make_float4(acc[g][0], acc[g][1], acc[g][2], acc[g][3]);
    __syncthreads(); /* also: all have read the other buffer's sums */
    const uint32_t output = item.tile * ExpertLayout<Matmul>::kOutputs;
    const Half* of_tile = Biased ? bias + uint64_t(unit.expert) * 2 * n_out + output : nullptr;
    store_tile<Half, Matmul, Biased>(sums, buffer, unit, pairs, out, item.tile, n_out, {1.0f, 1.0f}, threadIdx.x,
                                     of_tile, n_out);
  }
}

/* Of so many pairs an expert on average, or more, almost every expert has one. */
constexpr uint32_t kLikelyPairs = 2;
constexpr uint32_t kLikelyBytes = 131072; /* that a block asks for before the routing is known */

/* Brings the block's first items of gate_up to L2, as they are if every expert has a pair: until the routing is known
 * there is nothing else to read. An item lies there for whichever block has it. */
template <typename Half>
__device__ __forceinline__ void prefetch_likely(const Half* w, uint32_t n_experts, uint32_t n_in, uint32_t n_out) {
  constexpr uint32_t kRows = ExpertLayout<kGateUp>::kOutputs; /* of gate, and of up */
  const uint32_t row_bytes = n_in * uint32_t(sizeof(Half));
  const uint32_t n_tiles = (n_out + kRows - 1) / kRows, n_items = max(1u, kLikelyBytes / (2 * kRows * row_bytes));
  const uint32_t i = threadIdx.x / 2, is_up = threadIdx.x % 2;
  const uint32_t item = blockIdx.x + i * gridDim.x, expert = item / n_tiles, first = item % n_tiles * kRows;
  if (i >= n_items || expert >= n_experts || row_bytes % 16) return;
  const uint64_t row = (uint64_t(expert) * 2 + is_up) * n_out + first;
  prefetch_bytes(w + row * n_in, min(kRows, n_out - first) * row_bytes);
}

/* grid (any), block (kExpertThreads); at most kSmallBatchTokens tokens and kSmallBatchPairs pairs; n_in a multiple
 * of 8, for fp8 of 16 and for codes of 32, which also need kExpertRingBytes of dynamic shared memory; for codes n_out
 * is a multiple of 8. Every weight of a unit is read once, and the next tile's are on their way while the warps add up
 * this one. Launch kExpertBlocks blocks a multiprocessor at most.
 *
 * kGateUp lets kDown start when all of its blocks have waited for the router, and the routing is there: kDown may then
 * read it, plan and request weights before its own wait, while the last blocks of kGateUp are at work. */
template <typename Half, ExpertMatmul Matmul, RoutingSource Source, ScaleForm Form = kUnscaled, bool Biased = false>
__global__ void __launch_bounds__(kExpertThreads, kExpertBlocks)
    moe_gemv_kernel(const __grid_constant__ Routing routing, typename WeightTypes<Half, Form>::Matrix w,
                    const ExpertInput<Half, Matmul, Form>* x, Half* out, uint32_t tokens, uint32_t n_in, uint32_t n_out,
                    uint32_t per_token, const Half* bias) {
  static_assert(!Biased || (Matmul == kGateUp && !kIsFp8<Form>), "no such kernel");
  __shared__ ExpertSums sums;
  constexpr bool kFew = Source != kRoutingGiven;
  constexpr uint32_t kTokens = kFew ? kFewTokens : kSmallBatchTokens, kPairs = kFew ? kFewPairs : kSmallBatchPairs;
  constexpr uint32_t kUnit = kUnitPairs<Form>;
  __shared__ SmallBatchPlan<kTokens, kPairs, kUnit> plan;
  if constexpr (Matmul == kGateUp && Form == kUnscaled)
    if (tokens * per_token >= kLikelyPairs * routing.n_experts) prefetch_likely(w, routing.n_experts, n_in, n_out);
  plan.clear();
  if (Matmul == kGateUp) wait_for_predecessor();
  if constexpr (kFew) plan.choose(routing, tokens, per_token);
  allow_successor();
  plan.template make<Matmul == kGateUp>(Source == kRoutingGiven ? routing.topk_ids : nullptr, tokens, per_token);
  if constexpr (Form == kUnscaled)
    multiply_halves<Half, Matmul, Biased>(sums, plan.units, plan.n_units, plan.pairs, w, x, out, n_in, n_out, bias);
  else
    multiply_narrow<Half, Matmul, Form, Biased>(sums, plan, w, x, out, n_in, n_out, bias, [] {
      if (Matmul != kGateUp) wait_for_predecessor();
    });
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_MOE_EXPERT_GEMV_H */
