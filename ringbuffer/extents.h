/* What a request has of its lease's heaps, and what lies where in it: C++ and CUDA, for both planes (extents.py is the
 * same in Python).
 *
 * In the heap of prompts: the prompt's tokens, and behind them the *controls*, which change its logits, in this order:
 *   mask    with BLINK_FLAG_ALLOWS, a bit for each token of the vocabulary: those that may be sampled
 *   biases  n_biases pairs {token, fp32}: what is added to its logit. Each token at most once
 *   bans    ban_words words: sequences of tokens that the answer does not come to have, BLINK_BAN_END set in the last
 * of each
 *   processors  n_processors times {index, BLINK_PROCESSOR_ARGS fp32}: the logits processors that are applied to its
 * logits, in this order, by their indices in the header, and what they are given
 *
 * In the heap of outputs: a record for each token of the answer. Behind `output_room` of them, `logprob_words` words
 * for each, and behind those, for as many tokens, `prompt_logprob_words` for each token of the prompt. The first word
 * of a token is {rank:32 | log-probability:32}, of this token: an fp32, and its place among all tokens from 1 on, or 0
 * where it is not known. The others are {token:32 | log-probability:32}, of the likeliest, in this order. A prompt's
 * first token has words without a meaning. A status word that says `count` n publishes the words of the first n tokens,
 * and, if n is not 0, those of the prompt (R2).
 */
#ifndef BLINK_RING_EXTENTS_H
#define BLINK_RING_EXTENTS_H

#include "words.h"

namespace blink {

BLINK_WORD uint32_t mask_words(const blink_descriptor& d, uint32_t vocab_size) {
  return d.flags & BLINK_FLAG_ALLOWS ? (vocab_size + 31) / 32 : 0;
}
BLINK_WORD uint64_t control_words(const blink_descriptor& d, uint32_t vocab_size) {
  return mask_words(d, vocab_size) + 2ull * d.n_biases + d.ban_words + BLINK_PROCESSOR_WORDS * d.n_processors;
}
// Words that a range for the prompt needs at least, and that the checksum covers.
BLINK_WORD uint64_t payload_words(const blink_descriptor& d, uint32_t vocab_size) {
  return d.prompt_tokens + control_words(d, vocab_size);
}

// Whether the numbers of words are such as there may be: what follows is then no larger than a word can say.
BLINK_WORD bool counts_are_good(const blink_descriptor& d) {
  return d.n_biases <= BLINK_MAX_BIASES && d.ban_words <= BLINK_MAX_BAN_WORDS &&
         d.n_processors <= BLINK_MAX_ASKED_PROCESSORS && d.logprob_words <= BLINK_MAX_LOGPROBS + 1 &&
         d.prompt_logprob_words <= BLINK_MAX_LOGPROBS + 1;
}
// Words of the range for the answer.
BLINK_WORD uint64_t output_words(const blink_descriptor& d) {
  return uint64_t(d.output_room) * (1 + d.logprob_words) + uint64_t(d.prompt_tokens) * d.prompt_logprob_words;
}

// {rank or token, log-probability}
BLINK_WORD uint64_t logprob_word(uint32_t first, float logprob) {
  union {
    float value;
    uint32_t bits;
  } u = {logprob};
  return pair_word(first, u.bits);
}

}  // namespace blink

#endif /* BLINK_RING_EXTENTS_H */
