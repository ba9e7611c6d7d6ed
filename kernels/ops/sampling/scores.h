/* Scores: how likely a batch slot's tokens are, by its raw logits: one token with its rank, and the likeliest of all.
 *
 * On the GPU a cluster shares a batch slot. In a first pass every block finds the most likely token of each group of
 * threads; the n-th of these bounds from below what can be among the block's n likeliest. A second pass sums up weights
 * and collects what is not below the bound, usually some dozens. Where more is collected than there is room for, the
 * n-th of what there was room for is a higher bound, and the block collects again.
 */
#ifndef BLINK_OPS_SAMPLING_SCORES_H
#define BLINK_OPS_SAMPLING_SCORES_H

#include "log_weight.h"
#include "top_k_top_p.h"

#ifndef __CUDACC__
#include <algorithm>
#include <vector>
#endif

namespace blink {

#ifndef __CUDACC__

class Scores {
 public:
  Scores(const float* logits, uint32_t vocab, uint32_t n_likeliest) : logits_(logits), keys_(vocab) {
    for (uint32_t t = 0; t < vocab; ++t) keys_[t] = order_key(number(logits[t]), t);
    n_ = std::min(n_likeliest, vocab);
    likeliest_.resize(std::max(n_, 1u));
    std::partial_sort_copy(keys_.begin(), keys_.end(), likeliest_.begin(), likeliest_.end(), std::greater<>());
    softmax_.max = logit_of(likeliest_[0]);
    uint64_t total = 0;
    for (uint32_t t = 0; t < vocab; ++t) total += Softmax::weight(logits[t], softmax_.max);
    softmax_.log_sum = log_of_weight(total);
  }

  /* Of a prompt's token. */
  void put_prompt(uint64_t* words, uint32_t token) const {
    uint32_t rank = 1;
    for (uint64_t key : keys_) rank += key > keys_[token];
    put(words, rank, logits_[token]);
  }

  /* Of the token that was drawn, with `logit`. */
  void put_answer(uint64_t* words, const Sequence& sequence, const Controls& controls, uint32_t token,
                  float logit) const {
    for (uint32_t i = 0; i < n_; ++i)
      if (token_of(likeliest_[i]) == token) return put(words, i + 1, logit_of(likeliest_[i]));
    uint32_t count = 0, seen = 0;
    float bias = 0;
    for (uint32_t j = 0; j < sequence.length; ++j) {
      seen += sequence.tokens[j] == token;
      count += j >= sequence.params.prompt_tokens && sequence.tokens[j] == token;
    }
    for (uint32_t i = 0; i < controls.n_biases; ++i)
      if (controls.biased(i) == token) bias = controls.bias(i);
    put(words, 0, raw_logit(sequence.params, logit, count, seen, bias));
  }

 private:
  void put(uint64_t* words, uint32_t rank, float logit) const {
    words[0] = logprob_word(rank, softmax_.logprob(logit));
    for (uint32_t i = 0; i < n_; ++i) words[1 + i] = likeliest_word(softmax_, likeliest_[i]);
  }

  const float* logits_; /* as they are when it is made, but for `put_prompt` they must stay */
  std::vector<uint64_t> keys_, likeliest_;
  uint32_t n_;
  Softmax softmax_;
};

#else

static_assert(kLikeliest <= kGroups && kCandidates == kSampleThreads, "a bound has to be found among so many");

constexpr uint32_t kNotTaken = BLINK_DEAD_END - 1;

/* Shared memory of one block, beside the room for candidates that the selection has (SelectScratch). */
struct ScoreScratch {
  uint64_t most[kSampleBlocks], weight[kSampleBlocks], ahead[kSampleBlocks]; /* of each block of the cluster */
  alignas(16) uint64_t own[kLikeliest];                                      /* of this block, the likeliest first */
  alignas(16) uint64_t likeliest[kSampleBlocks][kLikeliest];
  uint64_t best, bound;
  Softmax softmax;
  uint32_t n_candidates;
  uint32_t taken;             /* the token that this block has drawn, or kNotTaken */
  uint32_t rank, count, seen; /* of the token that was taken */
  float logit, bias;
};

class Scores {
 public:
  __device__ __forceinline__ Scores(const float* logits, uint32_t n_likeliest, const SampleSlice& slice,
                                    DsmemExchange& exchange, ScoreScratch& scratch, SelectScratch& room)
      : logits_(logits), n_(n_likeliest), slice_(slice), exchange_(exchange), scratch_(scratch), room_(room) {
    slice_.allowed = nullptr; /* what a grammar masks is as likely as it is */
  }

