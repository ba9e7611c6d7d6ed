/* The planner: fills the step set of the next step while the running one still runs.
 *
 * A position is known before its token is: sequence r feeds position `fed`, whose token id the step before writes into
 * the sequence's history. So a step can be planned one step ahead; only an end token cannot be foreseen, and its
 * sequence then rides along once more (S6). A step with drafts is planned when the one before it is committed: drafts
 * begin behind the last token, and how many of them are accepted decides where the sequence stands (S23).
 */
#ifndef BLINK_SCHEDULER_PLANNER_H
#define BLINK_SCHEDULER_PLANNER_H

#include "../../ringbuffer/words.h"
#include "admission.h"
#include "arrivals.h"
#include "clock.h"
#include "copies.h"
#include "drafts.h"
#include "pages.h"
#include "preemption.h"
#include "prefix.h"
#include "sequences.h"
#include "step_times.h"
#include "steps.h"
#include "turns.h"

namespace blink {

// Of `n` tokens, the index into a lookup of prefill or mixed shapes.
BLINK_FN inline uint32_t granules(uint32_t n) {
  return (n + BLINK_TOKEN_GRANULE - 1) / BLINK_TOKEN_GRANULE;
}

// Tokens of prompts: the longest's in the upper half, all prompts' in the lower one. These are fewer than 2^32 up to
// 4,096 sequences of a million; beyond, the longest still has its part.
struct Lengths {
  BLINK_FN uint64_t operator()(uint64_t a, uint64_t b) const {
    return Max()(a >> 32, b >> 32) << 32 | uint32_t(uint32_t(a) + uint32_t(b));
  }
};

template <class P>
class Planner : private Sequences {
 public:
  BLINK_FN Planner(P& platform, const blink_scheduler_config& config, Steps<P>& steps, Clock<P>& clock,
                   StepTimes<P>& times, PagePool<P>& pool, PrefixCache<P>& prefix, Drafts<P>& drafts, Turns<P>& turns,
                   Copies<P>& copies, Admission<P>& admission, Preemption<P>& preemption)
      : Sequences(config),
        p_(platform),
        steps_(steps),
        clock_(clock),
        times_(times),
        pool_(pool),
        prefix_(prefix),
        drafts_(drafts),
        turns_(turns),
        copies_(copies),
        admission_(admission),
        preemption_(preemption) {}

  // Decides what step `id` runs and writes its step set: every sequence that decodes, and prompts. False: there is
  // nothing to run.
  BLINK_FN bool plan(uint64_t id) {
    if (s_.n_active == 0 && s_.n_waiting == 0) return false;
    if (steps_.verifies()) return false;  // how far its sequences get is not known
    uint32_t counts = count_batch();
    if ((counts & 0xffff) == 0 && s_.n_waiting == 0 && clock_.waits_for_company()) {
      if (p_.thread() == 0) s_.last_done_ns = 0;  // the gap is not the scheduler's doing
      return false;
    }
    if (steps_.in_flight() && counts >> 16 && drafts_.await_tokens()) return false;
    if (room_beside(counts) == 0 && s_.n_waiting && preemption_.give_place()) counts = count_batch();
    const uint32_t n_prefilling = counts & 0xffff, n_decoding = counts >> 16;
    // Whatever decodes waits for one copy step at most.
    const bool may_copy = c_.host_pages && (steps_.last_kind() != BLINK_STEP_COPY || n_decoding == 0);
    if (may_copy && copies_.plan(id, n_decoding)) return true;
    // A sequence whose last token is on its way needs no further step: its successor need not wait for it.
    const uint32_t room = room_beside(counts);
    const bool may_rest = n_decoding && s_.rests;
    if (n_decoding == 0 && p_.thread() == 0) s_.rests = 0;  // nobody waits for the others' sake
    const uint32_t n_very_long = n_decoding && n_prefilling ? count_very_long() : 0;
    const uint32_t n_others = n_prefilling - n_very_long + Min()(room, s_.n_waiting);
    const uint32_t n_prompts = may_rest ? n_others : n_others + n_very_long;
    const bool has_drafts = n_decoding && drafts_.choose(n_decoding, n_prompts != 0);
    if (c_.max_drafts && n_decoding && p_.thread() == 0) c_.trace[id % BLINK_TRACE_STEPS].chosen_ns = p_.now();
    const Decoding decoders = n_decoding ? plan_decode(id, has_drafts) : Decoding{0, 0};
    const uint32_t n_decode = decoders.tokens;
    StepLoad load = {n_decode, n_decode, n_decode};
    const bool rest = may_rest && n_decode;
    if (n_others || (n_very_long && !rest)) {
      const uint32_t limit = n_decode ? mixed_limit(n_decode, n_decoding + n_prompts) : c_.max_prefill_tokens;
      load = plan_prompts(id, n_decode, limit, room, {rest, n_very_long, n_others});
    }
    if (rest && p_.thread() == 0) --s_.rests;
    if (load.batch_slots == 0) {
      if (c_.host_pages && copies_.plan(id, n_decoding)) return true;
      // Prompts under way have all the pages, and each waits for another's: one gives way (S7).
      if (steps_.in_flight() == 0 && s_.n_zombies == 0) preemption_.leave(preemption_.next_to_leave(nullptr));
      return false;
    }
    close_plan(id, decoders, load);
    return true;
  }

