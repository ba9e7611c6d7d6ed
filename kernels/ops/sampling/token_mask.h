/* Which tokens of a block's slice of the vocabulary a grammar allows next: a bit for each, in shared memory.
 *
 * To walk through all tokens of the vocabulary would take too long, so few are. Within free text, a name or a number,
 * most that are allowed are known from maps (known_tokens.h). Tokens of plain characters are, too, where the state says
 * how many plain characters may follow. The tokens lie in groups of 32 that begin alike: a group is left out if none of
 * its tokens is allowed but those that are known, or if a walk through what all of it begin with ends. That leaves few
 * where structure is expected. A lane of a warp walks through each token that is left, except where the bytes of a
 * whole group lead nowhere else than to a loop.
 *
 * E26. What is read here is there before the logits are, so the sampler does not wait for its predecessor (E7): the
 * grammar was written by the scheduler before it launched the step, and the token and the state before it by the step
 * before, which had ended when this step's gate opened. L1 may have older ones, so these two are read from L2.
 */
#ifndef BLINK_OPS_SAMPLING_TOKEN_MASK_H
#define BLINK_OPS_SAMPLING_TOKEN_MASK_H

#include "known_tokens.h"

#ifdef __CUDACC__

namespace blink {

/* state:16 | whole:1 | group:15. Behind the group's prefix its tokens go on in the state, 0: they begin where the
 * answer stands. `whole`: all of them are allowed. */
using Queued = uint32_t;
constexpr uint32_t kWhole = 1u << 15;
constexpr uint32_t kMostGroups = 7 << 10; /* that are queued at once */

/* Shared memory of a block's mask, beside its bits: what is read until the answer's next token is there, and what is
 * needed to make the mask. */
struct MaskScratch {
  struct blink_grammar_state before, now; /* where the answer stood, and stands */
  uint32_t n_live;                        /* groups in the queue */
  uint32_t ends;                          /* whether the answer may end */
};
struct MaskWork {
  Queued queue[kMostGroups];
  KnownScratch known;
  alignas(4) uint8_t column_of_byte[256];
};

class TokenMask {
 public:
  /* `bits`: a word for 32 tokens of the slice. */
  __device__ __forceinline__ TokenMask(const Sequence& sequence, const struct blink_tables& tables,
                                       const SampleSlice& slice, MaskScratch& scratch, MaskWork& work, uint32_t* bits)
      : sequence_(sequence),
        tables_(tables),
        slice_(slice),
        scratch_(scratch),
        work_(work),
        known_(tables.vocabulary, slice, work.known, bits),
        bits_(bits) {}

