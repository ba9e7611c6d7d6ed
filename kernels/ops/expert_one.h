/* One token's experts: the down product, the weighted sum of what they put out, and the sum's place in the residual, in
 * one kernel: residual += sum over k of weight[k] (x[k] w[choice[k]]^T), in the order of the choice. It computes what
 * experts.h and expert_sum.h compute one after the other; their CPU twins are its own. What an expert puts out is not
 * rounded here.
 *
 *   choice, weight [per_token] (route.h); nothing is added for padding
 *   x  [per_token][n_in] half: of each chosen expert, silu(gate) * up
 *   w  [experts][n_out][n_in] half
 *   residual [n_out] fp32
 *
 * A tile is 8 outputs of all experts, a warp's each; its 16 rows for the tensor cores are the first and second halves
 * of k, as in linear_held.h, and x the first two columns.
 */
#ifndef BLINK_OPS_EXPERT_ONE_H
#define BLINK_OPS_EXPERT_ONE_H

#include "linear_stream.h"
#include "route.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kOneOutputs = 8;            /* of a tile */
constexpr uint32_t kOneExperts = kStreamWarps; /* of a token at most */
constexpr uint32_t kOneDepth = 8;              /* chunks in flight in every warp */

/* grid (any), block (kStreamThreads); per_token at most kOneExperts, n_in a multiple of 2 * kStreamChunk, n_out of
 * kOneOutputs. Its predecessor is the experts' gate_up, which lets it start when the choice is there (E14). */
template <typename Half>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    expert_one_kernel(const uint32_t* choice, const float* weight, const Half* w, const Half* x, float* residual,
                      uint32_t n_in, uint32_t n_out, uint32_t per_token) {
  __shared__ float part[2][kOneExperts][kOneOutputs]; /* two tiles in turn */
  allow_successor();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, n_half = n_in / 2;
  const uint32_t n_tiles = n_out / kOneOutputs, n_chunks = n_half / kStreamChunk;
  const uint32_t expert = warp < per_token ? load_relaxed32(choice + warp) : kNoExpert;
  const bool exists = expert != kNoExpert;
  const Half* matrix = w + (exists ? uint64_t(expert) * n_out * n_in : 0) + lane % 4 * 8;
  WeightChunk chunk[kOneDepth] = {};
  /* Chunk c of the warp's rows of a tile, if there is such a chunk. */
  const auto request = [&](uint32_t tile, uint32_t c, WeightChunk& to) {
    const bool wanted = exists && tile < n_tiles && c < n_chunks;
    const Half* from = matrix + (wanted ? uint64_t(tile * kOneOutputs + r) * n_in + c * kStreamChunk : 0);
    load_weight(from, wanted, to.low);
    load_weight(from + n_half, wanted, to.high);
  };
#pragma unroll
  for (uint32_t i = 0; i < kOneDepth; ++i) request(blockIdx.x, i, chunk[i]);
  wait_for_predecessor();
  const bool ends = threadIdx.x < kOneOutputs;
  float share[kOneExperts];
#pragma unroll
  for (uint32_t e = 0; e < kOneExperts; ++e) share[e] = ends && e < per_token ? weight[e] : 0.0f;
  const Half* row = x + uint64_t(warp) * n_in + r * n_half + lane % 4 * 8; /* of the first two columns */
  uint32_t buffer = 0;
  for (uint32_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x, buffer ^= 1) {
    const uint32_t at = tile * kOneOutputs + threadIdx.x;
    const float before = ends ? residual[at] : 0.0f;
    float acc[4] = {};
    for (uint32_t done = 0; done < n_chunks; done += kOneDepth) {
      const bool last = done + kOneDepth >= n_chunks;
      uint4 value[kOneDepth];
#pragma unroll
      for (uint32_t i = 0; i < kOneDepth; ++i) {
        value[i] = make_uint4(0, 0, 0, 0);
        if (exists && r < 2 && done + i < n_chunks)
          value[i] = *reinterpret_cast<const uint4*>(row + (done + i) * kStreamChunk);
      }
#pragma unroll
      for (uint32_t i = 0; i < kOneDepth; ++i) {
        add_chunk<Half>(acc, chunk[i], value[i]);
        request(last ? tile + gridDim.x : tile, last ? i : done + kOneDepth + i, chunk[i]);
      }
    }
    if (lane % 4 == 0) part[buffer][warp][r] = acc[0] + acc[3];
    __syncthreads(); /* also: all have read the other buffer */
    if (!ends) continue;
    float sum = before;
#pragma unroll
    for (uint32_t e = 0; e < kOneExperts; ++e) sum += share[e] * part[buffer][e][threadIdx.x];
    residual[at] = sum;
  }
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_EXPERT_ONE_H */