 private:
  // Of a step beside sequences that decode: whether very long prompts rest in it, how many of them are under way, and
  // how many other prompts are, or wait with room for them (S15).
  struct Longest {
    bool rest;
    uint32_t n, others;
  };

  // Requests that may join a batch of so many as `count_batch` says.
  BLINK_FN uint32_t room_beside(uint32_t counts) const { return c_.max_batch - (counts & 0xffff) - (counts >> 16); }

  // Sequences that prefill in the low half, sequences that decode in the high half.
  BLINK_FN uint32_t count_batch() {
    uint32_t counts = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      counts += prefilling(c_.sequences[i]) ? 1 : decoding(c_.sequences[i]) ? 1u << 16 : 0;
    return p_.reduce(counts, Sum());
  }

  // Prompts under way that come in a part now and then (S15).
  BLINK_FN uint32_t count_very_long() {
    uint32_t n = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      n += prefilling(c_.sequences[i]) && is_very_long(c_.sequences[i]);
    return p_.reduce(n, Sum());
  }

  // Every sequence that decodes gets its next token's place and those of its drafts, and pages where it needs them;
  // without enough pages, there are no drafts on new ones, and then those that need one wait.
  BLINK_FN Decoding plan_decode(uint64_t id, bool has_drafts) {
    uint32_t need = count_wanted_pages();
    if (need > pool_.available()) {
      if (has_drafts) drafts_.keep_to_pages();
      preemption_.make_room();
      need = count_wanted_pages();
    }
    const bool starving = need > pool_.available();  // pages come back when the preempted sequences' last step is done
    if (!starving) pool_.reserve(need);
    uint64_t planned = 0;  // tokens:16 | sequences:16 | pages taken:32
    BLINK_ROLLED
    for (uint32_t base = 0; base < t_.n_sequences; base += p_.threads()) {
      const uint32_t i = base + p_.thread();
      const bool decodes = i < t_.n_sequences && decoding(c_.sequences[i]);
      const uint32_t wanted = decodes ? wanted_pages(c_.sequences[i]) : 0;
      const bool in = decodes && !(wanted && starving);
      uint64_t all;
      const uint64_t own = in ? 1 + c_.sequences[i].n_drafts + (1u << 16) + (uint64_t(wanted) << 32) : 0;
      const uint64_t before = planned + p_.sum_below(own, &all);
      if (decodes && !in) c_.sequences[i].n_drafts = 0;
      if (in) feed_known(id, i, low(before) & 0xffff, wanted, high(before));
      planned += all;
    }
    pool_.took(high(planned));
    p_.sync();
    return {low(planned) & 0xffff, low(planned) >> 16};
  }

  BLINK_FN uint32_t count_wanted_pages() {
    uint32_t wanted = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads())
      if (decoding(c_.sequences[i])) wanted += wanted_pages(c_.sequences[i]);
    return p_.reduce(wanted, Sum());
  }

