/* Tokens of a block's slice of the vocabulary that a grammar is known to allow, without a walk through each.
 *
 * A loop is a state to which the bytes of some classes lead back: within a string, a name or a number. Once there, a
 * token of such bytes alone is allowed. Two may matter: the state in which the answer stands, and one to which letters
 * lead from there, as where a name begins. What is tried first is one step for each byte, from where the answer stands
 * and from the second loop. Which tokens are allowed then follows from maps of bits (blink_vocabulary): all but those
 * whose first byte is of a class that does not lead into the loop, or whose bytes behind it have a class that does not
 * stay. 32 tokens take one operation for each set of such classes.
 *
 * These steps say more. A token's walk ends at a byte that is dead, one that has no move in the loop. If the classes
 * behind the first byte all stay or are all dead, the maps have all of the token's group that is allowed, and none of
 * it has to be walked through. Only tokens with a byte that leads elsewhere are left: to the end of the string, say.
 */
#ifndef BLINK_OPS_SAMPLING_KNOWN_TOKENS_H
#define BLINK_OPS_SAMPLING_KNOWN_TOKENS_H

#include "answer_grammar.h"
#include "vocab_slice.h"

#ifdef __CUDACC__

namespace blink {

constexpr uint32_t kLoops = 2;
constexpr uint32_t kMapsAtOnce = 4; /* that a thread reads */
constexpr uint32_t kMostMaps = 2 * BLINK_BYTE_CLASSES + kMapsAtOnce;
constexpr uint32_t kAllClasses = (1u << BLINK_BYTE_CLASSES) - 1;
constexpr uint32_t kUnknown = BLINK_GRAMMAR_MAX_STATES; /* no state: the walk has changed the stack */

/* Shared memory of a block. Sets of classes have a bit for each. */
struct KnownScratch {
  uint32_t loops[kLoops]; /* the state in which the answer stands, and one behind it, or the same */
  uint32_t leave[kLoops]; /* classes with bytes that do not stay in the loop */
  uint32_t live[kLoops];  /* classes with bytes that may come in the loop */
  uint32_t astray;        /* classes with bytes that do not lead from where the answer stands into the second loop */
  uint32_t into[kLoops];  /* classes whose first bytes lead into the loop, if its maps are used */
  uint32_t n_maps[kLoops];
  alignas(4) uint8_t maps[kLoops][kMostMaps]; /* of tokens that leave the loop */
  alignas(16) uint32_t sets[BLINK_CLASS_SETS];
  uint32_t behind[256]; /* the state behind each byte from where the answer stands; 0: it may not come; or kUnknown */
};

class KnownTokens {
 public:
  __device__ __forceinline__ KnownTokens(const struct blink_vocabulary& vocabulary, const SampleSlice& slice,
                                         KnownScratch& scratch, uint32_t* bits)
      : vocabulary_(vocabulary), slice_(slice), scratch_(scratch), bits_(bits) {}

  /* Before all else, by the whole block. */
  __device__ __forceinline__ void begin() const {
    const uint32_t tid = threadIdx.x;
    if (tid < BLINK_CLASS_SETS) scratch_.sets[tid] = vocabulary_.class_sets[tid];
    if (tid < kLoops) scratch_.leave[tid] = scratch_.live[tid] = 0;
    if (tid == 0) scratch_.astray = 0;
  }

  /* By one warp. */
  __device__ __forceinline__ void find_loops(const Grammar& grammar, const struct blink_grammar_state& now) const {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t state = step_byte(grammar, now, now.state, lane < 26 ? 'a' + lane : '0' + lane - 26);
    const uint32_t votes = __ballot_sync(0xffffffffu, state != 0 && state != kUnknown && state != now.state);
    const uint32_t behind = __shfl_sync(0xffffffffu, state, votes ? __ffs(votes) - 1 : 0);
    if (lane == 0) scratch_.loops[0] = now.state, scratch_.loops[1] = votes ? behind : now.state;
  }

