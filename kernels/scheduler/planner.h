/* The planner: fills the step set of the next step while the running one still runs.
 *
 * A position is known before its token is: sequence r feeds position `fed`, whose token id the step before writes into
 * the sequence's history. So a step can be planned one step ahead; only an end token cannot be foreseen, and its
 * sequence then rides along once more (S6).
 */
#ifndef BLINK_SCHEDULER_PLANNER_H
#define BLINK_SCHEDULER_PLANNER_H

namespace blink {

// Of `n` tokens, the index into a lookup of prefill or mixed shapes.
BLINK_FN inline uint32_t granules(uint32_t n) {
  return (n + BLINK_TOKEN_GRANULE - 1) / BLINK_TOKEN_GRANULE;
}

// Sequences that prefill in the low half, sequences that decode in the high half.
template <class P>
BLINK_FN uint32_t Scheduler<P>::count_batch() {
  uint32_t counts = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads)
    counts += prefilling(c.sequences[i]) ? 1 : decoding(c.sequences[i]) ? 1u << 16 : 0;
  return p.reduce(counts, Sum());
}

// Decides what step `id` runs and writes its step set: every sequence that decodes, and prompts. False: there is
// nothing to run.
template <class P>
BLINK_FN bool Scheduler<P>::plan(uint64_t id) {
  if (s.n_active == 0 && s.n_waiting == 0) return false;
  uint32_t counts = count_batch();
  if (room_beside(counts) == 0 && s.n_waiting && give_place()) counts = count_batch();
  const uint32_t n_prefilling = counts & 0xffff, n_decoding = counts >> 16;
  // Whatever decodes waits for one copy step at most.
  const bool may_copy = c.host_pages && (last_kind != BLINK_STEP_COPY || n_decoding == 0);
  if (may_copy && plan_copies(id, n_decoding)) return true;
  // A sequence whose last token is on its way needs no further step: its successor need not wait for it.
  const uint32_t room = room_beside(counts);
  const uint32_t n_prompts = n_prefilling + Min()(room, s.n_waiting);
  const uint32_t n_decode = n_decoding ? plan_decode(id) : 0;
  StepLoad load = {n_decode, n_decode, n_decode};
  if (n_prompts) {
    const uint32_t limit = n_decode ? mixed_limit(n_decode, n_decode + n_prompts) : c.max_prefill_tokens;
    load = plan_prompts(id, n_decode, limit, room);
  }
  if (load.batch_slots == 0) {
    if (c.host_pages && plan_copies(id, n_decoding)) return true;
    // Prompts under way have all the pages, and each waits for another's: one gives way (S7).
    if (in_flight() == 0 && s.n_zombies == 0) leave(next_to_leave(nullptr));
    return false;
  }
  close_plan(id, n_decode, load);
  return true;
}

// Every sequence that decodes gets its next token's place, and a page where it needs one; without enough pages, those
// that need one wait. Returns how many do not.
template <class P>
BLINK_FN uint32_t Scheduler<P>::plan_decode(uint64_t id) {
  make_room();
  const blink_step_set& set = set_of(id);
  uint32_t batch_slots = 0, taken = 0, need = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads)
    need += decoding(c.sequences[i]) && needs_page(c.sequences[i]);
  need = p.reduce(need, Sum());
  const bool starving = need > pool.available();  // pages come back when the preempted sequences' last step is done
  if (!starving) pool.reserve(need);
  for (uint32_t base = 0; base < t.n_sequences; base += threads) {
    const uint32_t i = base + tid;
    bool in = i < t.n_sequences && decoding(c.sequences[i]);
    const bool page = in && needs_page(c.sequences[i]);
    if (page && starving) in = false;
    uint32_t n_in, n_pages;
    const uint32_t batch_slot = batch_slots + p.rank(in, &n_in);
    const uint32_t nth = taken + p.rank(page && in, &n_pages);
    if (in) {
      blink_sequence& sequence = c.sequences[i];
      if (page) pages(i)[sequence.n_pages++] = pool.claim(nth);
      set.token_sequence[batch_slot] = set.batch_sequence[batch_slot] = i;
      set.token_position[batch_slot] = sequence.fed++;
      set.batch_first[batch_slot] = set.batch_last[batch_slot] = batch_slot;
      set.batch_emit[batch_slot] = 1;
      sequence.last_step = id;
    }
    batch_slots += n_in;
    taken += n_pages;
  }
  pool.took(taken);
  p.sync();
  return batch_slots;
}

// Tokens of prompts: the longest's in the upper half, all prompts' in the lower one. These are fewer than 2^32 up to
// 4,096 sequences of a million; beyond, the longest still has its part.
struct Lengths {
  BLINK_FN uint64_t operator()(uint64_t a, uint64_t b) const {
    return Max()(a >> 32, b >> 32) << 32 | uint32_t(uint32_t(a) + uint32_t(b));
  }
};

