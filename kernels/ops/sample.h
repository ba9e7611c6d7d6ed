/* Sample: one token per lane from its logits, and, on the GPU, the step's completion.
 *
 *   logits  [lanes][vocab] fp32, overwritten
 *   set.out_token[lane] and history[row][position of lane_last + 1] receive the token
 *
 * In this order: repetition penalty over prompt and answer (the CTRL paper's), presence and frequency penalty
 * over the answer (OpenAI's), end and stop ids masked until min_tokens, temperature, min-p, top-k, top-p
 * (vLLM's order), the draw. Temperature 0 is the argmax, ties to the lowest id. NaN counts as minus infinity.
 */
#ifndef BLINK_OPS_SAMPLE_H
#define BLINK_OPS_SAMPLE_H

#include "sample_select.h"

#ifndef __CUDACC__
#include <vector>
#endif

namespace blink {

#ifndef __CUDACC__

inline void penalise(const Sequence& sequence, const struct blink_tables& tables, float* logits) {
  const struct blink_descriptor& params = sequence.params;
  std::vector<bool> seen(tables.vocab_size);
  if (params.repetition_penalty != 1.0f) {
    for (uint32_t j = 0; j < sequence.length; ++j) {
      const uint32_t t = sequence.tokens[j];
      if (!seen[t]) logits[t] = repeated(logits[t], params.repetition_penalty);
      seen[t] = true;
    }
    seen.assign(tables.vocab_size, false);
  }
  if (params.presence_penalty != 0.0f) {
    for (uint32_t j = params.prompt_tokens; j < sequence.length; ++j) {
      const uint32_t t = sequence.tokens[j];
      if (!seen[t]) logits[t] -= params.presence_penalty;
      seen[t] = true;
    }
  }
  if (params.frequency_penalty != 0.0f)
    for (uint32_t j = params.prompt_tokens; j < sequence.length; ++j)
      logits[sequence.tokens[j]] -= params.frequency_penalty;
  if (sequence.may_end()) return;
  for (uint32_t j = 0; j < tables.n_eos && !sequence.ignores_eos(); ++j) logits[tables.eos[j]] = -INFINITY;
  for (uint32_t j = 0; j < params.n_stop_ids; ++j) logits[params.stop_ids[j]] = -INFINITY;
}

/* The token of one lane, from its logits. */
inline uint32_t sample(const Sequence& sequence, const struct blink_tables& tables, float* logits) {
  const struct blink_descriptor& params = sequence.params;
  const uint32_t vocab = tables.vocab_size;
  penalise(sequence, tables, logits);
  uint32_t best = 0;
  for (uint32_t t = 1; t < vocab; ++t)
    if (order_key(number(logits[t]), t) > order_key(number(logits[best]), best)) best = t;
  if (params.temperature == 0.0f) return best;

  Filter filter = make_filter(params, number(logits[best]));
  if (params.top_k != 0 && params.top_k < vocab) filter.max_rank = select_rank(params, filter, false, logits, vocab);
  if (params.top_p < 1.0f) filter.max_rank = select_rank(params, filter, true, logits, vocab);
  uint64_t total = 0;
  for (uint32_t t = 0; t < vocab; ++t) total += filter.weight(logits[t]);
  uint64_t rest = scale_to(random_bits(params.seed, sequence.answered()), total);
  for (uint32_t t = 0; t < vocab; ++t) {
    const uint64_t weight = filter.weight(logits[t]);
    if (rest < weight) return t;
    rest -= weight;
  }
  return best; /* not reached: rest < total */
}

/* Samples one lane that emits, from `logits` [vocab]. */
inline void sample_lane(const struct blink_step_set& set, const struct blink_tables& tables, float* logits,
                        uint32_t lane) {
  const Sequence sequence = sequence_of(set, tables, lane);
  const uint32_t token = sample(sequence, tables, logits);
  set.out_token[lane] = token;
  if (sequence.length < tables.max_context) sequence.tokens[sequence.length] = token;
}

#else

/* Bytes of dynamic shared memory of sample_kernel: one bit per token of the vocabulary. */
BLINK_HD constexpr uint32_t sample_shared_bytes(uint32_t vocab) {
  return (vocab + 31) / 32 * 4;
}

/* Shared memory of one block. */
struct SampleScratch {
  SelectScratch select;
  uint64_t per_warp[kSampleWarps];
  uint32_t token;
};

/* Calls body(token) once for every distinct token of tokens[begin..end). `seen` holds a bit per token of the
 * vocabulary. */
template <typename Body>
__device__ __forceinline__ void for_each_distinct(const uint32_t* tokens, uint32_t begin, uint32_t end, uint32_t vocab,
                                                  uint32_t* seen, Body body) {
  for (uint32_t w = threadIdx.x; w < (vocab + 31) / 32; w += kSampleThreads) seen[w] = 0;
  __syncthreads();
  for (uint32_t j = begin + threadIdx.x; j < end; j += kSampleThreads) {
    const uint32_t t = tokens[j], bit = 1u << t % 32;
    if (!(atomicOr(seen + t / 32, bit) & bit)) body(t);
  }
  __syncthreads();
}

__device__ __forceinline__ void penalise(const Sequence& sequence, const struct blink_tables& tables, float* logits,
                                         uint32_t* seen) {
  const struct blink_descriptor& params = sequence.params;
  const uint32_t vocab = tables.vocab_size;
  if (params.repetition_penalty != 1.0f)
    for_each_distinct(sequence.tokens, 0, sequence.length, vocab, seen,
                      [&](uint32_t t) { logits[t] = repeated(logits[t], params.repetition_penalty); });
  if (params.presence_penalty != 0.0f)
    for_each_distinct(sequence.tokens, params.prompt_tokens, sequence.length, vocab, seen,
                      [&](uint32_t t) { logits[t] -= params.presence_penalty; });
  if (params.frequency_penalty != 0.0f) /* equal terms: the order in which threads subtract them does not matter */
    for (uint32_t j = params.prompt_tokens + threadIdx.x; j < sequence.length; j += kSampleThreads)
      atomicAdd(logits + sequence.tokens[j], -params.frequency_penalty);
  __syncthreads();
  if (!sequence.may_end()) {
    if (threadIdx.x < tables.n_eos && !sequence.ignores_eos()) logits[tables.eos[threadIdx.x]] = -INFINITY;
    if (threadIdx.x < params.n_stop_ids) logits[params.stop_ids[threadIdx.x]] = -INFINITY;
    __syncthreads();
  }
}

/* The largest order_key of the lane, in every thread. */
__device__ __forceinline__ uint64_t best_key(const float* logits, uint32_t vocab, SampleScratch& scratch) {
  uint64_t best = 0;
#pragma unroll 8
  for (uint32_t t = threadIdx.x; t < vocab; t += kSampleThreads) {
    const uint64_t key = order_key(number(logits[t]), t);
    best = key > best ? key : best;
  }
#pragma unroll
  for (int round = 0; round < 2; ++round) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, best, offset);
      best = other > best ? other : best;
    }
    if (round == 1) break;
    if (threadIdx.x % 32 == 0) scratch.per_warp[threadIdx.x / 32] = best;
    __syncthreads();
    best = scratch.per_warp[threadIdx.x % 32];
  }
  return best;
}

