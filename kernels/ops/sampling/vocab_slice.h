/* A block's part of a batch slot's logits: a cluster of blocks shares a batch slot, each has consecutive ids, and of
 * them again each of its warps. After the first pass over the logits the slice is in L1.
 */
#ifndef BLINK_OPS_SAMPLING_VOCAB_SLICE_H
#define BLINK_OPS_SAMPLING_VOCAB_SLICE_H

#include "kernels/primitives/dsmem_exchange_sm90.h"
#include "token_weight.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kSampleThreads = 1024, kSampleWarps = kSampleThreads / 32;
constexpr uint32_t kSampleSeen = 1 << 18; /* ids of a block that one pass marks: what shared memory has bits for */
constexpr uint32_t kCandidates = kSampleThreads; /* of a block, for the likeliest tokens (scores.h) */
constexpr uint32_t kGroupThreads = 8, kGroups = kSampleThreads / kGroupThreads;
constexpr uint32_t kSampleBlocks = 8; /* of a batch slot at most: the largest cluster that can always be placed */

struct SampleSlice {
  uint32_t rank, blocks;     /* in the cluster */
  uint32_t vocab, partition; /* partition: ids of a warp, a multiple of 32 */

  __device__ __forceinline__ explicit SampleSlice(uint32_t vocabulary)
      : rank(cluster_rank()), blocks(cluster_size()), vocab(vocabulary) {
    const uint32_t unit = 32 * kSampleWarps * blocks;
    partition = (vocab + unit - 1) / unit * 32;
  }

  /* The ids of warp `warp`, counted through the cluster, are begin(warp) .. begin(warp + 1). */
  __device__ __forceinline__ uint32_t begin(uint32_t warp) const { return min(vocab, warp * partition); }
  __device__ __forceinline__ uint32_t warp() const { return rank * kSampleWarps + threadIdx.x / 32; }
  __device__ __forceinline__ uint32_t block_begin() const { return begin(rank * kSampleWarps); }
  __device__ __forceinline__ uint32_t block_end() const { return begin((rank + 1) * kSampleWarps); }
  __device__ __forceinline__ bool owns(uint32_t token) const { return token >= block_begin() && token < block_end(); }

  /* Calls body(token, logit) for this warp's tokens, each thread its own, in ascending order, `Ahead` loads in
   * flight. `Ahead` is the code's size, too: what runs once costs the time to fetch it. */
  template <uint32_t Ahead, typename Body>
  __device__ __forceinline__ void for_each(const float* logits, const Body& body) const {
    const uint32_t end = begin(warp() + 1);
#pragma unroll 1
    for (uint32_t t = begin(warp()) + threadIdx.x % 32; t < end; t += 32 * Ahead) {
      float logit[Ahead];
#pragma unroll
      for (uint32_t i = 0; i < Ahead; ++i) logit[i] = t + 32 * i < end ? logits[t + 32 * i] : -INFINITY;
#pragma unroll
      for (uint32_t i = 0; i < Ahead; ++i)
        if (t + 32 * i < end) body(t + 32 * i, logit[i]);
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_VOCAB_SLICE_H */