  // Puts a sequence's next token, and its drafts, into the step from token `first` on, with `wanted` pages more, the
  // `nth` of those that are free and what follow. By one thread.
  BLINK_FN void feed_known(uint64_t id, uint32_t i, uint32_t first, uint32_t wanted, uint32_t nth) {
    const blink_step_set& set = steps_.set_of(id);
    blink_sequence& sequence = c_.sequences[i];
    BLINK_ROLLED
    for (uint32_t n = 0; n < wanted; ++n) pages(i)[sequence.n_pages++] = pool_.claim(nth + n);
    const uint32_t last = first + sequence.n_drafts;
    BLINK_ROLLED
    for (uint32_t at = first; at <= last; ++at) {
      set.token_sequence[at] = set.batch_sequence[at] = i;
      set.token_position[at] = sequence.fed++;
      set.batch_first[at] = first;
      set.batch_last[at] = at;
      set.batch_emit[at] = at < last ? BLINK_EMIT_CHECKED : BLINK_EMIT_TOKEN;
    }
    sequence.last_step = id;
  }

  // Tokens of a step of prompts and `n_decode` tokens of sequences that decode, of `n` requests in all that run or
  // could (S15), but for a part of a very long prompt. A shape is filled to the last token, because its matmuls run at
  // its capacity.
  BLINK_FN uint32_t mixed_limit(uint32_t n_decode, uint32_t n) const {
    const uint32_t share = Min()(prompt_share(n), c_.max_prefill_tokens);
    const uint32_t wanted =
        Min()(mixed_shape(Min()(n_decode + share, c_.max_mixed_tokens)).tokens, n_decode + c_.max_prefill_tokens);
    return c_.target_itl_ns ? Min()(wanted, Max()(within_target(), least_tokens(n_decode))) : wanted;
  }
  // Tokens of a step that takes what it may by the target, and those that it has in any case.
  BLINK_FN uint32_t within_target() const { return largest_within(times_.work_within(c_.target_itl_ns)); }
  BLINK_FN uint32_t least_tokens(uint32_t n_decode) const {
    return Min()(n_decode + BLINK_LEAST_PROMPT, c_.max_mixed_tokens);
  }
  BLINK_FN const blink_shape& mixed_shape(uint32_t tokens) const {
    return c_.shapes[c_.mixed_lookup[granules(tokens)]];
  }
  // The tokens of the largest mixed shape that has at most so many, or of the smallest one.
  BLINK_FN uint32_t largest_within(uint32_t tokens) const {
    const uint32_t smallest = c_.mixed_lookup[0];
    uint32_t shape = c_.mixed_lookup[granules(Min()(tokens, c_.max_mixed_tokens))];
    while (shape > smallest && c_.shapes[shape].tokens > tokens) --shape;
    return c_.shapes[shape].tokens;
  }

  // A prompt that even eight of the largest mixed steps do not bring in is very long.
  BLINK_FN uint64_t very_long() const { return BLINK_VERY_LONG_STEPS * uint64_t(c_.max_mixed_tokens); }
  BLINK_FN bool is_very_long(const blink_sequence& sequence) const {
    return sequence.prefill_end - sequence.cached > very_long();
  }

  // How many tokens a step with a part of a very long prompt may have, or its work, and how many steps without a part
  // follow it (S15).
  struct LongStep {
    uint32_t tokens, rests;
  };
  // Such a step has costs that do not depend on how many of the prompt's tokens it has: it reads all keys before them.
  // So it has many, and others without any follow until the sequences that decode have, on average, the pace that they
  // should. Only where the target leaves room for some prompt tokens in every step, no step takes longer than that.
  // Before a decode step has run, it is not known what they take: the part has what prompts have of a step, `limit`.
  BLINK_FN LongStep long_step(uint32_t n_decode, uint32_t limit) const {
    if (times_.decode_ns() == 0) return {limit, 1};
    const uint64_t eighth = times_.decode_ns() / 8, decode = 8 * eighth, target = c_.target_itl_ns;
    const bool bound = target && within_target() >= least_tokens(n_decode);
    const uint64_t slowest = BLINK_SLOWEST_PACE * eighth;
    const uint64_t pace = target ? Min()(Max()(target, BLINK_FASTEST_PACE * eighth), slowest) : slowest;
    const uint64_t most = bound ? Min()(target, BLINK_LONG_STEP * eighth) : BLINK_LONG_STEP * eighth;
    const uint64_t late = Max()(pace - decode, uint64_t(1));  // of each step on average
    const uint64_t steps = Max()((since(decode, most) + (bound ? late / 2 : late - 1)) / late, uint64_t(1));
    const uint64_t ns = decode + steps * late;
    const uint32_t tokens = largest_within(times_.work_within(bound ? Min()(ns, target) : ns));
    const uint32_t least = least_tokens(n_decode), most_tokens = n_decode + c_.max_prefill_tokens;
    return {Min()(Max()(tokens, least), most_tokens), uint32_t(steps - 1)};
  }

