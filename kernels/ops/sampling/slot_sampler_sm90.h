/* One batch slot's sampling on the GPU, by the cluster of blocks that has its logits. sample.h says in which order, and
 * has the same for the CPU.
 */
#ifndef BLINK_OPS_SAMPLING_SLOT_SAMPLER_SM90_H
#define BLINK_OPS_SAMPLING_SLOT_SAMPLER_SM90_H

#include "logits_processors.h"
#include "scores.h"
#include "token_mask.h"

#ifdef __CUDACC__

namespace blink {

/* Shared memory of one block. */
struct SampleScratch {
  DsmemExchange::Barriers barriers;
  struct blink_descriptor params;
  SelectScratch select; /* a mask is made where it receives */
  MaskScratch mask;
  ScoreScratch score;
  ProcessorScratch processor;
  uint64_t per_warp[kSampleWarps];
  uint64_t best[kSampleBlocks], weight[kSampleBlocks]; /* of each block of the cluster */
};

/* One batch slot's sampling, by its cluster. */
template <class Processors>
class SlotSampler {
 public:
  __device__ __forceinline__ SlotSampler(const Sequence& sequence, const struct blink_tables& tables, float* logits,
                                         const SampleSlice& slice, DsmemExchange& exchange, SampleScratch& scratch,
                                         const Processors& processors)
      : sequence_(sequence),
        tables_(tables),
        logits_(logits),
        final_logits_(logits),
        slice_(slice),
        exchange_(exchange),
        scratch_(scratch),
        processors_(processors) {}

  /* As the reference's. Calls take(token) in one thread of the cluster, which has seen `words` written if the request
   * asks for them. */
  template <typename Take>
  __device__ __forceinline__ void run(uint64_t* words, const Take& take) {
    const struct blink_descriptor& params = sequence_.params;
    ScoreScratch& score = scratch_.score;
    const Controls controls(sequence_, tables_);
    const bool asks = params.logprob_words != 0;
    if (asks) scores(params.logprob_words).score(0);
    if (controls.any()) control(controls, sequence_, logits_, slice_);
    penalise();
    if constexpr (Processors::kAny)
      if (is_processed()) final_logits_ = processors_.run(controls, sequence_, slice_, logits_, scratch_.processor);
    choose([&](uint32_t token) {
      if (asks)
        score.taken = token;
      else
        take(token);
    });
    if (!asks) return;
    __syncthreads();
    const uint32_t token = score.taken;
    if (token == kNotTaken) return; /* by another block */
    if (is_token(token)) {
      const bool is_known = params.temperature == 0.0f && !is_processed();
      const float logit = is_known ? logit_of(best_of_cluster()) : number(given_logit(token));
      scores(params.logprob_words).put_answer(words, sequence_, controls, token, logit);
    }
    if (threadIdx.x == 0) take(token);
  }

  /* What a prompt's next token is told to be; calls done() in one thread. */
  template <typename Done>
  __device__ __forceinline__ void run_prompt(uint64_t* words, const Done& done) const {
    const uint32_t token = next_of_prompt(sequence_);
    const Scores prompt = scores(sequence_.params.prompt_logprob_words);
    prompt.score(order_key(number(logits_[token]), token));
    if (slice_.rank != 0) return;
    prompt.put_prompt(words, token);
    if (threadIdx.x == 0) done();
  }

 private:
  __device__ __forceinline__ bool is_processed() const { return Processors::kAny && sequence_.params.n_processors; }

  /* A token's logit as processors, if there were any, were given it; in the block that has it in its slice. */
  __device__ __forceinline__ float given_logit(uint32_t token) const {
    if constexpr (Processors::kAny)
      if (is_processed()) return Processors::given(token, logits_, scratch_.processor);
    return logits_[token];
  }

  __device__ __forceinline__ Scores scores(uint32_t words) const {
    return Scores(logits_, words - 1, slice_, exchange_, scratch_.score, scratch_.select);
  }