// Tokens of a step of `n_decode` sequences and prompts, of `n` requests in all that run or could (S15). In balance
// prompts come in as fast as answers go out: with each output token, as much of a prompt as the requests have on
// average. A longer prompt, or many, come in in larger parts, or they would wait for many steps. Less than
// `mixed_share` would save nothing, and a shape is filled to the last token, because its matmuls run at its capacity.
template <class P>
BLINK_FN uint32_t Scheduler<P>::mixed_limit(uint32_t n_decode, uint32_t n) const {
  uint64_t there = 0;
  for (uint32_t i = tid; i < t.n_sequences; i += threads) {
    const blink_sequence& sequence = c.sequences[i];
    if (!prefilling(sequence) && sequence.use != BLINK_SEQUENCE_STAGED) continue;
    const uint64_t length = sequence.prefill_end - sequence.cached;
    there = Lengths()(there, length << 32 | length);
  }
  there = p.reduce(there, Lengths());
  const uint64_t longest = there >> 32, all = uint32_t(there);
  const uint64_t some = Min()(all / BLINK_PROMPT_STEPS, uint64_t(BLINK_PROMPT_SHARE));
  const uint64_t part = Max()(Max()(longest / BLINK_PROMPT_STEPS, some), all / BLINK_BACKLOG_STEPS);
  const uint64_t balance = n * (s.ended_prompts + BLINK_USUAL_PROMPT) / (s.ended_outputs + BLINK_USUAL_OUTPUT);
  const uint32_t share = Min()(uint64_t(c.max_prefill_tokens), Max()(Max()(balance, part), uint64_t(c.mixed_share)));
  const uint32_t shape = c.mixed_lookup[granules(Min()(n_decode + share, c.max_mixed_tokens))];
  return Min()(c.shapes[shape].tokens, n_decode + c.max_prefill_tokens);
}

// Packs chunks of prompts behind the sequences that decode until the step has `limit` tokens; admits waiting requests
// to fill it, at most `room`. Clients take turns here too (S2): each one's oldest prompt comes before any one's second,
// and so does the admission of a client that has none under way.
template <class P>
BLINK_FN StepLoad Scheduler<P>::plan_prompts(uint64_t id, uint32_t n_decode, uint32_t limit, uint32_t room) {
  StepLoad load = {n_decode, n_decode, n_decode};
  room = Min()(room, c.max_prefill_slots);  // those that await pages take no tokens, and a turn has to end (S10)
  uint32_t slots = n_decode + c.max_prefill_slots;
  uint32_t promised = n_decode;  // pages that are not for the next prompt: each sequence that decodes may need one
  consider_anew();
  while (load.batch_slots < slots && load.tokens < limit && load.work < limit) {
    const NextPrompt next = next_prompt();
    if (room && line_is_before(next.rank)) {
      const uint64_t arrival = next_ready();
      // Another is next where the one that was cannot run: that one need not be more urgent than the prompt.
      if (c.priorities && arrival != kNone && !is_before(arrival, next.rank)) continue;
      room = arrival != kNone && admit(arrival_slot(arrival)) ? room - 1 : 0;  // nobody overtakes one that must wait
      continue;
    }
    if (next.sequence == BLINK_NO_SEQUENCE) break;
    const uint32_t i = next.sequence;
    blink_sequence& sequence = c.sequences[i];
    consider(i);
    if (!awaiting(i)) {
      const uint32_t there = pool.available() - Min()(pool.available(), promised);
      const uint64_t pages_hold = uint64_t(sequence.n_pages + there) * t.page_size - sequence.fed;
      const bool more = next.others || (room && s.n_waiting);
      uint32_t n = Min()(pages_hold, uint64_t(chunk(sequence, load, n_decode, limit, more)));
      if (sequence.scored) n = Min()(n, scored_room(load, n_decode, more));
      if (n) {
        const uint64_t keys = n_decode && c.attention_keys ? uint64_t(n) * sequence.fed / c.attention_keys : 0;
        feed(id, i, n, load.batch_slots, load.tokens);
        load = {load.tokens + n, load.batch_slots + (sequence.scored ? n : 1),
                uint32_t(Min()(load.work + n + keys, uint64_t(limit)))};
        if (load.batch_slots > slots) {  // a mixed step, whatever decodes
          slots = c.max_batch + c.max_prefill_slots;
          limit = Min()(limit, c.max_mixed_tokens);
        }
      }
    }
    promised += owed(sequence);
  }
  return load;
}

// How many tokens of a step are for a prompt of which each token is told, at most: each has a batch slot of its own,
// and mixed shapes have the most of them (S22).
template <class P>
BLINK_FN uint32_t Scheduler<P>::scored_room(StepLoad load, uint32_t n_decode, bool others) const {
  const uint32_t usual = n_decode + c.max_prefill_slots, most = c.max_batch + c.max_prefill_slots;
  const uint32_t narrow = usual - Min()(usual, load.batch_slots);
  if (load.tokens >= c.max_mixed_tokens) return narrow;
  const uint32_t wide = Min()(most - load.batch_slots, c.max_mixed_tokens - load.tokens);
  return Max()(narrow, others ? wide - wide / 4 : wide);
}

