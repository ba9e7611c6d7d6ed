/* Thread block clusters, whose blocks write into each other's shared memory (DSMEM). Included by ptx.h. */
#ifndef BLINK_PRIMITIVES_CLUSTER_SM90_H
#define BLINK_PRIMITIVES_CLUSTER_SM90_H

namespace blink {

/* PTX manual: barrier.cluster, mapa and st.async. Clusters lie along x. On GPUs before Hopper every block is one. */
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  return size;
}

/* By all threads of a block. Orders no writes to memory but the initialisation of barriers: a release at cluster scope
 * would wait for every store. The wait is an acquire, which empties L1. */
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/* Stores `value` where block `rank` of the cluster has what this block has at `to`; that block's `barrier` counts the
 * 8 bytes, and who has waited for it sees them. The block has to be there: to have started, and not to end before. */
__device__ __forceinline__ void send(uint64_t* to, uint32_t rank, uint64_t value, uint64_t* barrier) {
  asm volatile(
      "{ .reg .b32 to, barrier; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [to], %3, [barrier]; }" ::"r"(shared_address(to)),
      "r"(shared_address(barrier)), "r"(rank), "l"(value)
      : "memory");
}

/* What this thread has written to shared memory is seen by the tensor cores and bulk copies that follow a barrier. */
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* What this thread sees of global memory, of its own stores or after a wait for those of others, is seen by the bulk
 * copies that it issues from here on. */
__device__ __forceinline__ void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* `send` of many bytes, a multiple of 16, by a bulk copy. Whoever has written them calls fence_async_proxy before a
 * barrier that comes before the copy. */
__device__ __forceinline__ void send_bulk(uint64_t* to, uint32_t rank, const uint64_t* from, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "{ .reg .b32 to, barrier; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%3], %4, [barrier]; }" ::"r"(
          shared_address(to)),
      "r"(shared_address(barrier)), "r"(rank), "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

}  // namespace blink

#endif /* BLINK_PRIMITIVES_CLUSTER_SM90_H */