  template <typename Take>
  __device__ __forceinline__ void choose(const Take& take) const {
    const struct blink_descriptor& params = sequence_.params;
    const uint64_t best = best_key();
    const bool has_token = is_candidate(logit_of(best));
    if (!has_token || params.temperature == 0.0f) {
      const uint32_t none = best == 0 ? BLINK_DEAD_END : BLINK_NO_TOKEN;
      /* Whoever takes a token reads what its logit was before processors changed it, in its own slice. */
      const bool takes = Processors::kAny && has_token ? slice_.owns(token_of(best)) : slice_.rank == 0;
      if (takes && threadIdx.x == 0) take(has_token ? token_of(best) : none);
      return;
    }
    Filter filter = make_filter(params, logit_of(best));
    Selection selection(params, slice_, final_logits_, exchange_, scratch_.select);
#pragma unroll 1
    for (int stage = 0; stage < 2; ++stage) {
      const bool by_weight = stage;
      const bool wanted = by_weight ? params.top_p < 1.0f : params.top_k != 0 && params.top_k < slice_.vocab;
      if (wanted) filter.max_rank = selection.rank(filter, by_weight);
    }
    draw(filter, selection.is_short(), take);
  }

  /* Calls body(token) once for every distinct token of the block's among the sequence's from `begin` on; in one pass,
   * but where the block has more ids than that marks. */
  template <typename Body>
  __device__ __forceinline__ void for_each_distinct(uint32_t begin, const Body& body) const {
    uint32_t* seen = scratch_.select.seen;
#pragma unroll 1
    for (uint32_t first = slice_.block_begin(); first < slice_.block_end(); first += kSampleSeen) {
#pragma unroll 1
      for (uint32_t w = threadIdx.x; w < min(slice_.partition, kSampleSeen / 32); w += kSampleThreads) seen[w] = 0;
      __syncthreads();
#pragma unroll 1
      for (uint32_t j = begin + threadIdx.x; j < sequence_.length; j += kSampleThreads) {
        const uint32_t t = sequence_.tokens[j], bit = 1u << t % 32;
        const bool marked = t >= first && t - first < kSampleSeen && t < slice_.block_end();
        if (marked && !(atomicOr(seen + (t - first) / 32, bit) & bit)) body(t);
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void penalise() const {
    const struct blink_descriptor& params = sequence_.params;
    if (params.repetition_penalty != 1.0f)
      for_each_distinct(0, [&](uint32_t t) { logits_[t] = repeated(logits_[t], params.repetition_penalty); });
    if (params.presence_penalty != 0.0f)
      for_each_distinct(params.prompt_tokens, [&](uint32_t t) { logits_[t] -= params.presence_penalty; });
    if (params.frequency_penalty != 0.0f) /* equal terms: the order in which threads subtract them does not matter */
      for (uint32_t j = params.prompt_tokens + threadIdx.x; j < sequence_.length; j += kSampleThreads)
        if (slice_.owns(sequence_.tokens[j])) atomicAdd(logits_ + sequence_.tokens[j], -params.frequency_penalty);
    __syncthreads();
    if (!sequence_.may_end()) {
      const uint32_t tid = threadIdx.x;
      if (tid < tables_.n_eos && !sequence_.ignores_eos()) mask(tables_.eos[tid]);
      if (tid < params.n_stop_ids) mask(params.stop_ids[tid]);
      __syncthreads();
    }
  }
  __device__ __forceinline__ void mask(uint32_t token) const {
    if (slice_.owns(token)) logits_[token] = -INFINITY;
  }

  /* The largest order_key of the batch slot's tokens, in every thread; 0 if none is allowed. */
  __device__ __forceinline__ uint64_t best_key() const {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t id = slice_.begin(slice_.warp()) + lane;
    float most = -INFINITY;
    bool exists = id < slice_.begin(slice_.warp() + 1);
    if (slice_.allowed == nullptr) {
      slice_.for_each<16>(final_logits_,
                          [&](uint32_t t, float logit) { /* ascending ids: among equals the first stays */
                                                         if (logit > most) most = logit, id = t;
                          });
    } else {
      exists = false;
      slice_.for_each_allowed<8>(final_logits_, [&](uint32_t t, float logit) {
        if (logit > most) most = logit, id = t;
        exists = true;
      });
    }
    uint64_t best = warp_most(exists ? order_key(number(most), id) : 0);
    if (lane == 0) scratch_.per_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
      best = warp_most(scratch_.per_warp[lane]);
      if (lane < slice_.blocks) exchange_.send(&scratch_.best[slice_.rank], lane, best);
    }
    exchange_.receive(slice_.blocks);
    return best_of_cluster();
  }
  __device__ __forceinline__ uint64_t best_of_cluster() const {
    uint64_t best = 0;
    for (uint32_t block = 0; block < slice_.blocks; ++block) best = max(best, scratch_.best[block]);
    return best;
  }

  /* Inverse of the cumulative weight in order of ids: every warp sums its partition, and the block that holds the draw
   * walks through the partition that does. If the block `is_short`, it goes through its shortlist instead. */
  template <typename Take>
  __device__ __forceinline__ void draw(const Filter& filter, bool is_short, const Take& take) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float low = filter.least_logit(filter.weighted_ranks());
    uint64_t sum = 0;
    const auto add = [&](uint32_t, float logit) {
      if (!(logit < low)) sum += filter.weight(logit);
    };
    if (is_short)
      scratch_.select.shortlist.for_each(add);
    else
      slice_.for_each_allowed<4>(final_logits_, add);
    const uint64_t own = sum;
    sum = warp_total(sum);
    if (lane == 0) scratch_.per_warp[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      sum = warp_total(scratch_.per_warp[lane]);
      if (lane < slice_.blocks) exchange_.send(&scratch_.weight[slice_.rank], lane, sum);
    }
    exchange_.receive(slice_.blocks);
    uint64_t total = 0;
    for (uint32_t block = 0; block < slice_.blocks; ++block) total += scratch_.weight[block];
    uint64_t rest = scale_to(random_bits(sequence_.params.seed, sequence_.answered()), total);
    uint32_t holder = 0;
    while (rest >= scratch_.weight[holder]) rest -= scratch_.weight[holder++];
    if (holder != slice_.rank) return;
    if (is_short) return draw_listed(own, rest, take);
    const uint32_t partition = holder * kSampleWarps + warp_find(scratch_.per_warp[lane], rest);
    for (uint32_t first = slice_.begin(partition), end = slice_.begin(partition + 1); first < end;
         first += kSampleThreads) {
      const uint32_t t = first + threadIdx.x;
      const uint64_t weight = t < end && slice_.allows(t) ? filter.weight(final_logits_[t]) : 0;
      sum = warp_total(weight);
      __syncthreads(); /* the sums of the warps have been read */
      if (lane == 0) scratch_.per_warp[warp] = sum;
      __syncthreads();
      const uint32_t found = warp_find(scratch_.per_warp[lane], rest);
      if (found == 32) continue;
      if (warp != found) return;
      const uint32_t at = warp_find(weight, rest);
      if (lane == 0) take(first + 32 * warp + at);
      return;
    }
  }

  /* The listed token at `rest`, in order of ids; `own`: the weight of the thread's. The weights lie where the
   * histograms were, which all blocks have: all have sent their weight since. */
  template <typename Take>
  __device__ __forceinline__ void draw_listed(uint64_t own, uint64_t rest, const Take& take) const {
    const Shortlist& list = scratch_.select.shortlist;
    uint64_t* const weights = &scratch_.select.histogram[0][0];
    static_assert(sizeof(scratch_.select.histogram) >= kShortlist * sizeof(uint64_t), "they have no room");
    if (threadIdx.x < list.n) weights[threadIdx.x] = own;
    __syncthreads();
    if (own == 0) return;
    const uint32_t token = list.token[threadIdx.x];
    uint64_t before = 0;
    for (uint32_t i = 0; i < list.n; ++i) before += list.token[i] < token ? weights[i] : 0;
    if (before <= rest && rest - before < own) take(token);
  }

  const Sequence& sequence_;
  const struct blink_tables& tables_;
  float* logits_;
  const float* final_logits_; /* from which the token is chosen: where processors have put them, or else `logits_` */
  const SampleSlice& slice_;
  DsmemExchange& exchange_;
  SampleScratch& scratch_;
  const Processors& processors_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_SLOT_SAMPLER_SM90_H */