  /* By the cluster, of logits that nobody has changed yet. `own`: the key of a token whose rank is wanted, or 0. */
  __device__ __forceinline__ void score(uint64_t own) const {
    find_bound();
    __syncthreads();
    if (threadIdx.x < slice_.blocks) exchange_.send(&scratch_.most[slice_.rank], threadIdx.x, scratch_.best);
    exchange_.receive(slice_.blocks);
    uint64_t most = 0;
    for (uint32_t block = 0; block < slice_.blocks; ++block) most = max(most, scratch_.most[block]);
    const float max_logit = logit_of(most);
    sum_up(own, max_logit);
    __syncthreads();
    if (n_ != 0) choose();
    if (threadIdx.x < 32) {
      const uint64_t weight = warp_total(room_.groups[threadIdx.x]);
      const uint64_t ahead = warp_total(room_.groups[32 + threadIdx.x]);
      if (threadIdx.x < slice_.blocks) {
        exchange_.send(&scratch_.weight[slice_.rank], threadIdx.x, weight);
        exchange_.send(&scratch_.ahead[slice_.rank], threadIdx.x, ahead);
      }
    }
    exchange_.send_all(scratch_.likeliest[slice_.rank], scratch_.own, kLikeliest, slice_.blocks);
    exchange_.receive(slice_.blocks * (2 + kLikeliest));
    uint64_t total = 0;
    for (uint32_t block = 0; block < slice_.blocks; ++block) total += scratch_.weight[block];
    if (threadIdx.x == 0) scratch_.softmax = {max_logit, log_of_weight(total)}, scratch_.taken = kNotTaken;
    __syncthreads();
  }

  /* As the reference's, by one block; its first thread has seen all words written. */
  __device__ __forceinline__ void put_prompt(uint64_t* words, uint32_t token) const {
    put_likeliest(words, BLINK_NO_TOKEN);
    __syncthreads();
    if (threadIdx.x != 0) return;
    uint64_t rank = 1;
    for (uint32_t block = 0; block < slice_.blocks; ++block) rank += scratch_.ahead[block];
    words[0] = logprob_word(uint32_t(rank), scratch_.softmax.logprob(logits_[token]));
  }
  __device__ __forceinline__ void put_answer(uint64_t* words, const Sequence& sequence, const Controls& controls,
                                             uint32_t token, float logit) const {
    if (threadIdx.x == 0) scratch_.rank = scratch_.count = scratch_.seen = 0, scratch_.bias = 0.0f;
    __syncthreads();
    put_likeliest(words, token);
    if (penalises(sequence.params))
      for (uint32_t j = threadIdx.x; j < sequence.length; j += kSampleThreads) {
        if (sequence.tokens[j] != token) continue;
        scratch_.seen = 1;
        if (j >= sequence.params.prompt_tokens) atomicAdd(&scratch_.count, 1u);
      }
    for (uint32_t i = threadIdx.x; i < controls.n_biases; i += kSampleThreads)
      if (controls.biased(i) == token) scratch_.bias = controls.bias(i);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const float raw = scratch_.rank ? scratch_.logit
                                    : raw_logit(sequence.params, logit, scratch_.count, scratch_.seen, scratch_.bias);
    words[0] = logprob_word(scratch_.rank, scratch_.softmax.logprob(raw));
  }

 private:
  static __device__ __forceinline__ uint32_t ahead_of(uint64_t key, const uint64_t* keys, uint32_t n) {
    uint32_t ahead = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < n; ++i) ahead += keys[i] > key;
    return ahead;
  }