  // Tokens of prompts that a step should have beside sequences that decode (S15), of which there are `n` with prompts
  // that run or could. In balance prompts come in as fast as answers go out: with each output token, as much of a
  // prompt as the requests have on average. A longer prompt, or many, come in in larger parts, or they would wait for
  // many steps. Very long ones have a rule of their own. Less than `mixed_share` would save nothing.
  BLINK_FN uint32_t prompt_share(uint32_t n) const {
    uint64_t there = 0;
    BLINK_ROLLED
    for (uint32_t i = p_.thread(); i < t_.n_sequences; i += p_.threads()) {
      const blink_sequence& sequence = c_.sequences[i];
      if (!prefilling(sequence) && sequence.use != BLINK_SEQUENCE_STAGED) continue;
      if (is_very_long(sequence)) continue;
      const uint64_t length = sequence.prefill_end - sequence.cached;
      there = Lengths()(there, length << 32 | length);
    }
    there = p_.reduce(there, Lengths());
    const uint64_t longest = there >> 32, all = uint32_t(there);
    const uint64_t some = Min()(all / BLINK_PROMPT_STEPS, uint64_t(BLINK_PROMPT_SHARE));
    const uint64_t backlog = Max()(some, all / BLINK_BACKLOG_STEPS);
    const uint64_t balance = n * (s_.ended_prompts + BLINK_USUAL_PROMPT) / (s_.ended_outputs + BLINK_USUAL_OUTPUT);
    return uint32_t(Max()(Max()(balance, longest / BLINK_PROMPT_STEPS), Max()(backlog, uint64_t(c_.mixed_share))));
  }

  // Packs chunks of prompts behind the sequences that decode until the step has `limit` tokens; admits waiting requests
  // to fill it, at most `room`. Clients take turns here too (S2): each one's oldest prompt comes before any one's
  // second, and so does the admission of a client that has none under way. A very long one has the part that is its
  // own, whatever `limit` says, or rests; and it rests behind that part at least once if there are others.
  BLINK_FN StepLoad plan_prompts(uint64_t id, uint32_t n_decode, uint32_t limit, uint32_t room, Longest longest) {
    StepLoad load = {n_decode, n_decode, n_decode};
    uint32_t parts = 0;                        // work of very long prompts
    room = Min()(room, c_.max_prefill_slots);  // those that await pages take no tokens, and a turn has to end (S10)
    uint32_t slots = n_decode + c_.max_prefill_slots;
    uint32_t promised = n_decode;  // pages that are not for the next prompt: each sequence that decodes may need one
    turns_.consider_anew();
    while (load.batch_slots < slots && load.tokens < limit && load.work < limit) {
      const NextPrompt next = turns_.next_prompt();
      if (room && turns_.line_is_before(next.rank)) {
        const uint64_t arrival = admission_.next_ready();
        // Another is next where the one that was cannot run: that one need not be more urgent than the prompt.
        if (c_.priorities && arrival != kNone && !turns_.is_before(arrival, next.rank)) continue;
        room = arrival != kNone && admission_.admit(arrival_slot(arrival)) ? room - 1
                                                                           : 0;  // nobody overtakes one that must wait
        continue;
      }
      if (next.sequence == BLINK_NO_SEQUENCE) break;
      const uint32_t i = next.sequence;
      blink_sequence& sequence = c_.sequences[i];
      turns_.consider(i);
      const bool in_parts = n_decode && is_very_long(sequence);
      if (!prefix_.awaiting(i) && !(longest.rest && in_parts)) {
        const LongStep own = in_parts ? long_step(n_decode, limit) : LongStep{limit, 0};
        const uint32_t there = pool_.available() - Min()(pool_.available(), promised);
        const uint64_t pages_hold = uint64_t(sequence.n_pages + there) * t_.page_size - sequence.fed;
        const bool more = !in_parts && (next.others > (longest.rest ? longest.n : 0) || (room && s_.n_waiting));
        const bool full = load.tokens >= own.tokens || load.work >= own.tokens;
        uint32_t n = full ? 0 : Min()(pages_hold, uint64_t(chunk(sequence, load, n_decode, own.tokens, more)));
        if (sequence.scored) n = Min()(n, scored_room(load, n_decode, more));
        if (n) {
          const uint64_t keys = n_decode && c_.attention_keys ? uint64_t(n) * sequence.fed / c_.attention_keys : 0;
          const uint32_t work = Min()(n + keys, uint64_t(own.tokens - load.work));
          feed(id, i, n, load.batch_slots, load.tokens);
          if (in_parts) {
            parts += work;
            const uint32_t rests = (own.rests * parts + own.tokens / 2) / own.tokens;
            if (p_.thread() == 0) s_.rests = Max()(rests, uint32_t(longest.others != 0));
          }
          load = {load.tokens + n, load.batch_slots + (sequence.scored ? n : 1), load.work + work};
          if (load.batch_slots > slots) {  // a mixed step, whatever decodes
            slots = c_.max_batch + c_.max_prefill_slots;
            limit = Min()(limit, c_.max_mixed_tokens);
          }
        }
      }
      promised += owed(sequence);
    }
    return load;
  }