  /* By the whole block, once the loops are there: where each byte leads. */
  __device__ __forceinline__ void step_bytes(const Grammar& grammar, const struct blink_grammar_state& now) const {
    if (threadIdx.x >= kLoops * 256) return;
    const uint32_t which = threadIdx.x / 256, byte = threadIdx.x % 256, loop = scratch_.loops[which];
    const uint32_t in = 1u << vocabulary_.class_of_byte[byte];
    const uint32_t behind = step_byte(grammar, now, loop, byte);
    if (which == 0) scratch_.behind[byte] = behind;
    const uint32_t leave = __reduce_or_sync(0xffffffffu, behind == 0 || behind != loop ? in : 0);
    const uint32_t live = __reduce_or_sync(0xffffffffu, behind != 0 ? in : 0);
    const uint32_t astray = __reduce_or_sync(0xffffffffu, behind == 0 || behind != scratch_.loops[1] ? in : 0);
    if (threadIdx.x % 32 != 0) return;
    atomicOr(&scratch_.leave[which], leave);
    atomicOr(&scratch_.live[which], live);
    if (which == 0) atomicOr(&scratch_.astray, astray);
  }

  /* By one warp for each loop, once all bytes have been stepped. */
  __device__ __forceinline__ void choose_maps() const {
    const uint32_t which = threadIdx.x / 32;
    if (which >= kLoops) return;
    const uint32_t astray = which == 0 ? scratch_.leave[0] : scratch_.astray;
    const bool is_used = astray != kAllClasses && (which == 0 || scratch_.loops[1] != scratch_.loops[0]);
    uint32_t n = 0, end = 0;
    if (is_used) {
      n = take_maps(which, astray, BLINK_MAP_FIRST, 0);
      n = take_maps(which, scratch_.leave[which], BLINK_MAP_REST, n);
      end = max((n + kMapsAtOnce - 1) / kMapsAtOnce, 1u) * kMapsAtOnce;
    }
    const uint32_t lane = threadIdx.x % 32;
    if (n + lane < end) scratch_.maps[which][n + lane] = BLINK_MAP_NO_BYTES;
    if (lane == 0) scratch_.n_maps[which] = end, scratch_.into[which] = is_used ? ~astray : 0;
  }

  /* Writes all bits, by the whole block. `plain`: so many plain characters may follow, at most BLINK_MOST_PLAIN. */
  __device__ __forceinline__ void allow(uint32_t plain) const {
    const uint32_t begin = slice_.block_begin() / 128, n = (slice_.block_end() + 127) / 128 - begin;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += kSampleThreads) {
      Tokens known = {};
#pragma unroll 1
      for (uint32_t which = 0; which < kLoops; ++which)
        if (scratch_.n_maps[which] != 0) known |= ~in_maps(which, begin + i);
      if (plain == BLINK_MOST_PLAIN) known |= ~in_map(BLINK_MAP_NOT_PLAIN, begin + i);
      reinterpret_cast<uint4*>(bits_)[i] = known.words;
    }
    if (plain == 0 || plain == BLINK_MOST_PLAIN) return;
    __syncthreads();
#pragma unroll 1
    for (uint32_t w = threadIdx.x; w < 4 * n; w += kSampleThreads) bits_[w] |= plain_tokens(plain, 4 * begin + w);
  }

  /* Once these maps are chosen: whether `allow` finds all that is allowed of a group. `behind`: the state behind its
   * first byte, `classes` those of the bytes behind that. */
  __device__ __forceinline__ bool has_all(uint32_t behind, uint32_t first_class, uint32_t classes) const {
    bool has = false;
#pragma unroll
    for (uint32_t i = 0; i < kLoops; ++i)
      has |= behind == scratch_.loops[i] && scratch_.into[i] >> first_class & 1 &&
             !(classes & scratch_.leave[i] & scratch_.live[i]);
    return has;
  }
  /* Whether tokens with bytes of these classes alone stay in a state. */
  __device__ __forceinline__ bool stays(uint32_t state, uint32_t classes) const {
    bool stays = false;
#pragma unroll
    for (uint32_t i = 0; i < kLoops; ++i) stays |= state == scratch_.loops[i] && !(classes & scratch_.leave[i]);
    return stays;
  }
  __device__ __forceinline__ uint32_t behind(uint32_t byte) const { return scratch_.behind[byte]; }