  /* The best of the block, and the n-th of what is best in its groups: 0 where there are fewer. */
  __device__ __forceinline__ void find_bound() const {
    uint64_t most = 0;
    slice_.for_each<4>(logits_, [&](uint32_t t, float logit) { most = max(most, order_key(number(logit), t)); });
#pragma unroll
    for (uint32_t offset = 1; offset < kGroupThreads; offset *= 2)
      most = max(most, __shfl_xor_sync(0xffffffffu, most, int(offset)));
    const uint32_t group = threadIdx.x / kGroupThreads;
    if (threadIdx.x % kGroupThreads == 0) room_.groups[group] = most;
    if (threadIdx.x == 0) scratch_.bound = 0, scratch_.n_candidates = 0;
    if (threadIdx.x < kLikeliest) scratch_.own[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x >= kGroups) return;
    const uint64_t key = room_.groups[threadIdx.x];
    const uint32_t ahead = ahead_of(key, room_.groups, kGroups);
    if (ahead == 0) scratch_.best = key;
    if (key != 0 && ahead + 1 == n_) scratch_.bound = key;
  }

  /* Of each warp the weights and the tokens ahead of `own`, into `groups`; and the candidates. */
  __device__ __forceinline__ void sum_up(uint64_t own, float max_logit) const {
    uint64_t weight = 0, ahead = 0;
    slice_.for_each<4>(logits_, [&](uint32_t t, float logit) {
      weight += Softmax::weight(logit, max_logit);
      const uint64_t key = order_key(number(logit), t);
      ahead += key > own;
      if (n_ != 0) collect(key);
    });
    weight = warp_total(weight);
    ahead = warp_total(ahead);
    if (threadIdx.x % 32 == 0) room_.groups[threadIdx.x / 32] = weight, room_.groups[32 + threadIdx.x / 32] = ahead;
  }
  __device__ __forceinline__ void collect(uint64_t key) const {
    if (key < scratch_.bound) return;
    const uint32_t place = atomicAdd(&scratch_.n_candidates, 1u);
    if (place < kCandidates) room_.candidates[place] = key;
  }

  /* The block's likeliest, in their order. */
  __device__ __forceinline__ void choose() const {
#pragma unroll 1
    while (scratch_.n_candidates > kCandidates) {
      const uint64_t key = room_.candidates[threadIdx.x];
      const uint32_t ahead = ahead_of(key, room_.candidates, kCandidates);
      __syncthreads();
      if (ahead + 1 == n_) scratch_.bound = key;
      if (threadIdx.x == 0) scratch_.n_candidates = 0;
      __syncthreads();
      slice_.for_each<4>(logits_, [&](uint32_t t, float logit) { collect(order_key(number(logit), t)); });
      __syncthreads();
    }
    const uint32_t n = scratch_.n_candidates;
    if (threadIdx.x >= n) return;
    const uint64_t key = room_.candidates[threadIdx.x];
    const uint32_t ahead = ahead_of(key, room_.candidates, n);
    if (ahead < n_) scratch_.own[ahead] = key;
  }

  /* The likeliest of the cluster. If `token` is one of them, `rank` and `logit` tell of it. */
  __device__ __forceinline__ void put_likeliest(uint64_t* words, uint32_t token) const {
    const uint64_t* keys = scratch_.likeliest[0];
    const uint32_t n = slice_.blocks * kLikeliest;
    if (threadIdx.x >= n || keys[threadIdx.x] == 0) return;
    const uint64_t key = keys[threadIdx.x];
    const uint32_t ahead = ahead_of(key, keys, n);
    if (ahead >= n_) return;
    words[1 + ahead] = likeliest_word(scratch_.softmax, key);
    if (token_of(key) == token) scratch_.rank = ahead + 1, scratch_.logit = logit_of(key);
  }

  const float* logits_;
  const uint32_t n_;
  SampleSlice slice_;
  DsmemExchange& exchange_;
  ScoreScratch& scratch_;
  SelectScratch& room_;
};

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_SCORES_H */