  // How many tokens of a step are for a prompt of which each token is told, at most: each has a batch slot of its own,
  // and mixed shapes have the most of them (S22).
  BLINK_FN uint32_t scored_room(StepLoad load, uint32_t n_decode, bool others) const {
    const uint32_t usual = n_decode + c_.max_prefill_slots, most = c_.max_batch + c_.max_prefill_slots;
    const uint32_t narrow = usual - Min()(usual, load.batch_slots);
    if (load.tokens >= c_.max_mixed_tokens) return narrow;
    const uint32_t wide = Min()(most - load.batch_slots, c_.max_mixed_tokens - load.tokens);
    return Max()(narrow, others ? wide - wide / 4 : wide);
  }

  // How many tokens a prompt gets of a step, at most. The first of a step, if it is not done with seven eighths
  // of it, leaves the rest to the `others`, and each behind it half of what is left, so that a short one need not wait
  // for the long ones before it. Beside sequences that
  // decode, whose next token waits for this step, tokens that see many keys count for more (S15).
  BLINK_FN uint32_t chunk(const blink_sequence& sequence, StepLoad load, uint32_t n_decode, uint32_t limit,
                          bool others) const {
    const uint32_t left = sequence.prefill_end - sequence.fed, room = limit - load.tokens;
    uint64_t work = limit - load.work;
    if (n_decode && c_.attention_keys)
      work = Max()(work * c_.attention_keys / (c_.attention_keys + sequence.fed + Min()(left, room)), uint64_t(1));
    const uint32_t most = Min()(uint64_t(room), work);
    if (others) return Min()(left, most - most / (load.tokens == n_decode ? 8 : 2));
    return left <= most || n_decode == 0 ? Min()(left, most) : without_padding(load.tokens, most);
  }

  // How many of the next `n` tokens a mixed step of `before` tokens has: so many that they fill its shape, as the
  // matmuls of a larger one take as long as if it were full. All of them if more than a quarter would be left to the
  // next step.
  BLINK_FN uint32_t without_padding(uint32_t before, uint32_t n) const {
    const uint32_t full = largest_within(before + n), left = before + n - Min()(full, before + n);
    return left <= n / 4 ? n - left : n;
  }