// How many tokens a prompt gets of a step, at most. One that is not done with three quarters of what is left leaves the
// rest to the `others`, so that a short one need not wait for the long ones before it. Beside sequences that decode,
// whose next token waits for this step, tokens that see many keys count for more (S15).
template <class P>
BLINK_FN uint32_t Scheduler<P>::chunk(const blink_sequence& sequence, StepLoad load, uint32_t n_decode, uint32_t limit,
                                      bool others) const {
  const uint32_t left = sequence.prefill_end - sequence.fed, room = limit - load.tokens;
  uint64_t work = limit - load.work;
  if (n_decode && c.attention_keys)
    work = Max()(work * c.attention_keys / (c.attention_keys + sequence.fed + Min()(left, room)), uint64_t(1));
  const uint32_t most = Min()(uint64_t(room), work);
  return left <= most - most / 4 || !others ? Min()(left, most) : most - most / 4;
}

// Gives sequence `i` its next `n` tokens' places in step `id`, the first at token `at` of the step, and their pages.
template <class P>
BLINK_FN void Scheduler<P>::feed(uint64_t id, uint32_t i, uint32_t n, uint32_t batch_slot, uint32_t at) {
  const blink_step_set& set = set_of(id);
  blink_sequence& sequence = c.sequences[i];
  const uint32_t first = sequence.fed, end = first + n, has = sequence.n_pages;
  const uint32_t n_pages = (end + t.page_size - 1) / t.page_size;
  if (n_pages > has) pool.take(pages(i) + has, n_pages - has);
  for (uint32_t k = tid; k < n; k += threads) {
    set.token_sequence[at + k] = i;
    set.token_position[at + k] = first + k;
  }
  p.sync();
  if (tid == 0) {
    set.batch_sequence[batch_slot] = i;
    set.batch_first[batch_slot] = at;
    set.batch_last[batch_slot] = at + n - 1;
    set.batch_emit[batch_slot] = end == sequence.prefill_end ? BLINK_EMIT_TOKEN
                                 : sequence.scored           ? BLINK_EMIT_LOGPROBS
                                                             : BLINK_EMIT_NOTHING;
    sequence.fed = end;
    sequence.last_step = id;
    sequence.n_pages = Max()(n_pages, has);
    s.stats.prompt_tokens += n;
    if (end == sequence.prefill_end) tell_cached(sequence);
  }
  if (sequence.scored) score(id, i, n, batch_slot + 1, at);
  p.sync();
  link_prompt(i, id);
}

// Gives the first n - 1 tokens of a prompt's chunk batch slots of their own. Attention has them with the chunk's (S22).
template <class P>
BLINK_FN void Scheduler<P>::score(uint64_t id, uint32_t i, uint32_t n, uint32_t batch_slot, uint32_t at) {
  const blink_step_set& set = set_of(id);
  for (uint32_t k = tid; k + 1 < n; k += threads) {
    set.batch_sequence[batch_slot + k] = i;
    set.batch_first[batch_slot + k] = at + k + 1;
    set.batch_last[batch_slot + k] = at + k;
    set.batch_emit[batch_slot + k] = BLINK_EMIT_LOGPROBS;
  }
}

// A prompt is in: how much of it was not computed. What a paused request finds again was computed for it before.
template <class P>
BLINK_FN void Scheduler<P>::tell_cached(const blink_sequence& sequence) {
  blink_request& r = c.requests[sequence.slot];
  if (c.prefix_cache && !sequence.scored) s.stats.prefix_queries += sequence.prefill_end;
  s.stats.prefix_hits += sequence.cached;
  if (r.generated) return;
  if (!r.restarted) r.cached = sequence.cached;
  p.store(&c.progress[sequence.slot].prefix, pair_word(r.submission, r.cached));
}

// Picks the tightest shape, whose tokens beyond the load are padding. Mixed shapes of equal tokens ascend in batch
// slots.
template <class P>
BLINK_FN void Scheduler<P>::close_plan(uint64_t id, uint32_t n_decode, StepLoad load) {
  const bool narrow = n_decode == 0 && load.batch_slots <= c.max_prefill_slots;
  const uint32_t kind = narrow                         ? BLINK_STEP_PREFILL
                        : load.batch_slots == n_decode ? BLINK_STEP_DECODE
                                                       : BLINK_STEP_MIXED;
  uint32_t shape = kind == BLINK_STEP_DECODE    ? c.decode_lookup[n_decode]
                   : kind == BLINK_STEP_PREFILL ? c.prefill_lookup[granules(load.tokens)]
                                                : c.mixed_lookup[granules(load.tokens)];
  while (c.shapes[shape].batch_slots < load.batch_slots) ++shape;
  describe_step(id, kind, shape, n_decode, load);
}

}  // namespace blink

#endif
