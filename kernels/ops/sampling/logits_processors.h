/* Logits processors: functions that the operator of a server has written in Python, and requests ask for by name. Each
 * is called for every token of the vocabulary that may still be sampled, and returns what the token's logit is from
 * then on:
 *
 *   float processor(token, logit, position, recent, args)
 *
 *   position  tokens of the answer so far
 *   recent    [BLINK_RECENT_TOKENS] the last tokens of prompt and answer, the newest last; -1 where there is none
 *   args      [BLINK_PROCESSOR_ARGS] what the request gives it
 *
 * They run behind biases, bans and penalties, and in front of the grammar's mask and the temperature. A token whose
 * logit is minus infinity keeps it, so a processor cannot give back what something else forbids. Log-probabilities are
 * told of the logits that they were given: what they return lies in memory of its own. But many change only the logits
 * of tokens that are among `recent`, and say so (tables.recent_processors): such a one is called for these tokens
 * alone, once each, and on a GPU changes their logits where they lie, and what these were is kept aside.
 *
 * On the CPU, tables.processors has their addresses. On a GPU they are linked into the sampler's module
 * (kernels/sampler.cu), under the names blink_processor_0, blink_processor_1 and so on; BLINK_PROCESSORS(X), a macro
 * that whoever compiles the module defines, is X(0) X(1) and so on. While a processor runs, its counter in the step's
 * head is not zero: a step that does not end tells by that which one it hangs in.
 */
#ifndef BLINK_OPS_SAMPLING_LOGITS_PROCESSORS_H
#define BLINK_OPS_SAMPLING_LOGITS_PROCESSORS_H

#include "controls.h"

#ifndef __CUDACC__
#include <algorithm>
#include <vector>
#endif

namespace blink {

/* The token that stands `place` places into `recent`. */
BLINK_HD int32_t recent_token(const Sequence& sequence, uint32_t place) {
  const uint32_t at = sequence.length + place;
  return at >= BLINK_RECENT_TOKENS ? int32_t(sequence.tokens[at - BLINK_RECENT_TOKENS]) : -1;
}

BLINK_HD bool changes_only_recent(const struct blink_tables& tables, uint32_t index) {
  return index < BLINK_MAX_PROCESSORS && tables.recent_processors >> index & 1;
}

/* Whether recent[place] is the first of its tokens there. */
BLINK_HD bool is_first_of_recent(const int32_t* recent, uint32_t place) {
  uint32_t before = 0;
  while (recent[before] != recent[place]) ++before;
  return before == place;
}

#ifndef __CUDACC__

using Processor = float (*)(int32_t token, float logit, int32_t position, const int32_t* recent, const float* args);

/* The logits of one batch slot, in place. */
inline void process(const Controls& controls, const Sequence& sequence, const struct blink_tables& tables,
                    struct blink_step_head& head, std::vector<float>& logits) {
  int32_t recent[BLINK_RECENT_TOKENS];
  float args[BLINK_PROCESSOR_ARGS];
  for (uint32_t i = 0; i < BLINK_RECENT_TOKENS; ++i) recent[i] = recent_token(sequence, i);
  for (uint32_t i = 0; i < sequence.params.n_processors; ++i) {
    const uint32_t index = controls.processor(i);
    if (index >= tables.n_processors) continue;
    for (uint32_t k = 0; k < BLINK_PROCESSOR_ARGS; ++k) args[k] = controls.processor_arg(i, k);
    const auto call = reinterpret_cast<Processor>(tables.processors[index]);
    const auto change = [&](uint32_t t) {
      if (is_candidate(number(logits[t])))
        logits[t] = call(int32_t(t), logits[t], int32_t(sequence.answered()), recent, args);
    };
    __atomic_add_fetch(&head.processing[index], 1, __ATOMIC_RELAXED);
    if (changes_only_recent(tables, index)) {
      for (uint32_t place = 0; place < BLINK_RECENT_TOKENS; ++place)
        if (uint32_t(recent[place]) < logits.size() && is_first_of_recent(recent, place)) change(recent[place]);
    } else {
      for (uint32_t t = 0; t < logits.size(); ++t) change(t);
    }
    __atomic_sub_fetch(&head.processing[index], 1, __ATOMIC_RELAXED);
  }
}

#else

/* Shared memory of one block. It is aligned so that several tokens are read at once. */
struct ProcessorScratch {
  alignas(16) int32_t recent[BLINK_RECENT_TOKENS];
  alignas(16) float args[BLINK_PROCESSOR_ARGS];
  float given[BLINK_RECENT_TOKENS]; /* the logits of the block's recent tokens before any processor ran */
};

/* A sampler without processors: requests that ask for some are refused before. */
struct NoProcessors {
  static constexpr bool kAny = false;
  __device__ __forceinline__ NoProcessors(const struct blink_step_set&, const struct blink_tables&, float*) {}
};

#ifdef BLINK_PROCESSORS

#define BLINK_DECLARE_PROCESSOR(i)                                                                                     \
  extern "C" __device__ float blink_processor_##i(int32_t token, float logit, int32_t position, const int32_t* recent, \
                                                  const float* args);
BLINK_PROCESSORS(BLINK_DECLARE_PROCESSOR)
#undef BLINK_DECLARE_PROCESSOR