  /* By the whole block. `begins`: no step has sampled for the sequence before. What does not depend on where the
   * answer stands is read while that is found. */
  __device__ __forceinline__ void make(bool begins) const {
    const struct blink_vocabulary& vocabulary = tables_.vocabulary;
    const struct blink_grammar* block =
        reinterpret_cast<const struct blink_grammar*>(tables_.grammars + tables_.grammar_at[sequence_.index]);
    const uint32_t share = BLINK_VOCAB_PARTS / slice_.blocks;
    const uint32_t first = vocabulary.part_groups[slice_.rank * share];
    const uint32_t end = vocabulary.part_groups[(slice_.rank + 1) * share];
    Grammar grammar(*block);
    const uint32_t walked = begins ? 0 : sequence_.answered() - 1 - sequence_.drafts;
    Span span = {};
    if (threadIdx.x < 32) {
      span = span_of(sequence_.params.prompt_tokens + walked);
      read_before(grammar, begins, walked);
    }
    if (threadIdx.x < 64)
      reinterpret_cast<uint32_t*>(work_.column_of_byte)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(block->column_of_byte)[threadIdx.x];
    if (threadIdx.x == 0) scratch_.n_live = 0;
    known_.begin();
    Group ahead = first + threadIdx.x < end ? group_at(first + threadIdx.x) : Group{};
    __syncthreads();
    grammar.column_of_byte = work_.column_of_byte;
    if (threadIdx.x < 32) {
      find_now(grammar, sequence_.params.prompt_tokens + walked, span);
      known_.find_loops(grammar, scratch_.now);
    }
    __syncthreads();
    const uint32_t plain = min(grammar.plain(scratch_.now.state), uint32_t(BLINK_MOST_PLAIN));
    known_.step_bytes(grammar, scratch_.now);
    __syncthreads();
    known_.choose_maps();
    __syncthreads();
    known_.allow(plain);
    if (first == end) __syncthreads(); /* without groups, no other barrier parts those who write the bits */
#pragma unroll 1
    for (uint32_t base = first; base < end; base += kMostGroups) {
      queue_live_groups(grammar, plain, ahead, base, min(end, base + kMostGroups));
      __syncthreads();
      walk_live_groups(grammar, base);
      __syncthreads();
      if (base + kMostGroups >= end) break;
      ahead = group_at(min(base + kMostGroups + threadIdx.x, end - 1));
      if (threadIdx.x == 0) scratch_.n_live = 0;
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
  /* A blink_token_group. */
  struct Group {
    uint4 words;
    __device__ __forceinline__ uint32_t prefix() const { return words.x & 0xff; }
    __device__ __forceinline__ uint32_t most_plain() const { return words.x >> 8 & 0xff; }
    __device__ __forceinline__ uint32_t first_class() const { return words.x >> 16 & 0xff; }
    __device__ __forceinline__ uint32_t classes() const { return words.y; }
    __device__ __forceinline__ uint32_t at() const { return words.z; }
    __device__ __forceinline__ uint8_t byte(uint32_t i) const { return uint8_t(words.w >> 8 * i); }
  };
  __device__ __forceinline__ Group group_at(uint32_t group) const {
    return {reinterpret_cast<const uint4*>(tables_.vocabulary.groups)[group]};
  }

  /* Of a token's bytes. */
  struct Span {
    uint32_t begin, end;
  };
  /* By one warp: a lane's, of the 32 tokens from `base` on. None of what is not there, or ends the answer. */
  __device__ __forceinline__ Span span_of(uint32_t base) const {
    const uint32_t at = base + threadIdx.x % 32;
    if (at >= sequence_.length) return {0, 0};
    const uint32_t token = load_relaxed32(sequence_.tokens + at);
    const Span span = {tables_.vocabulary.first[token], tables_.vocabulary.first[token + 1]};
    return {span.begin, is_end(tables_, sequence_, token) ? span.begin : span.end};
  }

  /* Where the answer stood before its last tokens, by one warp. The walk goes on in that state. */
  __device__ __forceinline__ void read_before(const Grammar& grammar, bool begins, uint32_t walked) const {
    if (begins) {
      if (threadIdx.x == 0) begin_answer(grammar, scratch_.before);
      return;
    }
    constexpr uint32_t kWords = sizeof(struct blink_grammar_state) / sizeof(uint32_t);
    const uint32_t* from = reinterpret_cast<const uint32_t*>(&state_at(tables_, sequence_, walked));
    const uint32_t lane = threadIdx.x, state = load_relaxed32(from);
    if (32 * lane < grammar.n_columns) prefetch_line(grammar.row(state) + 32 * lane);
    for (uint32_t i = lane; i < kWords; i += 32)
      reinterpret_cast<uint32_t*>(&scratch_.before)[i] = load_relaxed32(from + i);
  }

  /* Where the answer stands, by the same warp, all of whose lanes walk through the tokens from `base` on: each has
   * looked one up. `span`: the first's. */
  __device__ __forceinline__ void find_now(const Grammar& grammar, uint32_t base, Span span) const {
    PushedStates pushed;
    GrammarWalk walk(grammar, scratch_.before, pushed);
#pragma unroll 1
    for (; base < sequence_.length; base += 32) {
#pragma unroll 1
      for (uint32_t i = 0; i < min(32u, sequence_.length - base); ++i) {
        const uint32_t at = __shfl_sync(0xffffffffu, span.begin, int(i));
        walk.step_all(tables_.vocabulary.bytes + at, __shfl_sync(0xffffffffu, span.end, int(i)) - at);
      }
      span = span_of(base + 32);
    }
    if (threadIdx.x == 0) {
      walk.put(scratch_.now);
      scratch_.ends = sequence_.may_end() && walk.may_end();
    }
    __syncwarp();
  }

  /* Queues the groups whose prefix lives, but for those of which all that is allowed is known. `next`: the thread's
   * first. */
  __device__ __forceinline__ void queue_live_groups(const Grammar& grammar, uint32_t plain, Group next, uint32_t first,
                                                    uint32_t end) const {
#pragma unroll 1
    for (uint32_t base = first; base < end; base += kSampleThreads) {
      const uint32_t group = base + threadIdx.x, lane = threadIdx.x % 32;
      const Group head = next;
      if (group + kSampleThreads < end) next = group_at(group + kSampleThreads);
      Queued entry = group - first;
      const bool lives = group < end && head.most_plain() > plain && is_live(grammar, head, entry);
      const uint32_t votes = __ballot_sync(0xffffffffu, lives);
      uint32_t place = 0;
      if (lane == 0 && votes) place = atomicAdd(&scratch_.n_live, uint32_t(__popc(votes)));
      place = __shfl_sync(0xffffffffu, place, 0) + __popc(votes & ((1u << lane) - 1));
      if (lives) work_.queue[place] = entry;
    }
  }
  /* Whether a group has to be queued; completes its entry. */
  __device__ __forceinline__ bool is_live(const Grammar& grammar, const Group& head, Queued& entry) const {
    const uint32_t behind = known_.behind(head.byte(0));
    if (behind == 0 || known_.has_all(behind, head.first_class(), head.classes())) return false;
    PushedStates pushed;
    GrammarWalk walk(grammar, scratch_.now, pushed);
    if (behind != kUnknown) walk.resume(behind);
#pragma unroll 1
    for (uint32_t i = behind != kUnknown; i < head.prefix(); ++i)
      if (!walk.step(head.byte(i))) return false;
    const uint32_t state = walk.has_changed_stack() ? 0 : walk.state();
    entry |= state << 16 | (known_.stays(state, head.classes()) ? kWhole : 0);
    return true;
  }

  /* What a warp reads of a queued group. */
  struct Taken {
    Queued entry;
    Group head;
    uint2 token; /* this lane's, packed, and its bytes behind the prefix */
  };
  __device__ __forceinline__ Taken take(uint32_t i, uint32_t first) const {
    if (i >= scratch_.n_live) return {};
    const Queued entry = work_.queue[i];
    const uint32_t group = first + (entry & (kWhole - 1));
    const uint2* tokens = reinterpret_cast<const uint2*>(tables_.vocabulary.group_tokens);
    return {entry, group_at(group), tokens[32 * group + threadIdx.x % 32]};
  }
  /* A lane walks through one token of a group, behind what all begin with, if it is not known to be allowed. A warp
   * reads its next group while it walks. */
  __device__ __forceinline__ void walk_live_groups(const Grammar& grammar, uint32_t first) const {
    Taken next = take(threadIdx.x / 32, first);
#pragma unroll 1
    for (uint32_t i = threadIdx.x / 32; i < scratch_.n_live; i += kSampleWarps) {
      const Taken taken = next;
      next = take(i + kSampleWarps, first);
      const uint32_t token = taken.token.x & 0xfffff, n = taken.token.x >> 20;
      uint32_t* word = bits_ + (n != 0 ? (token - slice_.block_begin()) / 32 : 0);
      bool lives = n != 0 && !(*word >> token % 32 & 1);
      if (!(taken.entry & kWhole)) lives = walk_token(grammar, taken, lives, n - taken.head.prefix());
      if (lives) atomicOr(word, 1u << token % 32);
    }
  }
  /* By a whole warp, from the prefix on: this lane's token has `n` bytes behind it, and walks if it `lives`. */
  __device__ __forceinline__ bool walk_token(const Grammar& grammar, const Taken& taken, bool lives, uint32_t n) const {
    PushedStates pushed;
    GrammarWalk walk(grammar, scratch_.now, pushed);
    if (const uint32_t state = taken.entry >> 16) {
      walk.resume(state);
    } else {
#pragma unroll 1
      for (uint32_t i = 0; i < taken.head.prefix(); ++i) walk.step(taken.head.byte(i));
    }
    const uint32_t* words = tables_.vocabulary.group_words + taken.head.at() + threadIdx.x % 32;
    uint32_t word = taken.token.y;
#pragma unroll 1
    for (uint32_t at = 0; __ballot_sync(0xffffffffu, lives && at < n); words += 32) {
      const uint32_t stop = at + 4, next = lives && stop < n ? *words : 0;
#pragma unroll 1
      for (; at < stop; ++at, word >>= 8)
        if (lives && at < n) lives = walk.step(uint8_t(word));
      word = next;
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
  MaskWork& work_;
  const KnownTokens known_;
  uint32_t* bits_;
};

}  // namespace blink

#endif /* __CUDACC__ */

#endif /* BLINK_OPS_SAMPLING_TOKEN_MASK_H */
