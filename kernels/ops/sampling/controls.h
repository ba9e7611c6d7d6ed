/* The controls of a request: what changes its logits before anything else does (ringbuffer/extents.h). Biases are
 * added, and then what is not in the mask, or would end a banned sequence of the answer, becomes minus infinity. Tokens
 * that there are not change nothing.
 */
#ifndef BLINK_OPS_SAMPLING_CONTROLS_H
#define BLINK_OPS_SAMPLING_CONTROLS_H

#include "ringbuffer/extents.h"
#include "vocab_slice.h"

namespace blink {

BLINK_HD float float_of(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } u = {bits};
  return u.value;
}

struct Controls {
  const uint32_t *mask, *biases, *bans, *processors; /* mask: null if all tokens are allowed */
  uint32_t n_biases, ban_words;

  BLINK_HD Controls(const Sequence& sequence, const struct blink_tables& tables)
      : Controls(sequence, tables.vocab_size, tables.controls + uint64_t(sequence.index) * tables.control_words) {}

  BLINK_HD Controls(const Sequence& sequence, uint32_t vocab_size, const uint32_t* words)
      : mask(sequence.params.flags & BLINK_FLAG_ALLOWS ? words : nullptr),
        biases(words + mask_words(sequence.params, vocab_size)),
        bans(biases + 2 * sequence.params.n_biases),
        processors(bans + sequence.params.ban_words),
        n_biases(sequence.params.n_biases),
        ban_words(sequence.params.ban_words) {}

  BLINK_HD bool any() const { return mask || n_biases || ban_words; }
  /* The i-th logits processor of the request, and what it is given. */
  BLINK_HD uint32_t processor(uint32_t i) const { return processors[i * BLINK_PROCESSOR_WORDS]; }
  BLINK_HD float processor_arg(uint32_t i, uint32_t arg) const {
    return float_of(processors[i * BLINK_PROCESSOR_WORDS + 1 + arg]);
  }
  BLINK_HD bool allows(uint32_t token) const { return !mask || mask[token / 32] >> token % 32 & 1; }
  BLINK_HD uint32_t biased(uint32_t i) const { return biases[2 * i]; }
  BLINK_HD float bias(uint32_t i) const { return float_of(biases[2 * i + 1]); }

  /* The token that would complete the banned sequence which ends with word `i`, if the answer has all before it; else,
   * or if none ends there, BLINK_NO_TOKEN. */
  BLINK_HD uint32_t banned(uint32_t i, const Sequence& sequence) const {
    if (!(bans[i] & BLINK_BAN_END)) return BLINK_NO_TOKEN;
    for (uint32_t n = 1; n <= i && !(bans[i - n] & BLINK_BAN_END); ++n)
      if (n > sequence.answered() || sequence.tokens[sequence.length - n] != bans[i - n]) return BLINK_NO_TOKEN;
    return bans[i] & ~BLINK_BAN_END;
  }
};

#ifndef __CUDACC__

inline void control(const Controls& controls, const Sequence& sequence, float* logits, uint32_t vocab) {
  for (uint32_t i = 0; i < controls.n_biases; ++i)
    if (controls.biased(i) < vocab) logits[controls.biased(i)] += controls.bias(i);
  for (uint32_t t = 0; controls.mask && t < vocab; ++t)
    if (!controls.allows(t)) logits[t] = -INFINITY;
  for (uint32_t i = 0; i < controls.ban_words; ++i)
    if (const uint32_t t = controls.banned(i, sequence); t < vocab) logits[t] = -INFINITY;
}

#else

/* By the block, of its slice. */
__device__ __forceinline__ void control(const Controls& controls, const Sequence& sequence, float* logits,
                                        const SampleSlice& slice) {
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < controls.n_biases; i += kSampleThreads)
    if (slice.owns(controls.biased(i))) logits[controls.biased(i)] += controls.bias(i);
  __syncthreads(); /* what is masked stays so */
  if (controls.mask) {
    const uint32_t end = slice.begin(slice.warp() + 1);
#pragma unroll 4
    for (uint32_t t = slice.begin(slice.warp()) + threadIdx.x % 32; t < end; t += 32)
      if (!controls.allows(t)) logits[t] = -INFINITY;
  }
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < controls.ban_words; i += kSampleThreads)
    if (const uint32_t t = controls.banned(i, sequence); slice.owns(t)) logits[t] = -INFINITY;
  __syncthreads();
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_CONTROLS_H */
