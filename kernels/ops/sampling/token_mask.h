/* Which tokens of a block's slice of the vocabulary a grammar allows next: a bit for each, in shared memory.
 *
 * To walk through all tokens of the vocabulary would take too long, so few are. Tokens of plain characters, most of a
 * vocabulary, are all allowed within free text, where the state says how many plain characters may follow. The others
 * lie in groups of 32 that begin alike: a thread walks through what all of a group begin with, which ends most groups
 * where structure is expected. Where a name or a number goes on, many groups have bytes alone that do not leave the
 * state: they are allowed as a whole. Of what is left, each lane of a warp walks through one token.
 *
 * E26. What is read here is there before the logits are, so the sampler does not wait for its predecessor (E7): the
 * grammar was written by the scheduler before it launched the step, and the token and the state before it by the step
 * before, which had ended when this step's gate opened. L1 may have older ones, so these two are read from L2.
 */
#ifndef BLINK_OPS_SAMPLING_TOKEN_MASK_H
#define BLINK_OPS_SAMPLING_TOKEN_MASK_H

#include "answer_grammar.h"
#include "vocab_slice.h"

#ifdef __CUDACC__

namespace blink {

/* state:16 | whole:1 | group:15. Behind the group's prefix its tokens go on in the state, 0: they begin where the
 * answer stands. `whole`: all of them are allowed. */
using Queued = uint32_t;
constexpr uint32_t kWhole = 1u << 15;
constexpr uint32_t kMostGroups = 1 << 13; /* that are queued at once */

/* Shared memory of a block's mask, beside its bits and the queue. */
struct MaskScratch {
  struct blink_grammar_state before, now; /* where the answer stood, and stands */
  uint32_t n_live;                        /* groups in the queue */
  uint32_t ends;                          /* whether the answer may end */
  uint32_t loops[2];                      /* states in which an answer may stay: the present one, and one behind it */
  uint32_t leave[2][2];                   /* of each, the classes with bytes that lead elsewhere */
  alignas(4) uint8_t column_of_byte[256];
};

class TokenMask {
 public:
  /* `bits`: a word for 32 tokens of the slice, `queue` [kMostGroups]. */
  __device__ __forceinline__ TokenMask(const Sequence& sequence, const struct blink_tables& tables,
                                       const SampleSlice& slice, MaskScratch& scratch, uint32_t* bits, Queued* queue)
      : sequence_(sequence), tables_(tables), slice_(slice), scratch_(scratch), bits_(bits), queue_(queue) {}

  /* By the whole block. `begins`: no step has sampled for the sequence before. */
  __device__ __forceinline__ void make(bool begins) const {
    const struct blink_grammar* head =
        reinterpret_cast<const struct blink_grammar*>(tables_.grammars + tables_.grammar_at[sequence_.index]);
    if (threadIdx.x < 64)
      reinterpret_cast<uint32_t*>(scratch_.column_of_byte)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(head->column_of_byte)[threadIdx.x];
    if (threadIdx.x < 4) scratch_.leave[threadIdx.x / 2][threadIdx.x % 2] = 0;
    __syncthreads();
    Grammar grammar(*head);
    grammar.column_of_byte = scratch_.column_of_byte;
    if (threadIdx.x < 32) {
      find_now(grammar, begins);
      find_loops(grammar);
    }
    __syncthreads();
    const uint32_t plain = min(grammar.plain(scratch_.now.state), uint32_t(BLINK_MOST_PLAIN));
    find_leaving(grammar);
    allow_plain(plain);
    const uint32_t share = BLINK_VOCAB_PARTS / slice_.blocks;
    const uint32_t first = tables_.vocabulary.part_groups[slice_.rank * share];
    const uint32_t end = tables_.vocabulary.part_groups[(slice_.rank + 1) * share];
#pragma unroll 1
    for (uint32_t base = first; base < end; base += kMostGroups) {
      if (threadIdx.x == 0) scratch_.n_live = 0;
      __syncthreads();
      queue_live_groups(grammar, plain, base, min(end, base + kMostGroups));
      __syncthreads();
      walk_live_groups(grammar, base);
      __syncthreads();
    }
    allow_ends();
    __syncthreads();
  }

  /* One thread's call, once the answer's next token is there. */
  __device__ __forceinline__ void keep_state() const {
    struct blink_grammar_state& to = state_at(tables_, sequence_, sequence_.answered());
    to.state = scratch_.now.state;
    to.depth = scratch_.now.depth;
    for (uint32_t i = 0; i < scratch_.now.depth; ++i) to.stack[i] = scratch_.now.stack[i];
  }

