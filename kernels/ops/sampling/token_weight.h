/* The sampler's arithmetic on one logit, shared by kernel and reference.
 *
 * A result must depend neither on the order in which threads add nor on the other batch slots (E6). So a token's
 * probability is a 64-bit integer weight, exp(x) in units of 2^-40 of the likeliest token's, its place in the
 * order is an integer rank, and the draw is a hash of (seed, position in the answer). Nothing here can be
 * contracted to a fused multiply-add at a compiler's discretion, so kernel and reference sample the same token
 * from the same logits.
 */
#ifndef BLINK_OPS_SAMPLING_TOKEN_WEIGHT_H
#define BLINK_OPS_SAMPLING_TOKEN_WEIGHT_H

#include "kernels/primitives/common.h"

namespace blink {

constexpr uint64_t kUnit = 1ull << 40; /* weight of the likeliest token */

/* NaN as minus infinity, and no negative zero. */
BLINK_HD float number(float logit) {
  return logit == logit ? logit + 0.0f : -INFINITY;
}

/* x = (logit - max) / temperature, at most 0. */
BLINK_HD float scaled(float logit, float max, float temperature) {
  return logit == max ? 0.0f : (logit - max) / temperature;
}

/* The same quotient to the last bit, for a fraction of a division's instructions, with `inverse` = 1 / temperature:
 * Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor" (1990), theorem 6. The first
 * step brings the quotient within a unit of its last place, the second rounds it; remainders are exact within the
 * ranges. */
BLINK_HD bool divides_fast(float temperature) {
  return temperature > 0x1p-30f && temperature < 0x1p30f;
}
BLINK_HD float scaled_fast(float logit, float max, float temperature, float inverse) {
  const float distance = logit - max;
  if (!(distance < -0x1p-60f && distance > -0x1p60f)) return scaled(logit, max, temperature);
  float x = distance * inverse;
  x = fmaf(fmaf(-x, temperature, distance), inverse, x);
  return fmaf(fmaf(-x, temperature, distance), inverse, x);
}

constexpr float kRankUnit = 134217728.0f; /* 2^27: ranks that a distance of 1 has */
constexpr uint64_t kRanks = 1ull << 32;
constexpr uint32_t kLastRank = 0xffffffffu; /* of all that is farther than any rank */

/* Distance from the likeliest token, in units of 2^-27 up to 32: tokens beyond have no weight. */
BLINK_HD uint32_t rank_of(float x) {
  const float distance = -x * kRankUnit;
  return distance < 4294967040.0f ? uint32_t(distance) : kLastRank;
}

constexpr float kFarthest = 28.0f; /* distance from which on tokens have no weight */
constexpr uint64_t kWeightedRanks = uint64_t(kFarthest) * (1ull << 27);

BLINK_HD uint32_t bits_of(float x) {
  union {
    float value;
    uint32_t bits;
  } u = {x};
  return u.bits;
}

/* floor(exp(x) * kUnit), within 2^-22 relative. Conversions between floats and integers are slow on a GPU; the bits of
 * floats whose exponents are known make them superfluous. */
BLINK_HD uint64_t weight_of(float x) {
  if (!(x > -kFarthest)) return 0;
  constexpr float kRound = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded to an integer */
  const float rounded = fmaf(x, 1.44269504f, kRound), n = rounded - kRound;
  float r = fmaf(n, -0.693359375f, x); /* ln 2 in two parts: x - n ln 2 is exact to the last bits */
  r = fmaf(n, 2.12194440e-4f, r);
  float p = fmaf(1.38888889e-3f, r, 8.33333333e-3f); /* exp(r) for |r| <= ln(2) / 2 */
  p = fmaf(p, r, 4.16666667e-2f);
  p = fmaf(p, r, 1.66666667e-1f);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const uint32_t mantissa = (bits_of(p) & 0x7fffff) | 0x800000; /* p = mantissa * 2^(exponent - 150) */
  const int exponent = int(bits_of(p) >> 23), power = int(bits_of(rounded) - bits_of(kRound));
  const int shift = exponent - 150 + 40 + power;
  return shift >= 0 ? uint64_t(mantissa) << shift : mantissa >> -shift;
}

BLINK_HD uint64_t random_bits(uint64_t seed, uint64_t position) {
  return mix(mix(seed + 0x9e3779b97f4a7c15ull) + (position + 1) * 0x9e3779b97f4a7c15ull);
}

/* floor(bits / 2^64 * total): uniform in [0, total). */
BLINK_HD uint64_t scale_to(uint64_t bits, uint64_t total) {
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, total);
#else
  return uint64_t((static_cast<unsigned __int128>(bits) * total) >> 64);
#endif
}

/* Larger for a larger logit and, among equals, for a lower id. */
BLINK_HD uint64_t order_key(float logit, uint32_t id) {
  union {
    float value;
    uint32_t bits;
  } u = {logit};
  const uint32_t ordered = u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
  return uint64_t(ordered) << 32 | (0xffffffffu - id);
}

/* The logit of a key, after number(). */
BLINK_HD float logit_of(uint64_t key) {
  const uint32_t ordered = uint32_t(key >> 32);
  union {
    uint32_t bits;
    float value;
  } u = {ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered};
  return u.value;
}