 private:
  /* The state behind a byte, from one in which the answer's stack is as it is; 0: it may not come; or kUnknown. */
  static __device__ __forceinline__ uint32_t step_byte(const Grammar& grammar, const struct blink_grammar_state& now,
                                                       uint32_t state, uint32_t byte) {
    PushedStates pushed;
    pushed.at[0] = 0; /* which one step never reads, but some compilers warn of */
    GrammarWalk walk(grammar, now, pushed);
    walk.resume(state);
    return !walk.step(uint8_t(byte)) ? 0 : walk.has_changed_stack() ? kUnknown : walk.state();
  }

  /* Bits of 128 tokens. */
  struct Tokens {
    uint4 words;
    __device__ __forceinline__ void operator|=(const Tokens& other) {
      words.x |= other.words.x, words.y |= other.words.y, words.z |= other.words.z, words.w |= other.words.w;
    }
    __device__ __forceinline__ Tokens operator~() const { return {{~words.x, ~words.y, ~words.z, ~words.w}}; }
  };
  __device__ __forceinline__ Tokens in_map(uint32_t map, uint32_t at) const {
    return {reinterpret_cast<const uint4*>(vocabulary_.maps)[map * ((slice_.vocab + 127) / 128) + at]};
  }
  /* Of a loop's. */
  __device__ __forceinline__ Tokens in_maps(uint32_t which, uint32_t at) const {
    const uint32_t* maps = reinterpret_cast<const uint32_t*>(scratch_.maps[which]);
    const uint32_t n = scratch_.n_maps[which] / kMapsAtOnce;
    Tokens found = {};
#pragma unroll 1
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t four = maps[i];
      Tokens read[kMapsAtOnce];
#pragma unroll
      for (uint32_t j = 0; j < kMapsAtOnce; ++j) read[j] = in_map(four >> 8 * j & 0xff, at);
#pragma unroll
      for (uint32_t j = 0; j < kMapsAtOnce; ++j) found |= read[j];
    }
    return found;
  }

  /* Puts the maps for a set of classes behind `n` others of the loop; returns how many there are then. */
  __device__ __forceinline__ uint32_t take_maps(uint32_t which, uint32_t classes, uint32_t kind, uint32_t n) const {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t taken = 0;
#pragma unroll
    for (uint32_t i = 0; i < BLINK_WIDE_SETS; ++i) {
      const uint32_t set = scratch_.sets[i];
      if (set & ~classes) continue;
      classes &= ~set;
      taken |= 1u << i;
    }
    taken |= __ballot_sync(0xffffffffu, lane >= BLINK_WIDE_SETS && scratch_.sets[lane] & classes);
    if (taken >> lane & 1) scratch_.maps[which][n + __popc(taken & ((1u << lane) - 1))] = uint8_t(kind + lane);
    return n + __popc(taken);
  }

  /* 32 tokens' bits: whether one is of at most so many plain characters, and of nothing else. Four tokens' numbers are
   * compared at once: none has its highest bit. */
  __device__ __forceinline__ uint32_t plain_tokens(uint32_t most, uint32_t at) const {
    const uint32_t limits = most * 0x01010101u | 0x80808080u;
    const uint4* words = reinterpret_cast<const uint4*>(vocabulary_.plain) + 2 * at;
    const uint4 numbers[2] = {words[0], words[1]};
    const uint32_t* fours = reinterpret_cast<const uint32_t*>(numbers);
    uint32_t found = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t within = (limits - fours[i]) & (fours[i] + 0x7f7f7f7fu) & 0x80808080u;
      found |= (within >> 7) * 0x10204080u >> 28 << 4 * i;
    }
    return found;
  }

  const struct blink_vocabulary& vocabulary_;
  const SampleSlice& slice_;
  KnownScratch& scratch_;
  uint32_t* bits_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_KNOWN_TOKENS_H */