/* Inverse of the cumulative weight in order of ids: twice, every warp sums a 32nd of the range and the range
 * shrinks to the 32nd that holds the draw; then one warp walks what is left. Returns the token in every
 * thread. */
__device__ __forceinline__ uint32_t draw(const Filter& filter, uint64_t bits, const float* logits, uint32_t vocab,
                                         SampleScratch& scratch) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t begin = 0, end = vocab;
  uint64_t rest = 0;
  for (int round = 0; round < 2; ++round) {
    const uint32_t piece = (end - begin + kSampleWarps - 1) / kSampleWarps;
    const uint32_t mine = min(end, begin + warp * piece), mine_end = min(end, mine + piece);
    uint64_t sum = 0;
#pragma unroll 4
    for (uint32_t t = mine + lane; t < mine_end; t += 32) sum += filter.weight(logits[t]);
    sum = warp_total(sum);
    if (lane == 0) scratch.per_warp[warp] = sum;
    __syncthreads();
    if (round == 0) {
      uint64_t total = 0;
      for (uint32_t w = 0; w < kSampleWarps; ++w) total += scratch.per_warp[w];
      rest = scale_to(bits, total);
    }
    uint32_t w = 0;
    while (rest >= scratch.per_warp[w]) rest -= scratch.per_warp[w++];
    begin += w * piece;
    end = min(end, begin + piece);
    __syncthreads();
  }
  if (warp == 0) {
    for (uint32_t base = begin; base < end; base += 32) {
      const uint64_t through = warp_scan(base + lane < end ? filter.weight(logits[base + lane]) : 0);
      const uint32_t above = __ballot_sync(0xffffffffu, rest < through);
      if (above) {
        if (lane == 0) scratch.token = base + __ffs(above) - 1;
        break;
      }
      rest -= __shfl_sync(0xffffffffu, through, 31);
    }
  }
  __syncthreads();
  return scratch.token;
}

/* As the twin's, by one block. */
__device__ __forceinline__ uint32_t sample(const Sequence& sequence, const struct blink_tables& tables, float* logits,
                                           uint32_t* seen, SampleScratch& scratch) {
  const struct blink_descriptor& params = sequence.params;
  const uint32_t vocab = tables.vocab_size;
  penalise(sequence, tables, logits, seen);
  const uint32_t best = 0xffffffffu - uint32_t(best_key(logits, vocab, scratch));
  if (params.temperature == 0.0f) return best;

  Filter filter = make_filter(params, number(logits[best]));
  __syncthreads();
  if (params.top_k != 0 && params.top_k < vocab)
    filter.max_rank = select_rank(params, filter, false, logits, vocab, scratch.select);
  if (params.top_p < 1.0f) filter.max_rank = select_rank(params, filter, true, logits, vocab, scratch.select);
  return draw(filter, random_bits(params.seed, sequence.answered()), logits, vocab, scratch);
}

/* grid (the shape's lanes), block (kSampleThreads), sample_shared_bytes(vocab) of dynamic shared memory. The
 * last block to finish publishes the step: every token is visible to whoever acquires `completed` (E1). */
__global__ void __launch_bounds__(kSampleThreads, 1)
    sample_kernel(struct blink_step_set set, struct blink_tables tables, float* logits) {
  wait_for_predecessor();
  uint32_t* seen = dynamic_shared();
  __shared__ SampleScratch scratch;
  const uint32_t lane = blockIdx.x;
  struct blink_step_head* head = set.head;
  if (lane == 0 && threadIdx.x == 0) head->sample_ns = global_ns();
  if (lane < head->n_lanes && set.lane_emit[lane]) {
    const Sequence sequence = sequence_of(set, tables, lane);
    const uint32_t token = sample(sequence, tables, logits + uint64_t(lane) * tables.vocab_size, seen, scratch);
    if (threadIdx.x == 0) {
      set.out_token[lane] = token;
      if (sequence.length < tables.max_context) sequence.tokens[sequence.length] = token;
    }
  }
  if (threadIdx.x == 0 && arrive(&head->lanes_done) == gridDim.x - 1) {
    head->lanes_done = 0;
    head->done_ns = global_ns();
    store_release(tables.completed, head->id);
  }
}

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLE_H */