 private:
  /* Where the answer stands, by one warp, all of whose lanes walk: each looks one token up. */
  __device__ __forceinline__ void find_now(const Grammar& grammar, bool begins) const {
    const uint32_t lane = threadIdx.x;
    const uint32_t walked = begins ? 0 : sequence_.answered() - 1;
    if (begins) {
      if (lane == 0) begin_answer(grammar, scratch_.before);
    } else {
      constexpr uint32_t kWords = sizeof(struct blink_grammar_state) / sizeof(uint32_t);
      const uint32_t* from = reinterpret_cast<const uint32_t*>(&state_at(tables_, sequence_, walked));
      for (uint32_t i = lane; i < kWords; i += 32)
        reinterpret_cast<uint32_t*>(&scratch_.before)[i] = load_relaxed32(from + i);
    }
    __syncwarp();
    PushedStates pushed;
    GrammarWalk walk(grammar, scratch_.before, pushed);
    const uint32_t first = sequence_.params.prompt_tokens + walked;
#pragma unroll 1
    for (uint32_t base = first; base < sequence_.length; base += 32) {
      const uint32_t n = min(32u, sequence_.length - base);
      const uint32_t token = lane < n ? load_relaxed32(sequence_.tokens + base + lane) : 0;
      const uint32_t begin = lane < n ? tables_.vocabulary.first[token] : 0;
      const bool walks = lane < n && !is_end(tables_, sequence_, token);
      const uint32_t end = walks ? tables_.vocabulary.first[token + 1] : begin;
#pragma unroll 1
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t at = __shfl_sync(0xffffffffu, begin, int(i)), stop = __shfl_sync(0xffffffffu, end, int(i));
        walk.step_all(tables_.vocabulary.bytes + at, stop - at);
      }
    }
    if (lane == 0) {
      walk.put(scratch_.now);
      scratch_.ends = sequence_.may_end() && walk.may_end();
    }
  }

