/* One token's experts in two kernels: the norm, the routing, gate_up with silu * mul; then down, the weighted sum of
 * what they put out, and the sum's place in the residual. They compute what router.h, expert_gemv.h and combine.h
 * compute one after the other; their CPU references are its own. Neither what the router multiplies nor what an expert
 * puts out is rounded here.
 *
 *   sums           the router's, which the matmul before has left (fused_router.h)
 *   norm           [hidden] half, weights of the norm
 *   topk_ids, weight [per_token] (routing.h); nothing is added for padding
 *   gate_up        [experts][2][intermediate][hidden] half, down [experts][hidden][intermediate] half; or both fp8,
 *                  with scales of all experts' rows or blocks (gemm/weight_lanes.h)
 *   product        [per_token][intermediate] half: of each routed expert, silu(gate) * up
 *   residual       [hidden] fp32; residual += sum over k of weight[k] (product[k] down[topk_ids[k]]^T), in that order
 *
 * Biased: the router's logits get router_bias [experts] before they are ranked, gate_up's products bias
 * [experts][2][intermediate], and down's bias [experts][hidden]. With codes single_token_codes.h computes that.
 */
#ifndef BLINK_OPS_MOE_SINGLE_TOKEN_H
#define BLINK_OPS_MOE_SINGLE_TOKEN_H

#include "kernels/ops/gemm/gemv.h"
#include "expert_stream.h"
#include "fused_router.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSingleOutputs = 8;          /* of a tile */
constexpr uint32_t kSingleExperts = kGemvWarps; /* of a token at most */
/* Chunks of gate_up that are in flight in every warp. */
template <ScaleForm Form>
constexpr uint32_t kSingleDepth = Form == kUnscaled ? 8 : 4;

static_assert(kGemvThreads == kMaxExperts, "a thread has an expert");

/* What the routing is computed from, and where it goes. */
struct SingleTokenRouting {
  struct blink_step_set set;
  const int64_t* sums;
  uint32_t* topk_ids;
  float* weight;
  uint32_t n_experts, renormalise;
};

struct SingleTokenScratch {
  alignas(16) uint32_t keys[kMaxExperts]; /* logit_key of each expert's sum; 0 is nobody's */
  float squares[kGemvWarps];
  uint32_t chosen_keys[kSingleExperts];
  ExpertUnit units[kSingleExperts];              /* of one pair each, in the order of topk_ids */
  float part[2][kGemvWarps][2 * kSingleOutputs]; /* two tiles in turn, warps: rows of gate, rows of up */
};

/* Adds to the counts how many of 32 keys are greater than `own`, or, with Ties, as great and of an id below `lane`. */
template <bool Ties>
__device__ __forceinline__ void count_before(float (&counts)[4], const uint32_t* keys, uint32_t own, uint32_t lane) {
#pragma unroll
  for (uint32_t i = 0; i < 32; i += 4) {
    const uint4 other = *reinterpret_cast<const uint4*>(keys + i);
    count_greater(counts[0], other.x, own - (Ties && i < lane));
    count_greater(counts[1], other.y, own - (Ties && i + 1 < lane));
    count_greater(counts[2], other.z, own - (Ties && i + 2 < lane));
    count_greater(counts[3], other.w, own - (Ties && i + 3 < lane));
  }
}

/* How many experts go before the thread's own: higher ones, and equal ones with a lower id. All are ranked at once:
 * a top-k one by one would be eight rounds of the longest path through the layer. */
__device__ __forceinline__ uint32_t rank_of(const uint32_t (&keys)[kMaxExperts], uint32_t n_experts) {
  const uint32_t own = keys[threadIdx.x], lane = threadIdx.x % 32, group = threadIdx.x - lane;
  float counts[4] = {}; /* with one, each addition would wait for the one before */
  for (uint32_t first = 0; first < n_experts; first += 32)
    if (first != group) count_before<false>(counts, keys + first, first < group ? own - 1 : own, lane);
  count_before<true>(counts, keys + group, own, lane);
  return uint32_t(counts[0] + counts[1] + (counts[2] + counts[3]));
}

/* The norm's factor, from the warps' sums of squares. */
__device__ __forceinline__ float norm_factor(const SingleTokenScratch& scratch, uint32_t n_in, float eps) {
  float squares = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kGemvWarps; ++i) squares += scratch.squares[i];
  return 1.0f / sqrtf(squares / float(n_in) + eps);
}