  // Gives sequence `i` its next `n` tokens' places in step `id`, the first at token `at` of the step, and their pages.
  BLINK_FN void feed(uint64_t id, uint32_t i, uint32_t n, uint32_t batch_slot, uint32_t at) {
    const blink_step_set& set = steps_.set_of(id);
    blink_sequence& sequence = c_.sequences[i];
    const uint32_t first = sequence.fed, end = first + n, has = sequence.n_pages;
    const uint32_t n_pages = (end + t_.page_size - 1) / t_.page_size;
    if (n_pages > has) pool_.take(pages(i) + has, n_pages - has);
    for (uint32_t k = p_.thread(); k < n; k += p_.threads()) {
      set.token_sequence[at + k] = i;
      set.token_position[at + k] = first + k;
    }
    p_.sync();
    if (p_.thread() == 0) {
      set.batch_sequence[batch_slot] = i;
      set.batch_first[batch_slot] = at;
      set.batch_last[batch_slot] = at + n - 1;
      set.batch_emit[batch_slot] = end == sequence.prefill_end ? BLINK_EMIT_TOKEN
                                   : sequence.scored           ? BLINK_EMIT_LOGPROBS
                                                               : BLINK_EMIT_NOTHING;
      sequence.fed = end;
      sequence.last_step = id;
      sequence.n_pages = Max()(n_pages, has);
      s_.stats.prompt_tokens += n;
      if (end == sequence.prefill_end) tell_cached(sequence);
    }
    if (sequence.scored) score(id, i, n, batch_slot + 1, at);
    p_.sync();
    prefix_.link_prompt(i, id);
  }

  // Gives the first n - 1 tokens of a prompt's chunk batch slots of their own. Attention has them with the chunk's
  // (S22).
  BLINK_FN void score(uint64_t id, uint32_t i, uint32_t n, uint32_t batch_slot, uint32_t at) {
    const blink_step_set& set = steps_.set_of(id);
    for (uint32_t k = p_.thread(); k + 1 < n; k += p_.threads()) {
      set.batch_sequence[batch_slot + k] = i;
      set.batch_first[batch_slot + k] = at + k + 1;
      set.batch_last[batch_slot + k] = at + k;
      set.batch_emit[batch_slot + k] = BLINK_EMIT_LOGPROBS;
    }
  }

  // A prompt is in: how much of it was not computed. What a paused request finds again was computed for it before.
  BLINK_FN void tell_cached(const blink_sequence& sequence) {
    blink_request& r = c_.requests[sequence.slot];
    if (c_.prefix_cache && !sequence.scored) s_.stats.prefix_queries += sequence.prefill_end;
    s_.stats.prefix_hits += sequence.cached;
    if (r.generated) return;
    if (!r.restarted) r.cached = sequence.cached;
    p_.store(&c_.progress[sequence.slot].prefix, pair_word(r.submission, r.cached));
  }

  // Picks the tightest shape, whose tokens beyond the load are padding. Mixed shapes of equal tokens ascend in batch
  // slots.
  BLINK_FN void close_plan(uint64_t id, Decoding decoders, StepLoad load) {
    const uint32_t n_decode = decoders.tokens;
    const bool has_drafts = decoders.tokens > decoders.sequences;
    const bool narrow = n_decode == 0 && load.batch_slots <= c_.max_prefill_slots;
    const uint32_t kind = narrow                         ? BLINK_STEP_PREFILL
                          : load.batch_slots == n_decode ? BLINK_STEP_DECODE
                                                         : BLINK_STEP_MIXED;
    const uint32_t* const of_rows = has_drafts ? c_.verify_lookup : c_.decode_lookup;
    uint32_t shape = kind == BLINK_STEP_DECODE    ? of_rows[n_decode]
                     : kind == BLINK_STEP_PREFILL ? c_.prefill_lookup[granules(load.tokens)]
                                                  : c_.mixed_lookup[granules(load.tokens)];
    while (c_.shapes[shape].batch_slots < load.batch_slots) ++shape;
    steps_.describe(id, kind, shape, n_decode, has_drafts, load);
  }

  P& p_;
  Steps<P>& steps_;
  Clock<P>& clock_;
  StepTimes<P>& times_;
  PagePool<P>& pool_;
  PrefixCache<P>& prefix_;
  Drafts<P>& drafts_;
  Turns<P>& turns_;
  Copies<P>& copies_;
  Admission<P>& admission_;
  Preemption<P>& preemption_;
};

}  // namespace blink

#endif
