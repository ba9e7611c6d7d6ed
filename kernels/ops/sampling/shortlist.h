/* Shortlist: those of a block's tokens that top-k and top-p can still keep, in shared memory.
 *
 * A pass over the block's slice of the logits reads them from L2 where a cluster is small. From the first digit of a
 * threshold on only the tokens up to it matter, which are few unless the distribution is flat: the pass that finds the
 * second digit lists them, and those that follow go through the list.
 */
#ifndef BLINK_OPS_SAMPLING_SHORTLIST_H
#define BLINK_OPS_SAMPLING_SHORTLIST_H

#include "vocab_slice.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kShortlist = 512; /* tokens that a block lists at most */
static_assert(kShortlist <= kSampleThreads, "a token a thread");

/* Shared memory of one block's. */
struct Shortlist {
  uint32_t n; /* more than kShortlist: not all are listed */
  float logit[kShortlist];
  uint32_t token[kShortlist]; /* in no order */

  /* By the whole block, a barrier before the first add(). */
  __device__ __forceinline__ void clear() {
    if (threadIdx.x == 0) n = 0;
  }
  /* Nothing is counted any more once there is no room: as many atomics as a flat distribution has tokens would take
   * longer than the passes that the list saves. */
  __device__ __forceinline__ void add(uint32_t id, float value) {
    if (*static_cast<volatile uint32_t*>(&n) > kShortlist) return;
    const uint32_t at = atomicAdd(&n, 1u);
    if (at < kShortlist) logit[at] = value, token[at] = id;
  }
  /* After a barrier. */
  __device__ __forceinline__ bool has_all() const { return n <= kShortlist; }

  /* Calls body(token, logit) for each of them, each thread its own. */
  template <typename Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    if (threadIdx.x < n) body(token[threadIdx.x], logit[threadIdx.x]);
  }
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_SHORTLIST_H */
