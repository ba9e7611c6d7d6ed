/* The router of one token without a kernel of its own: each block of the matmul that completes the residual behind
 * attention adds what its outputs contribute to all logits, and the experts' gate_up kernel makes the routing from
 * them (single_token.h). Together they compute what router.h does; CPU references are those of norm.h, matmul.h and
 * routing.h.
 *
 *   sums [kSumPlaces][n_experts] int64, in units of 1 / kSumUnit: what the places of an expert add up to is
 *        sum over j of residual[j] * norm[j] * w[expert][j], its logit but for the norm's factor
 *
 * Blocks add in no order, and integers add up to the same in any (E8). sums are zero before the matmul, and again
 * when the experts' down has ended.
 */
#ifndef BLINK_OPS_MOE_FUSED_ROUTER_H
#define BLINK_OPS_MOE_FUSED_ROUTER_H

#include "kernels/primitives/common.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSumPlaces = 4; /* on different lines: blocks that end together do not wait for each other */
/* Sums reach to 2^31, far beyond a logit times the residual's root mean square; their last digit is 2^-32, where a
 * float just below 2^-8 has its own. */
constexpr float kSumUnit = 4294967296.0f;
constexpr uint32_t kFusedRouterOutputs = 8; /* of a tile of the matmul, one 16-byte access of w */

/* What a matmul needs of the router that follows it. A null pointer means that none follows. */
struct FusedRouter {
  const void *norm, *w; /* [hidden] half; [n_experts][hidden] half */
  int64_t* sums;
  uint32_t n_experts; /* at most a thread each */
};

/* A thread's expert: the weights at a tile's outputs, and the sum so far. */
template <typename Half>
class PartialLogit {
 public:
  __device__ __forceinline__ PartialLogit(const FusedRouter& part, uint32_t hidden) : part_(part), hidden_(hidden) {}

  __device__ __forceinline__ bool exists() const { return part_.w && threadIdx.x < part_.n_experts; }

  /* Asks for the weights. */
  __device__ __forceinline__ void request(uint32_t tile, bool wanted) {
    const uint32_t first = tile * kFusedRouterOutputs;
    const Half* row = static_cast<const Half*>(part_.w) + uint64_t(threadIdx.x) * hidden_;
    load_weight(row + first, wanted && exists(), weights_);
    load_weight(static_cast<const Half*>(part_.norm) + first, wanted && exists(), norm_);
  }
  __device__ __forceinline__ void add(const float (&residual)[kFusedRouterOutputs]) {
    const Half *w = reinterpret_cast<const Half*>(&weights_), *norm = reinterpret_cast<const Half*>(&norm_);
#pragma unroll
    for (uint32_t j = 0; j < kFusedRouterOutputs; ++j) sum_ += residual[j] * to_float(norm[j]) * to_float(w[j]);
  }
  __device__ __forceinline__ void finish() const {
    if (!exists()) return;
    const uint64_t at = blockIdx.x % kSumPlaces * part_.n_experts + threadIdx.x;
    add_relaxed(part_.sums + at, __float2ll_rn(sum_ * kSumUnit));
  }

 private:
  const FusedRouter& part_;
  uint32_t hidden_;
  uint4 weights_ = {}, norm_ = {};
  float sum_ = 0.0f;
};

/* An expert's logit but for the norm's factor. */
__device__ __forceinline__ float summed_logit(const int64_t* sums, uint32_t n_experts, uint32_t expert) {
  int64_t place[kSumPlaces], total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kSumPlaces; ++i) place[i] = sums[i * n_experts + expert];
#pragma unroll
  for (uint32_t i = 0; i < kSumPlaces; ++i) total += place[i];
  return float(total) * (1.0f / kSumUnit);
}

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_MOE_FUSED_ROUTER_H */