  /* Tokens of at most so many plain characters, and of nothing else. Four tokens' numbers are compared at once: none
   * has its highest bit. */
  __device__ __forceinline__ void allow_plain(uint32_t most) const {
    const uint32_t n_words = (slice_.block_end() - slice_.block_begin() + 31) / 32;
    const uint32_t limits = most * 0x01010101u | 0x80808080u;
#pragma unroll 1
    for (uint32_t w = threadIdx.x; w < n_words; w += kSampleThreads) {
      uint32_t word = 0;
      if (most != 0) {
        const uint4* at = reinterpret_cast<const uint4*>(tables_.vocabulary.plain + slice_.block_begin() + 32 * w);
        const uint4 numbers[2] = {at[0], at[1]};
        const uint32_t* fours = reinterpret_cast<const uint32_t*>(numbers);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t within = (limits - fours[i]) & (fours[i] + 0x7f7f7f7fu) & 0x80808080u;
          word |= (within >> 7) * 0x10204080u >> 28 << 4 * i;
        }
      }
      bits_[w] = word;
    }
  }

  /* By the same warp. Many moves of a state lead to it again, or all those of letters to another such state. */
  __device__ __forceinline__ void find_loops(const Grammar& grammar) const {
    __syncwarp();
    const uint32_t lane = threadIdx.x, state = scratch_.now.state;
    const uint32_t byte = lane < 26 ? 'a' + lane : '0' + lane - 26;
    const uint32_t move = grammar.row(state)[grammar.column_of_byte[byte]];
    const uint32_t votes = __ballot_sync(0xffffffffu, move - 1 < BLINK_GRAMMAR_NEXT_MASK && move != state);
    const uint32_t behind = __shfl_sync(0xffffffffu, move, votes ? __ffs(votes) - 1 : 0);
    if (lane == 0) scratch_.loops[0] = state, scratch_.loops[1] = votes ? behind : state;
  }
  __device__ __forceinline__ void find_leaving(const Grammar& grammar) const {
    if (threadIdx.x >= 512) return;
    const uint32_t which = threadIdx.x / 256, byte = threadIdx.x % 256, state = scratch_.loops[which];
    if (state != 0 && grammar.row(state)[grammar.column_of_byte[byte]] == state) return;
    const uint32_t in = tables_.vocabulary.class_of_byte[byte];
    atomicOr(&scratch_.leave[which][in / 32], 1u << in % 32);
  }

  /* Queues the groups whose prefix lives, but for those that are allowed already. */
  __device__ __forceinline__ void queue_live_groups(const Grammar& grammar, uint32_t plain, uint32_t first,
                                                    uint32_t end) const {
#pragma unroll 1
    for (uint32_t base = first; base < end; base += kSampleThreads) {
      const uint32_t group = base + threadIdx.x;
      Queued entry = 0;
      bool lives = false;
      if (group < end) {
        const uint4* at = reinterpret_cast<const uint4*>(tables_.vocabulary.groups + group);
        const uint4 head = at[0], rest = at[1]; /* as blink_token_group */
        if ((head.z >> 8 & 0xff) > plain) {
          PushedStates pushed;
          GrammarWalk walk(grammar, scratch_.now, pushed);
          lives = walk_prefix(walk, {rest.y, rest.z, rest.w}, head.z & 0xff);
          const uint32_t state = walk.has_changed_stack() ? 0 : walk.state();
          entry = state << 16 | (is_whole(state, head.w, rest.x) ? kWhole : 0) | (group - first);
        }
      }
      const uint32_t votes = __ballot_sync(0xffffffffu, lives), lane = threadIdx.x % 32;
      uint32_t place = 0;
      if (lane == 0 && votes) place = atomicAdd(&scratch_.n_live, uint32_t(__popc(votes)));
      place = __shfl_sync(0xffffffffu, place, 0) + __popc(votes & ((1u << lane) - 1));
      if (lives) queue_[place] = entry;
    }
  }
  struct Prefix {
    uint32_t words[3];
  };
  __device__ __forceinline__ bool walk_prefix(GrammarWalk& walk, Prefix prefix, uint32_t n) const {
    uint32_t (&words)[3] = prefix.words;
#pragma unroll 1
    for (uint32_t i = 0; i < n; ++i) {
      if (!walk.step(uint8_t(words[0]))) return false;
      words[0] = words[0] >> 8 | words[1] << 24;
      words[1] = words[1] >> 8 | words[2] << 24;
      words[2] >>= 8;
    }
    return true;
  }
  /* Whether tokens with bytes of these classes alone stay in the state. */
  __device__ __forceinline__ bool is_whole(uint32_t state, uint32_t low, uint32_t high) const {
    if (state == 0) return false;
    bool whole = false;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i)
      whole |= state == scratch_.loops[i] && !(low & scratch_.leave[i][0]) && !(high & scratch_.leave[i][1]);
    return whole;
  }

  /* A lane walks through one token of a group, behind what all begin with. */
  __device__ __forceinline__ void walk_live_groups(const Grammar& grammar, uint32_t first) const {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t i = threadIdx.x / 32; i < scratch_.n_live; i += kSampleWarps) {
      const Queued entry = queue_[i];
      const uint32_t group = first + (entry & (kWhole - 1)), state = entry >> 16;
      const uint32_t packed = tables_.vocabulary.group_tokens[32 * group + lane];
      const uint32_t token = packed & 0xfffff, n = packed >> 20;
      bool lives = n != 0;
      if (!(entry & kWhole)) {
        const uint4 head = *reinterpret_cast<const uint4*>(tables_.vocabulary.groups + group);
        PushedStates pushed;
        GrammarWalk walk(grammar, scratch_.now, pushed);
        if (state != 0) walk.resume(state);
        lives = walk_token(walk, head, state != 0 ? head.z & 0xff : 0, n);
      }
      if (lives) atomicOr(bits_ + (token - slice_.block_begin()) / 32, 1u << token % 32);
    }
  }
  /* By a whole warp: from byte `begin` on to this lane's last, `n`. */
  __device__ __forceinline__ bool walk_token(GrammarWalk& walk, const uint4& head, uint32_t begin, uint32_t n) const {
    const uint32_t* words = tables_.vocabulary.group_words + head.x + threadIdx.x % 32;
    bool lives = n != 0;
    uint32_t at = begin;
    uint32_t next = 4 * (at / 4) < 4 * head.y ? words[32 * (at / 4)] : 0;
#pragma unroll 1
    while (__ballot_sync(0xffffffffu, lives && at < n)) {
      uint32_t word = next >> 8 * (at % 4);
      const uint32_t stop = at / 4 * 4 + 4;
      if (stop < 4 * head.y) next = words[8 * stop];
#pragma unroll 1
      for (; at < stop; ++at, word >>= 8)
        if (lives && at < n) lives = walk.step(uint8_t(word));
    }
    return lives;
  }

  /* End and stop ids are allowed where the answer may end, and nowhere else, whatever their bytes are. */
  __device__ __forceinline__ void allow_ends() const {
    const uint32_t tid = threadIdx.x;
    if (tid < tables_.n_eos) allow_end(tables_.eos[tid]);
    if (tid < sequence_.params.n_stop_ids) allow_end(sequence_.params.stop_ids[tid]);
  }
  __device__ __forceinline__ void allow_end(uint32_t token) const {
    if (!slice_.owns(token)) return;
    uint32_t* word = bits_ + (token - slice_.block_begin()) / 32;
    if (scratch_.ends)
      atomicOr(word, 1u << token % 32);
    else
      atomicAnd(word, ~(1u << token % 32));
  }

  const Sequence& sequence_;
  const struct blink_tables& tables_;
  const SampleSlice& slice_;
  MaskScratch& scratch_;
  uint32_t* bits_;
  Queued* queue_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_TOKEN_MASK_H */