/* The weight of the lane's expert. `scale`: what keys are of, times that, is logits. By a warp. */
__device__ __forceinline__ float single_weight(const SingleTokenScratch& scratch, const SingleTokenRouting& routing,
                                               uint32_t per_token, float scale) {
  const uint32_t lane = threadIdx.x % 32;
  const float highest = key_logit(scratch.chosen_keys[0]);
  const auto share = [&](uint32_t key) { return expf((key_logit(key) - highest) * scale); };
  const float own = lane < per_token ? share(scratch.chosen_keys[lane]) : 0.0f;
  float all = own;
  if (!routing.renormalise) {
    all = 0.0f;
    for (uint32_t e = lane; e < routing.n_experts; e += 32) all += share(scratch.keys[e]);
  }
  return own / warp_sum(all);
}

/* Reads the thread's part of the residual: its first elements, and returns the sum of all their squares. */
__device__ __forceinline__ float read_residual(const float* residual, float (&element)[8], uint32_t n_in, uint32_t t) {
  float squares = 0.0f;
  for (uint32_t j = t * 8; j < n_in; j += kGemvThreads * 8) {
    float value[8];
    load8(residual + j, value);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      squares += value[i] * value[i];
      if (j == t * 8) element[i] = value[i];
    }
  }
  return squares;
}
/* The same, where so many elements are all of the thread's: they are asked for together. */
template <uint32_t Rounds>
__device__ __forceinline__ float read_residual(const float* residual, float (&element)[Rounds][8], uint32_t n_in,
                                               uint32_t t) {
  float squares = 0.0f;
#pragma unroll
  for (uint32_t round = 0; round < Rounds; ++round) {
    const uint32_t j = (round * kGemvThreads + t) * 8;
    if (j < n_in) load8(residual + j, element[round]);
  }
#pragma unroll
  for (uint32_t round = 0; round < Rounds; ++round)
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += element[round][i] * element[round][i];
  return squares;
}

/* Routes, by the whole block. The residual is read meanwhile to `element`, and the warps' sums of its squares are left
 * in the scratch. Biased: `bias` is that of the thread's expert, and keys are of logits, for whose order the norm's
 * factor must be known. */
template <bool Biased, typename Elements>
__device__ __forceinline__ void route_single(SingleTokenScratch& scratch, const SingleTokenRouting& routing,
                                             const float* residual, Elements& element, uint32_t n_in,
                                             uint32_t per_token, float eps, float bias) {
  const uint32_t n = routing.n_experts, t = threadIdx.x;
  const float logit = t < n ? summed_logit(routing.sums, n, t) : 0.0f;
  float squares = read_residual(residual, element, n_in, t);
  if constexpr (Biased) {
    squares = warp_sum(squares);
    if (t % 32 == 0) scratch.squares[t / 32] = squares;
    __syncthreads();
    scratch.keys[t] = t < n ? logit_key(logit * norm_factor(scratch, n_in, eps) + bias) : 0;
    __syncthreads();
  } else {
    scratch.keys[t] = t < n ? logit_key(logit) : 0;
    __syncthreads();
    squares = warp_sum(squares);
    if (t % 32 == 0) scratch.squares[t / 32] = squares;
  }
  const uint32_t rank = t < n ? rank_of(scratch.keys, n) : per_token;
  if (rank < per_token)
    scratch.units[rank] = {t, rank, 1, Biased ? rank : 0}, scratch.chosen_keys[rank] = scratch.keys[t];
  __syncthreads();
}

/* Writes the routing, and makes it visible; by a warp of one block, before that lets its successor start (E14). */
template <bool Biased>
__device__ __forceinline__ void publish_routing(const SingleTokenScratch& scratch, const SingleTokenRouting& routing,
                                                uint32_t per_token, float scale, bool padding, uint32_t lane) {
  const float weight = single_weight(scratch, routing, per_token, Biased ? 1.0f : scale);
  if (lane < per_token) {
    routing.topk_ids[lane] = padding ? kNoExpert : scratch.units[lane].expert;
    routing.weight[lane] = padding ? 0.0f : weight;
  }
  publish();
}

/* Adds up an item of gate_up, writes it, and clears the sums; by the whole block. */
template <bool Biased, typename Half>
__device__ __forceinline__ void store_single(SingleTokenScratch& scratch, uint32_t buffer, float (&sums)[4],
                                             const OutputScales& scales, const float2& biases, const ExpertItem& item,
                                             Half* product, uint32_t n_out) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane % 4 == 0) {
    scratch.part[buffer][warp][lane / 4] = sums[0];
    scratch.part[buffer][warp][kSingleOutputs + lane / 4] = sums[2];
  }
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  __syncthreads(); /* also: all have read the other buffer */
  const uint32_t j = item.tile * kSingleOutputs + threadIdx.x;
  if (threadIdx.x >= kSingleOutputs || j >= n_out) return;
  float gate = 0.0f, up = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kGemvWarps; ++i)
    gate += scratch.part[buffer][i][threadIdx.x], up += scratch.part[buffer][i][kSingleOutputs + threadIdx.x];
  if constexpr (Biased) gate += biases.x, up += biases.y; /* of halves, whose scales are 1 */
  from_float(gated(scales.low * gate, scales.high * up), product + uint64_t(item.unit) * n_out + j);
}