/* A sampler with those that are linked into its module. */
class LinkedProcessors {
 public:
  static constexpr bool kAny = true;

  /* `processed`: [batch_slots][vocab], where they put what they return. */
  __device__ __forceinline__ LinkedProcessors(const struct blink_step_set& set, const struct blink_tables& tables,
                                              float* processed)
      : head_(*set.head), tables_(tables), processed_(processed) {}

  /* By the block, of its slice of a batch slot's logits. Returns where the slice now is. */
  __device__ __forceinline__ float* run(const Controls& controls, const Sequence& sequence, const SampleSlice& slice,
                                        float* logits, ProcessorScratch& scratch) const {
    float *from = logits, *const to = processed_ + uint64_t(blockIdx.y) * slice.vocab;
    const uint32_t place = threadIdx.x;
    if (place < BLINK_RECENT_TOKENS) {
      const int32_t token = recent_token(sequence, place);
      scratch.recent[place] = token;
      scratch.given[place] = slice.owns(uint32_t(token)) ? logits[token] : 0.0f;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < sequence.params.n_processors; ++i) {
      const uint32_t index = controls.processor(i);
      if (threadIdx.x < BLINK_PROCESSOR_ARGS) scratch.args[threadIdx.x] = controls.processor_arg(i, threadIdx.x);
      count(index, 1);
      __syncthreads();
      if (changes_only_recent(tables_, index)) {
        call_for_recent(index, slice, from, int32_t(sequence.answered()), scratch);
      } else {
        call(index, slice, from, to, int32_t(sequence.answered()), scratch);
        from = to;
      }
      __syncthreads();
      count(index, -1);
    }
    return from;
  }

  /* What the logit of one of the slice's tokens was before `run`, whose `logits` and `scratch` these are. */
  static __device__ __forceinline__ float given(uint32_t token, const float* logits, const ProcessorScratch& scratch) {
    for (uint32_t place = 0; place < BLINK_RECENT_TOKENS; ++place)
      if (scratch.recent[place] == int32_t(token)) return scratch.given[place];
    return logits[token];
  }

 private:
  __device__ __forceinline__ void count(uint32_t index, int32_t change) const {
    if (threadIdx.x == 0 && index < BLINK_MAX_PROCESSORS) atomicAdd(&head_.processing[index], uint32_t(change));
  }

  static __device__ __forceinline__ void call(uint32_t index, const SampleSlice& slice, const float* from, float* to,
                                              int32_t position, const ProcessorScratch& scratch) {
#define BLINK_CALL_PROCESSOR(i)                                                         \
  case i:                                                                               \
    return for_slice(slice, from, to, [&](int32_t token, float logit) {                 \
      return blink_processor_##i(token, logit, position, scratch.recent, scratch.args); \
    });
    switch (index) {
      BLINK_PROCESSORS(BLINK_CALL_PROCESSOR)
      default: /* none that there is: anybody may have written into the ring */
        return for_slice(slice, from, to, [](int32_t, float logit) { return logit; });
    }
#undef BLINK_CALL_PROCESSOR
  }

  static __device__ __forceinline__ void call_for_recent(uint32_t index, const SampleSlice& slice, float* logits,
                                                         int32_t position, const ProcessorScratch& scratch) {
    if (threadIdx.x >= BLINK_RECENT_TOKENS) return;
    const int32_t token = scratch.recent[threadIdx.x];
    if (!slice.owns(uint32_t(token)) || !is_first_of_recent(scratch.recent, threadIdx.x)) return;
    const float logit = logits[token];
    if (!is_candidate(number(logit))) return;
#define BLINK_CALL_PROCESSOR(i)                                                                \
  case i:                                                                                      \
    logits[token] = blink_processor_##i(token, logit, position, scratch.recent, scratch.args); \
    return;
    switch (index) { BLINK_PROCESSORS(BLINK_CALL_PROCESSOR) }
#undef BLINK_CALL_PROCESSOR
  }

  /* Several tokens of a thread's are processed side by side and without branches, so what they read alike, the recent
   * tokens, is read once for all of them: shared memory delivers them no faster to 32 threads that read the same. */
  template <typename Body>
  static __device__ __forceinline__ void for_slice(const SampleSlice& slice, const float* from, float* to,
                                                   const Body& body) {
    constexpr uint32_t kAhead = 8;
    const uint32_t lane = threadIdx.x % 32, end = slice.begin(slice.warp() + 1);
#pragma unroll 1
    for (uint32_t first = slice.begin(slice.warp()); first < end; first += 32 * kAhead) {
      if (!slice.allows_any(first, min(end, first + 32 * kAhead))) continue;
      float logit[kAhead], made[kAhead];
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t t = first + 32 * i + lane;
        logit[i] = t < end ? from[t] : 0.0f;
      }
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i)
        made[i] = body(int32_t(min(first + 32 * i + lane, slice.vocab - 1)), logit[i]);
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t t = first + 32 * i + lane;
        if (t < end) to[t] = is_candidate(number(logit[i])) ? made[i] : logit[i];
      }
    }
  }

  struct blink_step_head& head_;
  const struct blink_tables& tables_;
  float* processed_;
};

#endif /* BLINK_PROCESSORS */

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_LOGITS_PROCESSORS_H */
