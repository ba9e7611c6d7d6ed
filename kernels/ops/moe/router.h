/* Router: what lies between attention and the experts for few tokens, in one kernel: the norm, the router's matmul
 * with the normed tokens, and the top-k routing, which for up to kFewTokens is left to the experts' kernel. It
 * computes what rmsnorm, a GEMM and route compute one after the other; their CPU references are its own.
 *
 *   residual [tokens][hidden] fp32; norm [hidden]; w [n_experts][hidden], the router
 *   normed   [tokens][hidden] for the experts, in the type X in which they multiply
 *   logits   [tokens][n_experts] fp32; topk_ids, weight (routing.h)
 *   bias     [n_experts], which the logits get if Biased, null otherwise
 *   arrivals [ceil(tokens / kRouterTokens)], zero between kernels
 */
#ifndef BLINK_OPS_MOE_ROUTER_H
#define BLINK_OPS_MOE_ROUTER_H

#include "kernels/ops/gemm/weight_lanes.h"
#include "routing.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kRouterExperts = 16, kRouterTokens = 8; /* of a block: a tile of the tensor cores */
constexpr uint32_t kRouterWarps = 8, kRouterThreads = 32 * kRouterWarps;
constexpr uint32_t kRouterChunk = 32; /* k that a warp multiplies at once: 8 a lane */
constexpr uint32_t kRouterDepth = 8;  /* chunks of a warp that are in registers */

/* A warp's share of k, in rounds of kRouterDepth chunks: lane (r, q) holds k = 8q.. of each chunk, of rows r and r + 8
 * of w and of token r. */
template <typename Half>
struct RouterShare {
  uint32_t hidden, n_chunks, first_k;

  __device__ __forceinline__ explicit RouterShare(uint32_t n_in) : hidden(n_in) {
    const uint32_t all = n_in / kRouterChunk, share = (all + kRouterWarps - 1) / kRouterWarps;
    const uint32_t first = min(all, threadIdx.x / 32 * share);
    n_chunks = min(all, first + share) - first;
    first_k = first * kRouterChunk + threadIdx.x % 4 * 8;
  }
  __device__ __forceinline__ uint32_t k(uint32_t chunk) const { return first_k + chunk * kRouterChunk; }
};

/* A round's weights: the router's rows, and the norm's. */
struct RouterWeights {
  uint4 low[kRouterDepth], high[kRouterDepth], norm[kRouterDepth];

  template <typename Half>
  __device__ __forceinline__ void load(const RouterShare<Half>& share, const Half* w, const Half* norm_weight,
                                       uint32_t n_experts, uint32_t done) {
    const uint32_t row = blockIdx.x * kRouterExperts + threadIdx.x % 32 / 4;
    const Half* first = w + uint64_t(min(n_experts - 1, row)) * share.hidden;
    const Half* second = w + uint64_t(min(n_experts - 1, row + 8)) * share.hidden;
#pragma unroll
    for (uint32_t i = 0; i < kRouterDepth; ++i) {
      const bool exists = done + i < share.n_chunks;
      const uint32_t k = exists ? share.k(done + i) : 0;
      load_weight(first + k, exists, low[i]);
      load_weight(second + k, exists, high[i]);
      load_weight(norm_weight + k, exists, norm[i]);
    }
  }
};

/* A round's elements of the lane's token, zero where there are none. */
template <typename Half>
__device__ __forceinline__ void load_token(const RouterShare<Half>& share, const float* row, uint32_t done,
                                           float (&x)[kRouterDepth][8]) {
#pragma unroll
  for (uint32_t i = 0; i < kRouterDepth; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i][j] = 0.0f;
    if (row && done + i < share.n_chunks) load8(row + share.k(done + i), x[i]);
  }
}

