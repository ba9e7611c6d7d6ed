/* Top-k and top-p as one question: the smallest rank up to which the kept tokens lie. Radix selection over
 * the 32-bit ranks, 8 bits a pass, each pass a histogram of counts (top-k) or weights (top-p). Tokens that
 * tie at the threshold are all kept.
 */
#ifndef BLINK_OPS_SAMPLING_TOP_K_TOP_P_H
#define BLINK_OPS_SAMPLING_TOP_K_TOP_P_H

#include "shortlist.h"

namespace blink {

#ifndef __CUDACC__

/* The smallest rank up to which at least kept() of the admitted tokens, counted or weighed, lie. Radix
 * selection, 8 bits a pass. */
inline uint32_t select_rank(const struct blink_descriptor& params, const Filter& filter, bool by_weight,
                            const float* logits, uint32_t vocab) {
  uint64_t target = 0;
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    uint64_t histogram[256] = {}, total = 0;
    for (uint32_t t = 0; t < vocab; ++t) {
      const float x = scaled(number(logits[t]), filter.max, filter.temperature);
      const uint32_t rank = rank_of(x);
      if (!filter.admits(x) || (shift < 24 && rank >> (shift + 8) != prefix)) continue;
      histogram[rank >> shift & 255] += by_weight ? weight_of(x) : 1;
    }
    for (uint64_t mass : histogram) total += mass;
    if (shift == 24) target = kept(params, by_weight, total);
    uint32_t digit = 0;
    while (histogram[digit] < target) target -= histogram[digit++];
    prefix = prefix << 8 | digit;
  }
  return prefix;
}

#else

constexpr uint32_t kBins = 256;

/* Shared memory of a selection. A histogram's masses have 64 bits, of which the halves are added separately: shared
 * memory has no native 64-bit addition. */
struct SelectScratch {
  alignas(16) uint64_t histogram[2][kBins]; /* of this block: one is sent while the next is filled */
  union {
    alignas(16) uint64_t received[2][kSampleBlocks][kBins];
    uint32_t seen[kSampleSeen / 32]; /* a bit for each of a pass's tokens, before the first exchange */
    struct {                         /* of scores, before that */
      uint64_t candidates[kCandidates], groups[kGroups];
    };
  };
  Shortlist shortlist;
  uint64_t per_warp[kBins / 32];
  uint64_t target;
  uint32_t digit;
};

__device__ __forceinline__ void add_mass(uint64_t* bin, uint64_t mass) {
  uint32_t* halves = reinterpret_cast<uint32_t*>(bin); /* little-endian */
  const uint32_t low = uint32_t(mass), before = atomicAdd(halves, low);
  const uint32_t high = uint32_t(mass >> 32) + (before + low < before);
  if (high) atomicAdd(halves + 1, high);
}

/* The selections of a batch slot, by its cluster. */
class Selection {
 public:
  __device__ __forceinline__ Selection(const struct blink_descriptor& params, const SampleSlice& slice,
                                       const float* logits, DsmemExchange& exchange, SelectScratch& scratch)
      : params_(params), slice_(slice), logits_(logits), exchange_(exchange), scratch_(scratch) {}

  /* Before the first. */
  static __device__ __forceinline__ void clear(SelectScratch& scratch) {
    if (threadIdx.x < kBins) scratch.histogram[0][threadIdx.x] = 0;
    scratch.shortlist.clear();
  }

  /* As the reference's. */
  __device__ __forceinline__ uint32_t rank(const Filter& filter, bool by_weight) {
    uint32_t prefix = 0;
    uint64_t target = 0;
#pragma unroll 1
    for (int shift = 24; shift >= 0; shift -= 8) {
      uint64_t* histogram = scratch_.histogram[turn_];
      const bool lists = shift == 16 && !has_listed_;
      count(filter, by_weight, shift, prefix, lists, histogram);
      exchange_.send_all(scratch_.received[turn_][slice_.rank], histogram, kBins, slice_.blocks);
      exchange_.receive(slice_.blocks * kBins);
      if (lists) has_listed_ = true, is_short_ = scratch_.shortlist.has_all();
      target = choose(by_weight, shift == 24, target);
      prefix = prefix << 8 | scratch_.digit;
      turn_ ^= 1;
    }
    return prefix;
  }

