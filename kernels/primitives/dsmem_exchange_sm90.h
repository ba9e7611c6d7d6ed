/* DSMEM exchange: how the blocks of a cluster tell each other 8-byte words, each all others and itself, in exchanges
 * that all of them take part in. No barrier of the cluster and no fence: a block goes on as soon as it has received.
 *
 * E12. The blocks that share the sampling of a batch slot are a cluster and write into each other's shared memory. None
 * writes before all have started, and none ends before it has received what the others send it. The words of two
 * exchanges that follow each other land in different places.
 */
#ifndef BLINK_PRIMITIVES_DSMEM_EXCHANGE_SM90_H
#define BLINK_PRIMITIVES_DSMEM_EXCHANGE_SM90_H

#include "common.h"

#ifdef __CUDACC__

namespace blink {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900

/* On GPUs before Hopper, where every block is a cluster: the words go to itself. */
class DsmemExchange {
 public:
  using Barriers = uint64_t[2];

  __device__ __forceinline__ explicit DsmemExchange(Barriers&) { __syncthreads(); }
  __device__ __forceinline__ void send(uint64_t* to, uint32_t, uint64_t word) const { *to = word; }
  __device__ __forceinline__ void send_all(uint64_t* to, const uint64_t* from, uint32_t words, uint32_t) const {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
  }
  __device__ __forceinline__ void receive(uint32_t) { __syncthreads(); }
};

#else

/* Where words arrive must not be the target of the next exchange too: a block that is ahead sends them while others
 * still read. */
class DsmemExchange {
 public:
  /* Two barriers in shared memory: words of the next exchange arrive while this one is not yet complete. */
  using Barriers = uint64_t[2];

  /* By the whole block; between this and the first send, all have to have passed cluster_wait. */
  __device__ __forceinline__ explicit DsmemExchange(Barriers& barriers) : barriers_(barriers) {
    if (threadIdx.x == 0) {
      barrier_init(&barriers_[0]);
      barrier_init(&barriers_[1]);
      barrier_init_done();
    }
    __syncthreads();
    cluster_arrive();
  }

  /* The word lands in *to of block `rank`. */
  __device__ __forceinline__ void send(uint64_t* to, uint32_t rank, uint64_t word) const {
    blink::send(to, rank, word, &barriers_[turn_ % 2]);
  }

  /* As many words from `from`, in shared memory, to every block; by the whole block, after whose writes it is. Both are
   * 16-byte aligned, and `from` must stay until all blocks have sent in the next exchange. */
  __device__ __forceinline__ void send_all(uint64_t* to, const uint64_t* from, uint32_t words, uint32_t blocks) const {
    fence_async_proxy();
    __syncthreads();
    if (threadIdx.x < blocks) send_bulk(to, threadIdx.x, from, words * sizeof(uint64_t), &barriers_[turn_ % 2]);
  }

  /* Ends the exchange, by the whole block: waits until its `words` have come, from whatever block. */
  __device__ __forceinline__ void receive(uint32_t words) {
    if (threadIdx.x == 0) barrier_expect(&barriers_[turn_ % 2], words * sizeof(uint64_t));
    barrier_wait(&barriers_[turn_ % 2], turn_ / 2 % 2);
    ++turn_;
  }

 private:
  Barriers& barriers_;
  uint32_t turn_ = 0;
};

#endif

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_PRIMITIVES_DSMEM_EXCHANGE_SM90_H */