/* Whether there is anything to draw: in a batch slot whose largest logit is minus infinity there is not, and an end
 * token that is masked would be as likely as all others. */
BLINK_HD bool is_candidate(float logit) {
  return logit > -INFINITY;
}

/* What may be drawn: the weight of a token, 0 if min-p, top-k or top-p excludes it. */
struct Filter {
  float max, temperature, inverse; /* inverse: 1 / temperature, or 0 where scaled_fast does not apply */
  uint64_t min_weight;             /* min-p */
  uint32_t max_rank;               /* top-k, top-p */

  BLINK_HD bool admits(float x) const {
    return (min_weight == 0 || weight_of(x) >= min_weight) && rank_of(x) <= max_rank;
  }
  /* No token with a rank below `end` has a smaller logit, and none with one from `first` on a larger logit: what is
   * beyond needs no further look. */
  BLINK_HD float least_logit(uint64_t end) const { return max - reach(end) - slack(reach(end)); }
  BLINK_HD float most_logit(uint64_t first) const { return max - reach(first) + slack(reach(first)); }
  /* Tokens have no weight from this rank on. */
  BLINK_HD uint64_t weighted_ranks() const {
    const uint64_t kept_ranks = max_rank + 1ull, weighted = kWeightedRanks;
    return kept_ranks < weighted ? kept_ranks : weighted;
  }
  BLINK_HD float scale(float logit) const {
    return inverse == 0.0f ? scaled(number(logit), max, temperature)
                           : scaled_fast(number(logit), max, temperature, inverse);
  }
  BLINK_HD uint64_t weight(float logit) const {
    const float x = scale(logit);
    return admits(x) ? weight_of(x) : 0;
  }

 private:
  BLINK_HD float reach(uint64_t ranks) const { return float(ranks) * (1.0f / kRankUnit) * temperature; }
  /* More than the rounding of a reach, of a logit's distance and of its quotient. */
  BLINK_HD float slack(float reach) const { return (fabsf(max) + reach) * 0x1p-20f + 1e-37f; }
};

BLINK_HD Filter make_filter(const struct blink_descriptor& params, float max) {
  const float temperature = params.temperature, inverse = divides_fast(temperature) ? 1.0f / temperature : 0.0f;
  return {max, temperature, inverse, uint64_t(ceil(double(params.min_p) * double(kUnit))), kLastRank};
}

/* How much top-k or top-p keeps of `total`: tokens for top-k, weight for top-p. At least 1. */
BLINK_HD uint64_t kept(const struct blink_descriptor& params, bool by_weight, uint64_t total) {
  if (!by_weight) return params.top_k < total ? params.top_k : total;
  const uint64_t target = uint64_t(ceil(double(params.top_p) * double(total)));
  return target < 1 ? 1 : target < total ? target : total;
}

/* One batch slot's view of its sequence. */
struct Sequence {
  const struct blink_descriptor& params;
  uint32_t index;   /* its place in the tables */
  uint32_t* tokens; /* prompt and answer so far: `length` of them */
  uint32_t length;
  uint32_t drafts; /* the last so many of them are drafts (E27) */

  BLINK_HD uint32_t answered() const { return length - params.prompt_tokens; }
  BLINK_HD bool may_end() const { return answered() >= params.min_tokens; }
  BLINK_HD bool ignores_eos() const { return params.flags & BLINK_FLAG_IGNORE_EOS; }
};

BLINK_HD Sequence sequence_of(const struct blink_step_set& set, const struct blink_tables& tables,
                              uint32_t batch_slot) {
  const uint32_t sequence = set.batch_sequence[batch_slot], last = set.batch_last[batch_slot];
  const uint32_t drafts = batch_slot < set.head->n_decode ? last - set.batch_first[batch_slot] : 0;
  return {tables.params[sequence], sequence, tables.history + uint64_t(sequence) * tables.max_context,
          set.token_position[last] + 1, drafts};
}

/* Whether a step has found a token, and not the reason why there is none. */
BLINK_HD bool is_token(uint32_t outcome) {
  return outcome != BLINK_NO_TOKEN && outcome != BLINK_DEAD_END;
}

/* Whether a token is to be sampled. */
BLINK_HD bool samples(uint32_t emit) {
  return emit == BLINK_EMIT_TOKEN || emit == BLINK_EMIT_CHECKED;
}

/* Of a batch slot: the token that was sampled, or why there is none. The history holds tokens only, because a step that
 * was planned ahead feeds what stands there. Where a draft stands, it stays: rows behind this one read it (E27). */
BLINK_HD void put_token(const struct blink_step_set& set, const struct blink_tables& tables, const Sequence& sequence,
                        uint32_t batch_slot, uint32_t token) {
  set.out_token[batch_slot] = token;
  const bool is_free = sequence.length < tables.max_context && set.batch_emit[batch_slot] != BLINK_EMIT_CHECKED;
  if (is_free) sequence.tokens[sequence.length] = is_token(token) ? token : 0;
}

BLINK_HD float repeated(float logit, float penalty) {
  return logit > 0.0f ? logit / penalty : logit * penalty;
}

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_TOKEN_WEIGHT_H */
