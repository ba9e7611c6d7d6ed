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

/* The slice of a block in a largest cluster is a part of the vocabulary (step.h), and that of one in a smaller cluster
 * several whole ones. */
struct SampleSlice {
  uint32_t rank, blocks;             /* in the cluster */
  uint32_t vocab, partition;         /* partition: ids of a warp, a multiple of 32 */
  const uint32_t* allowed = nullptr; /* a bit for each of the block's ids; null: all are */

  __device__ __forceinline__ explicit SampleSlice(uint32_t vocabulary)
      : rank(cluster_rank()), blocks(cluster_size()), vocab(vocabulary) {
    constexpr uint32_t kUnit = 32 * kSampleWarps * kSampleBlocks;
    partition = (vocab + kUnit - 1) / kUnit * 32 * (kSampleBlocks / blocks);
  }

  /* The ids of warp `warp`, counted through the cluster, are begin(warp) .. begin(warp + 1). */
  __device__ __forceinline__ uint32_t begin(uint32_t warp) const { return min(vocab, warp * partition); }
  __device__ __forceinline__ uint32_t warp() const { return rank * kSampleWarps + threadIdx.x / 32; }
  __device__ __forceinline__ uint32_t block_begin() const { return begin(rank * kSampleWarps); }
  __device__ __forceinline__ uint32_t block_end() const { return begin((rank + 1) * kSampleWarps); }
  __device__ __forceinline__ bool owns(uint32_t token) const { return token >= block_begin() && token < block_end(); }

  __device__ __forceinline__ bool allows(uint32_t token) const {
    return allowed == nullptr || allowed[(token - block_begin()) / 32] >> token % 32 & 1;
  }

  /* Whether one of the ids from `first` on, which begins a word of the mask, is allowed. The same in all of a warp. */
  __device__ __forceinline__ bool allows_any(uint32_t first, uint32_t end) const {
    if (allowed == nullptr) return true;
    uint32_t any = 0;
    for (uint32_t t = first; t < end; t += 32) any |= allowed[(t - block_begin()) / 32];
    return any != 0;
  }

  /* Calls body(token, logit) for this warp's tokens, each thread its own, in ascending order, `Ahead` loads in flight.
   * `Ahead` is the code's size, too: what runs once costs the time to fetch it. */
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

  /* Likewise for those that are allowed. The others are not read, and no time is spent on 32 * Ahead of which none is.
   */
  template <uint32_t Ahead, typename Body>
  __device__ __forceinline__ void for_each_allowed(const float* logits, const Body& body) const {
    if (allowed == nullptr) return for_each<Ahead>(logits, body);
    const uint32_t end = begin(warp() + 1), lane = threadIdx.x % 32, bit = 1u << lane;
    const uint32_t* words = allowed + (begin(warp()) - block_begin()) / 32;
#pragma unroll 1
    for (uint32_t first = begin(warp()); first < end; first += 32 * Ahead, words += Ahead) {
      const uint32_t own = lane < Ahead && first + 32 * lane < end ? words[lane] : 0;
      if (__ballot_sync(0xffffffffu, own != 0) == 0) continue;
      bool there[Ahead];
      float logit[Ahead];
#pragma unroll
      for (uint32_t i = 0; i < Ahead; ++i) {
        there[i] = __shfl_sync(0xffffffffu, own, int(i)) & bit;
        logit[i] = there[i] ? logits[first + 32 * i + lane] : -INFINITY;
      }
#pragma unroll
      for (uint32_t i = 0; i < Ahead; ++i)
        if (there[i]) body(first + 32 * i + lane, logit[i]);
    }
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_VOCAB_SLICE_H */
