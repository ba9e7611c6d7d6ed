/* Commit: what a completed step produced goes into the ring; sequences that ended are detached now and released when
 * nothing uses them. */
#ifndef BLINK_SCHEDULER_COMMIT_H
#define BLINK_SCHEDULER_COMMIT_H

namespace blink {

template <class P>
BLINK_FN void Scheduler<P>::take_completions(uint64_t completed) {
  if (completed == committed) {
    if (in_flight() && now > running_since && now - running_since > c.step_timeout_ns)
      fail(BLINK_FAULT_STEP, committed + 1);
    return;
  }
  if (const uint64_t id = step_run_early(completed)) return fail(BLINK_FAULT_GATE, id);
  while (committed < completed && phase != BLINK_PHASE_FAILED) commit(++committed);
  running_since = now;
  if (s.n_zombies) reap();
}

// The id of a step in flight whose gate gave up, or 0. Such a step has run beside the one before it and may complete
// first: the completion word then says that both have, whose outputs are worth nothing (E2).
template <class P>
BLINK_FN uint64_t Scheduler<P>::step_run_early(uint64_t completed) {
  uint64_t found = 0;
  for (uint64_t id = p.shares_step_sets() ? launched : completed; tid == 0 && id > committed; --id) {
    if (p.load(&set_of(id).head->fault)) found = id;
  }
  return broadcast(found);
}

template <class P>
BLINK_FN void Scheduler<P>::commit(uint64_t id) {
  const blink_step_set& set = set_of(id);
  const blink_step_head& head = *set.head;
  constexpr uint32_t kBad = 1, kFilled = 2, kFaulty = 4;
  if (head.batch_size > head.n_decode) commit_scores(set);
  uint32_t found = 0;
  for (uint32_t batch_slot = tid; batch_slot < head.batch_size; batch_slot += threads) {
    if (set.batch_emit[batch_slot] != BLINK_EMIT_TOKEN) continue;
    if (!is_outcome(set.out_token[batch_slot])) {
      found |= kBad;
    } else {
      if (fills_page(set, batch_slot)) found |= kFilled;
      if (set.out_token[batch_slot] == BLINK_NO_TOKEN) found |= kFaulty;
      commit_token(set, batch_slot);
    }
  }
  found = p.reduce(found, Or());
  if (found & kBad) return fail(BLINK_FAULT_TOKEN, id);
  if (found & kFilled) link_filled(set);
  if (found & kFaulty) forget_faulty();
  if (tid == 0) {
    ++s.stats.steps;
    s.stats.decode_steps += head.n_decode > 0;
    s.stats.prefill_steps += head.batch_size > head.n_decode;
    if (s.ended_prompts + s.ended_outputs > BLINK_USUAL_MEMORY) s.ended_prompts /= 2, s.ended_outputs /= 2;
    record_times(head);
  }
  p.sync();
}

// Whether a step may have put this where a token is to be.
template <class P>
BLINK_FN bool Scheduler<P>::is_outcome(uint32_t token) const {
  return token < t.vocab_size || token == BLINK_NO_TOKEN || token == BLINK_DEAD_END;
}

// The keys and values of a request without a token to sample may be no numbers: nobody finds them from now on (S17).
template <class P>
BLINK_FN void Scheduler<P>::forget_faulty() {
  for (uint32_t i = 0; i < t.n_sequences; ++i) {
    if (!c.sequences[i].faulty) continue;
    pool.forget(pages(i), c.sequences[i].n_pages);
    p.sync();
    if (tid == 0) c.sequences[i].faulty = 0;
    p.sync();
  }
}

// Whether the token that a sequence fed fills a page, which is to be linked then (prefix.h); marks the sequence.
template <class P>
BLINK_FN bool Scheduler<P>::fills_page(const blink_step_set& set, uint32_t batch_slot) {
  if (!c.prefix_cache || batch_slot >= set.head->n_decode || set.out_token[batch_slot] == BLINK_NO_TOKEN) return false;
  blink_sequence& sequence = c.sequences[set.batch_sequence[batch_slot]];
  const uint32_t fed = set.token_position[set.batch_last[batch_slot]] + 1;
  if (sequence.use != BLINK_SEQUENCE_ACTIVE || fed != (sequence.n_linked + 1) * t.page_size) return false;
  sequence.filled = set.head->id;
  return true;
}

// Publishes one sampled token, or ends the request where there is none: the record in the arena and inline, then the
// status word that makes it visible (R2).
template <class P>
BLINK_FN void Scheduler<P>::commit_token(const blink_step_set& set, uint32_t batch_slot) {
  blink_sequence& sequence = c.sequences[set.batch_sequence[batch_slot]];
  if (sequence.use != BLINK_SEQUENCE_ACTIVE) {
    p.add(&s.stats.zombie_rows, uint64_t(1));
    return;
  }
  const uint32_t slot = sequence.slot, token = set.out_token[batch_slot];
  if (token == BLINK_NO_TOKEN) {
    sequence.faulty = 1;
    return finish(slot, BLINK_REASON_NUMERICAL_FAULT);
  }
  if (token == BLINK_DEAD_END) return finish(slot, BLINK_REASON_GRAMMAR_DEAD_END);
  blink_request& r = c.requests[slot];
  tell_logprobs(set, batch_slot, logprobs(slot) + uint64_t(r.generated) * r.logprob_words, r.logprob_words);
  const uint64_t record = output_record(token, r.generated, r.submission);
  p.store(outputs(slot) + r.generated, record);
  p.store(&c.progress[slot].records[r.generated % BLINK_INLINE_RECORDS], record);
  ++r.generated;
  p.add(&s.stats.tokens, uint64_t(1));
  const uint32_t reason = finish_reason(r, t.params[set.batch_sequence[batch_slot]], token);
  if (reason) {
    finish(slot, reason);
  } else {
    go_on(slot);
  }
}

// Tells how likely the prompts' tokens were. All of it is there before a record that publishes it (R2).
template <class P>
BLINK_FN void Scheduler<P>::commit_scores(const blink_step_set& set) {
  for (uint32_t batch_slot = set.head->n_decode + tid; batch_slot < set.head->batch_size; batch_slot += threads) {
    if (set.batch_emit[batch_slot] == BLINK_EMIT_LOGPROBS) commit_score(set, batch_slot);
  }
  p.sync();
}

// Of the token behind those that the batch slot has seen.
template <class P>
BLINK_FN void Scheduler<P>::commit_score(const blink_step_set& set, uint32_t batch_slot) {
  const blink_sequence& sequence = c.sequences[set.batch_sequence[batch_slot]];
  if (sequence.use != BLINK_SEQUENCE_ACTIVE) return;
  const uint64_t position = set.token_position[set.batch_last[batch_slot]] + 1;
  const uint32_t n = c.requests[sequence.slot].prompt_logprob_words;
  tell_logprobs(set, batch_slot, prompt_logprobs(sequence.slot) + position * n, n);
}

// Never of a sequence that has ended: its request's range may be another's by now.
template <class P>
BLINK_FN void Scheduler<P>::tell_logprobs(const blink_step_set& set, uint32_t batch_slot, uint64_t* to, uint32_t n) {
  const uint64_t* from = set.out_logprobs + uint64_t(batch_slot) * BLINK_LOGPROB_WORDS;
  for (uint32_t i = 0; i < n; i += kAhead) {
    uint64_t word[kAhead];
    for (uint32_t k = 0; k < kAhead; ++k) word[k] = from[Min()(i + k, n - 1)];
    for (uint32_t k = 0; k < kAhead && i + k < n; ++k) p.store(to + i + k, word[k]);
  }
}

template <class P>
BLINK_FN uint32_t Scheduler<P>::finish_reason(const blink_request& r, const blink_descriptor& d, uint32_t token) const {
  if (r.generated >= d.min_tokens) {
    for (uint32_t i = 0; i < d.n_stop_ids; ++i) {
      if (token == d.stop_ids[i]) return BLINK_REASON_STOP_ID;
    }
    for (uint32_t i = 0; i < t.n_eos && !(d.flags & BLINK_FLAG_IGNORE_EOS); ++i) {
      if (token == t.eos[i]) return BLINK_REASON_EOS;
    }
  }
  return r.generated >= r.max_outputs ? BLINK_REASON_LENGTH : BLINK_REASON_NONE;
}

// A gap counts when the next step was ready: it was planned while this one ran, or in the same turn of the loop that
// saw it end.
template <class P>
BLINK_FN void Scheduler<P>::record_times(const blink_step_head& head) {
  blink_shape_time& time = c.shape_times[head.shape];
  const uint64_t duration = since(head.start_ns, head.done_ns);
  time.expected_ns = duration < time.expected_ns || !time.expected_ns
                         ? duration
                         : time.expected_ns + (duration - time.expected_ns) / 8;
  time.total_ns += duration;
  ++time.steps;
  if (s.last_done_ns && head.start_ns >= s.last_done_ns) {
    const uint64_t bin = (head.start_ns - s.last_done_ns) / BLINK_GAP_BIN_NS;
    ++s.gap_histogram[bin < BLINK_GAP_BINS ? bin : BLINK_GAP_BINS - 1];
  }
  s.last_done_ns = s.n_active ? head.done_ns : 0;
  blink_step_trace& trace = c.trace[head.id % BLINK_TRACE_STEPS];
  trace.start_ns = head.start_ns;
  trace.sample_ns = head.sample_ns;
  trace.done_ns = head.done_ns;
  trace.seen_ns = now;
  trace.kind = head.kind;
  trace.batch_size = head.batch_size;
  trace.id = head.id;
  show(head);
}

// In the ring, for whoever watches.
template <class P>
BLINK_FN void Scheduler<P>::show(const blink_step_head& head) {
  blink_shown_step& shown = header.steps[head.id % BLINK_SHOWN_STEPS];
  p.store(&shown.start_ns, head.start_ns);
  p.store(&shown.done_ns, head.done_ns);
  p.store(&shown.tokens, pair_word(head.n_tokens - head.n_decode, head.n_decode));
  p.store(&shown.id, head.id);
}

}  // namespace blink

#endif
