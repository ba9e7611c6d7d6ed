/* Log-probabilities: log_softmax of a batch slot's raw logits, before controls, penalties and temperature (vLLM's
 * default).
 *
 * The sum under the logarithm is one of integer weights (token_weight.h), so it depends neither on the order in which
 * threads add nor on the other batch slots (E6), and kernel and reference agree to the last bit. A log-probability is
 * within 2e-6 and 2^-22 of its size of what real numbers give.
 *
 * The sampler changes logits in place. What a drawn token's was before is worked out backwards, unless it is among the
 * likeliest that are told: within some units in the last place of what its penalties and bias are.
 */
#ifndef BLINK_OPS_SAMPLING_LOG_WEIGHT_H
#define BLINK_OPS_SAMPLING_LOG_WEIGHT_H

#include "controls.h"

namespace blink {

constexpr uint32_t kLikeliest = BLINK_MAX_LOGPROBS;

/* ln(total / kUnit) of a sum of weights, at least one of them kUnit. */
BLINK_HD float log_of_weight(uint64_t total) {
  union {
    double value;
    uint64_t bits;
  } u = {double(total)};
  int exponent = int(u.bits >> 52) - 1023 - 40;
  u.bits = (u.bits & 0xfffffffffffffull) | 0x3ff0000000000000ull; /* the mantissa, in [1, 2) */
  if (u.value > 1.4142135623730951) u.value *= 0.5, ++exponent;
  const double s = (u.value - 1.0) / (u.value + 1.0), s2 = s * s; /* ln m = 2 artanh s */
  double series = fma(1.0 / 13.0, s2, 1.0 / 11.0);
  series = fma(series, s2, 1.0 / 9.0);
  series = fma(series, s2, 1.0 / 7.0);
  series = fma(series, s2, 1.0 / 5.0);
  series = fma(series, s2, 1.0 / 3.0);
  series = fma(series, s2, 1.0);
  return float(fma(double(exponent), 0.6931471805599453, series * (2.0 * s)));
}

/* The softmax of a batch slot's logits. */
struct Softmax {
  float max, log_sum;

  /* exp(logit - max) as a weight. */
  static BLINK_HD uint64_t weight(float logit, float max) {
    logit = number(logit);
    return logit == max ? kUnit : weight_of(logit - max);
  }
  BLINK_HD float logprob(float logit) const {
    logit = number(logit);
    return logit == max ? -log_sum : logit - max - log_sum;
  }
};

/* A logit before its bias and penalties, from what they have made of it. The token stands `count` times in the answer;
 * `seen`: there or in the prompt. */
BLINK_HD float raw_logit(const struct blink_descriptor& params, float logit, uint32_t count, bool seen, float bias) {
  logit = fmaf(params.frequency_penalty, float(count), logit);
  if (count) logit += params.presence_penalty;
  const float repetition = seen ? params.repetition_penalty : 1.0f;
  return logit > 0.0f ? fmaf(logit, repetition, -bias) : logit / repetition - bias;
}
BLINK_HD bool penalises(const struct blink_descriptor& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

BLINK_HD uint32_t token_of(uint64_t key) {
  return 0xffffffffu - uint32_t(key);
}
BLINK_HD uint64_t likeliest_word(const Softmax& softmax, uint64_t key) {
  return logprob_word(token_of(key), softmax.logprob(logit_of(key)));
}
BLINK_HD uint64_t* logprobs_of(const struct blink_step_set& set, uint32_t batch_slot) {
  return set.out_logprobs + uint64_t(batch_slot) * BLINK_LOGPROB_WORDS;
}
/* The prompt's token whose log-probability is in the logits behind the `length` tokens before it. */
BLINK_HD uint32_t next_of_prompt(const Sequence& sequence) {
  return sequence.tokens[sequence.length];
}

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_LOG_WEIGHT_H */