  /* Whether all of the block's tokens that are kept are in the shortlist. */
  __device__ __forceinline__ bool is_short() const { return is_short_; }

 private:
  /* Masses of this block's tokens whose rank starts with `prefix`, by its next digit. `lists`: makes the shortlist. */
  __device__ __forceinline__ void count(const Filter& filter, bool by_weight, int shift, uint32_t prefix, bool lists,
                                        uint64_t* histogram) const {
    const bool is_first = shift == 24;
    const uint64_t first = is_first ? 0 : uint64_t(prefix) << (shift + 8);
    const uint64_t end = is_first ? kRanks : (prefix + 1ull) << (shift + 8);
    /* The last rank has no end: on the first pass it is what is beyond all others, later nothing is too low. */
    const bool takes_last = !by_weight && !is_first && end == kRanks;
    const float low = takes_last  ? -INFINITY
                      : by_weight ? filter.least_logit(min(end, filter.weighted_ranks()))
                                  : filter.least_logit(end);
    const float high = filter.most_logit(first);
    const bool counts_low = is_first && !by_weight && filter.min_weight == 0;
    uint32_t last = 0; /* tokens of the last rank: many in a peaked distribution */
    const auto add = [&](uint32_t token, float logit) {
      if (logit < low) {
        last += counts_low;
        return;
      }
      if (lists) scratch_.shortlist.add(token, logit);
      if (logit > high) return;
      const float x = filter.scale(logit);
      const uint32_t rank = rank_of(x);
      if (!filter.admits(x) || (!is_first && rank >> (shift + 8) != prefix)) return;
      const uint64_t mass = by_weight ? weight_of(x) : 1;
      if (!by_weight && rank == kLastRank) {
        ++last;
      } else if (mass != 0) {
        add_mass(&histogram[rank >> shift & (kBins - 1)], mass);
      }
    };
    if (is_short_)
      scratch_.shortlist.for_each(add);
    else
      slice_.for_each_allowed<4>(logits_, add);
    const uint64_t sum = warp_total(last);
    if (sum != 0 && threadIdx.x % 32 == 0) add_mass(&histogram[kBins - 1], sum);
  }

  /* The digit at which the cluster's masses reach the target, and the target that is left. A thread a bin. */
  __device__ __forceinline__ uint64_t choose(bool by_weight, bool is_first, uint64_t target) const {
    const uint32_t bin = threadIdx.x, warp = bin / 32;
    uint64_t mass = 0;
    if (bin < kBins)
      for (uint32_t block = 0; block < slice_.blocks; ++block) mass += scratch_.received[turn_][block][bin];
    const uint64_t through = warp_scan(mass);
    if (bin < kBins && bin % 32 == 31) scratch_.per_warp[warp] = through;
    __syncthreads();
    /* The other histogram has been sent: all have received it, since all have sent the one after it. */
    if (bin < kBins) scratch_.histogram[turn_ ^ 1][bin] = 0;
    uint64_t total = 0, before = through - mass;
#pragma unroll
    for (uint32_t w = 0; w < kBins / 32; ++w) {
      const uint64_t of_warp = scratch_.per_warp[w];
      before += w < warp ? of_warp : 0;
      total += of_warp;
    }
    if (is_first) target = kept(params_, by_weight, total);
    if (bin < kBins && before < target && target <= before + mass) /* exactly one */
      scratch_.target = target - before, scratch_.digit = bin;
    __syncthreads();
    return scratch_.target;
  }

  const struct blink_descriptor& params_;
  const SampleSlice& slice_;
  const float* logits_;
  DsmemExchange& exchange_;
  SelectScratch& scratch_;
  uint32_t turn_ = 0;
  bool has_listed_ = false, is_short_ = false;
};

#endif /* __CUDACC__ */

}  // namespace blink

#endif /* BLINK_OPS_SAMPLING_TOP_K_TOP_P_H */