/* Multiplies 8 elements by the norm's weights. */
template <typename Half>
__device__ __forceinline__ void multiply_by(float (&element)[8], const uint4& weights) {
#pragma unroll
  for (int i = 0; i < 8; ++i) element[i] *= to_float(reinterpret_cast<const Half*>(&weights)[i]);
}

/* grid (any), block (kGemvThreads), n_in halves of dynamic shared memory; n_in a multiple of 8, per_token at most
 * kSingleExperts and n_experts. Lets its successor start when the routing is there (E14). Biases are null unless it is
 * Biased. */
template <typename Half, ScaleForm Form = kUnscaled, bool Biased = false>
__global__ void __launch_bounds__(kGemvThreads, kGemvBlocks)
    moe_single_token_gate_up_kernel(const __grid_constant__ SingleTokenRouting routing, const float* residual,
                                    const Half* norm, float eps, typename WeightTypes<Half, Form>::Matrix w,
                                    Half* product, uint32_t n_in, uint32_t n_out, uint32_t per_token,
                                    const Half* router_bias, const Half* bias) {
  static_assert(!Biased || Form == kUnscaled, "no such kernel");
  constexpr uint32_t kDepth = kSingleDepth<Form>;
  __shared__ SingleTokenScratch scratch;
  /* With scales by block, ptxas makes so much of the quick conversion at once that registers do not suffice. */
  using X = typename Multiplied<Half, Form == kScaleByRow ? Form : kUnscaled>::Type;
  X* resident = reinterpret_cast<X*>(dynamic_shared());
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = threadIdx.x * 8;
  const bool padding = routing.set.token_sequence[0] == BLINK_NO_SEQUENCE;
  uint4 factors = {};
  load_weight(norm + begin, begin < n_in, factors);
  const float own_bias = Biased && threadIdx.x < routing.n_experts ? to_float(router_bias[threadIdx.x]) : 0.0f;
  wait_for_predecessor();
  float element[8] = {};
  route_single<Biased>(scratch, routing, residual, element, n_in, per_token, eps, own_bias);
  multiply_by<Half>(element, factors); /* behind the requests of the experts' weights, it would wait for these, too */

  const ExpertGemv<X, kGateUp, kDepth, Form> stream(scratch.units, padding ? 0 : per_token, w, n_in, n_out);
  LaneChunk<Form> chunk[kDepth] = {};
  ExpertRound present = stream.first();
  ExpertSource<X, Form> source = stream.source(present);
  OutputScales scales = stream.output_scales(present, threadIdx.x % kSingleOutputs);
  const auto biases_of = [&](const ExpertRound& round) {
    if constexpr (Biased)
      return stream.output_biases(bias, round, threadIdx.x % kSingleOutputs);
    else
      return float2();
  };
  float2 biases = biases_of(present);
#pragma unroll
  for (uint32_t slot = 0; slot < kDepth; ++slot) source.load(slot, chunk[slot]);

  const float scale = norm_factor(scratch, n_in, eps);
  if (blockIdx.x + 1 == gridDim.x && warp == 0) /* of all blocks the one with the fewest items, and so the time */
    publish_routing<Biased>(scratch, routing, per_token, scale, padding, lane);
  for (uint32_t j = begin; j < n_in; j += kGemvThreads * 8) {
    /* The first elements are there: read again, they would arrive behind all the weights that were asked for. */
    if (j != begin) {
      load8(residual + j, element);
      multiply_by<Half>(element, *reinterpret_cast<const uint4*>(norm + j));
    }
#pragma unroll
    for (float& value : element) value *= scale;
    hold8(resident + j, element, Half());
  }
  __syncthreads();
  allow_successor();

  uint32_t buffer = 0;
  float acc[2][4] = {};
  while (stream.exists(present)) {
    /* One token is all columns of the tensor cores' 8. */
    const X* row = resident + stream.k(present) + lane % 4 * kLaneWeights<Form>;
    const ExpertRound following = stream.after(present);
    const ExpertSource<X, Form> next = stream.source(following);
    expert_round<X, 1, kDepth, Form>(acc, chunk, row, 0, source, next);
    source = next;
    if (stream.ends_item(present)) {
      store_single<Biased>(scratch, buffer, acc[0], scales, biases, present.item, product, n_out);
      buffer ^= 1;
      scales = stream.output_scales(following, threadIdx.x % kSingleOutputs);
      biases = biases_of(following);
    }
    present = following;
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_SINGLE_TOKEN_H */
