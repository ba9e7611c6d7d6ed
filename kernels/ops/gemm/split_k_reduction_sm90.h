/* How the blocks of a cluster that split k exchange the sums of their tile in skinny_gemm_sm90.h: each sums up its
 * share of the fragments, which the others send it. No barrier of the cluster waits for memory: a release would wait
 * for all stores of the block.
 */
#ifndef BLINK_OPS_GEMM_SPLIT_K_REDUCTION_SM90_H
#define BLINK_OPS_GEMM_SPLIT_K_REDUCTION_SM90_H

#include "skinny_pipeline_sm90.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kFragmentBytes = sizeof(float4) * kWarpgroup;

/* A block's box, to which the others send. Fragments lie as [fragment][kWarpgroup] float4. */
template <uint32_t Fragments, uint32_t Splits>
class SplitKReduction {
 public:
  static constexpr uint32_t kShare = (Fragments + Splits - 1) / Splits; /* of the fragments, a block's at most */

  /* `inbox` has room for kShare fragments from each other block. */
  __device__ __forceinline__ SplitKReduction(uint64_t* barrier, char* inbox) : barrier_(barrier), inbox_(inbox) {}

  static __device__ __forceinline__ uint32_t rank() { return blockIdx.x; }
  static __device__ __forceinline__ uint32_t first(uint32_t rank) { return min(rank * kShare, Fragments); }
  static __device__ __forceinline__ uint32_t count(uint32_t rank) { return first(rank + 1) - first(rank); }

  /* By one thread, before it arrives at the cluster's barrier; who sends has waited there. */
  __device__ __forceinline__ void init() const {
    barrier_init(barrier_);
    barrier_init_done();
    if (count(rank())) barrier_expect(barrier_, (Splits - 1) * count(rank()) * kFragmentBytes);
  }

  /* Sends to each other block what it sums up of `kept`, all of this block's fragments; by all members, whose writes
   * it is. `kept` must stay until all blocks have received. */
  __device__ __forceinline__ void send(const float4* kept) const {
    fence_async_proxy();
    group_sync(1, kWarpgroup);
    const uint32_t to = threadIdx.x;
    if (to >= Splits || to == rank() || count(to) == 0) return;
    send_bulk(reinterpret_cast<uint64_t*>(box(to, rank())), to,
              reinterpret_cast<const uint64_t*>(kept + first(to) * kWarpgroup), count(to) * kFragmentBytes, barrier_);
  }

  __device__ __forceinline__ void receive() const {
    if (count(rank())) barrier_wait(barrier_, 0);
  }

  /* The sum of fragment first(rank()) + i over the blocks in order, of which `kept` has this one's. */
  __device__ __forceinline__ float4 sum(const float4* kept, uint32_t i) const {
    float4 v[Splits], all = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (uint32_t s = 0; s < Splits; ++s) {
      const float4* from = s == rank() ? kept + first(s) * kWarpgroup : box(rank(), s);
      v[s] = from[i * kWarpgroup + threadIdx.x];
    }
#pragma unroll
    for (uint32_t s = 0; s < Splits; ++s) all.x += v[s].x, all.y += v[s].y, all.z += v[s].z, all.w += v[s].w;
    return all;
  }

 private:
  /* Where block `to` receives from block `from`. */
  __device__ __forceinline__ float4* box(uint32_t to, uint32_t from) const {
    return reinterpret_cast<float4*>(inbox_ + (from - (from > to)) * kShare * kFragmentBytes);
  }

  uint64_t* barrier_;
  char* inbox_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_GEMM_SPLIT_K_REDUCTION_SM90_H */