/* squares + the sum of x's squares. */
__device__ __forceinline__ float add_squares(const float (&x)[kRouterDepth][8], float squares) {
#pragma unroll
  for (uint32_t i = 0; i < kRouterDepth; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += x[i][j] * x[i][j];
  return squares;
}

struct RouterScratch {
  float squares[kRouterWarps][kRouterTokens];
  float4 part[kRouterWarps][32];
  uint32_t last;
};

/* The block's tile of logits, and from the blocks of the first experts the normed tokens. */
template <bool Biased, typename Half, typename X>
__device__ __forceinline__ void route_tile(RouterScratch& scratch, RouterWeights& weights, const Half* w,
                                           const Half* bias, const Half* norm, const float* residual, float eps,
                                           X* normed, float* logits, uint32_t tokens, uint32_t hidden,
                                           uint32_t n_experts) {
  const RouterShare<Half> share(hidden);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, token = blockIdx.y * kRouterTokens + lane / 4;
  const float* row = token < tokens ? residual + uint64_t(token) * hidden : nullptr;
  float x[kRouterDepth][8], squares = 0.0f;
  const uint32_t rounds = (share.n_chunks + kRouterDepth - 1) / kRouterDepth;
  /* The first round, which stays in registers, is not in the loop: there, ptxas waits for the weights before it loads
   * x. */
  load_token(share, row, 0, x);
  squares = add_squares(x, squares);
  for (uint32_t round = 1; round < rounds; ++round) {
    float other[kRouterDepth][8];
    load_token(share, row, round * kRouterDepth, other);
    squares = add_squares(other, squares);
  }
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 2);
  if (lane % 4 == 0) scratch.squares[warp][lane / 4] = squares;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kRouterWarps; ++i) sum += scratch.squares[i][lane / 4];
  const float scale = 1.0f / sqrtf(sum / float(hidden) + eps);

  float acc[4] = {};
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint32_t done = round * kRouterDepth;
    if (round) {
      weights.load(share, w, norm, n_experts, done);
      load_token(share, row, done, x);
    }
#pragma unroll
    for (uint32_t i = 0; i < kRouterDepth; ++i) {
      if (done + i >= share.n_chunks) break;
      const Half* factor = reinterpret_cast<const Half*>(&weights.norm[i]);
      float value[8];
      uint32_t packed[4];
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] = x[i][j] * scale * to_float(factor[j]);
#pragma unroll
      for (int j = 0; j < 4; ++j) packed[j] = pack<Half>(value[2 * j], value[2 * j + 1]);
      const uint4 &low = weights.low[i], &high = weights.high[i];
      const uint32_t front[4] = {low.x, high.x, low.y, high.y}, back[4] = {low.z, high.z, low.w, high.w};
      mma(acc, front, packed[0], packed[1], Half());
      mma(acc, back, packed[2], packed[3], Half());
      if (!row || blockIdx.x != 0) continue;
      hold8(normed + uint64_t(token) * hidden + share.k(done + i), value, Half());
    }
  }
  scratch.part[warp][lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
  __syncthreads();
  if (threadIdx.x >= kRouterExperts * kRouterTokens) return;
  const uint32_t o = threadIdx.x % kRouterExperts, column = threadIdx.x / kRouterExperts;
  const uint32_t e = blockIdx.x * kRouterExperts + o, t = blockIdx.y * kRouterTokens + column;
  const uint32_t from = o % 8 * 4 + column / 2, element = o / 8 * 2 + column % 2;
  float total = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kRouterWarps; ++i) total += reinterpret_cast<const float*>(&scratch.part[i][from])[element];
  if (Biased && e < n_experts) total += to_float(bias[e]);
  if (e < n_experts && t < tokens) logits[uint64_t(t) * n_experts + e] = total;
}

/* Whether the block is the last of `n` to come here; if so, it sees what the others have written. */
__device__ __forceinline__ bool last_to_arrive(RouterScratch& scratch, uint32_t* counter, uint32_t n) {
  __syncthreads();
  if (threadIdx.x == 0) {
    scratch.last = arrive(counter) + 1 == n;
    if (scratch.last) *counter = 0;
  }
  __syncthreads();
  return scratch.last;
}

/* grid (ceil(n_experts / kRouterExperts), ceil(tokens / kRouterTokens)), block (kRouterThreads); hidden a multiple of
 * kRouterChunk. The last block of some tokens routes them, one warp per token, if there are more than kFewTokens. */
template <typename Half, typename X, bool Biased = false>
__global__ void __launch_bounds__(kRouterThreads, 1)
    router_kernel(struct blink_step_set set, const float* residual, const Half* norm, float eps, const Half* w,
                  X* normed, float* logits, uint32_t* topk_ids, float* weight, uint32_t* arrivals, uint32_t tokens,
                  uint32_t hidden, uint32_t n_experts, uint32_t per_token, uint32_t renormalise, const Half* bias) {
  __shared__ RouterScratch scratch;
  allow_successor();
  RouterWeights weights = {};
  weights.load(RouterShare<Half>(hidden), w, norm, n_experts, 0);
  wait_for_predecessor();
  route_tile<Biased>(scratch, weights, w, bias, norm, residual, eps, normed, logits, tokens, hidden, n_experts);
  if (tokens <= kFewTokens || !last_to_arrive(scratch, arrivals + blockIdx.y, gridDim.x)) return;
  const uint32_t t = blockIdx.y * kRouterTokens + threadIdx.x / 32;
  const auto logit = [&](uint32_t e) { return logits[uint64_t(t) * n_experts + e]; };
  if (t < tokens) route_token(set, logit, topk_ids, weight, n_experts, per_token, renormalise, t);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_ROUTER_H */
