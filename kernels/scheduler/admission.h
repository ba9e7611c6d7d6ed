/* Admission: the oldest waiting request gets a row, its pages, and its prompt on the device; or is refused for a reason
 * of its own.
 *
 * The payload is checked here, where it is copied anyway: descriptor and prompt are read from the ring once, and their
 * checksum is computed on the way (R4). A payload that does not match was overtaken by its request word; it is read
 * again later, never served.
 */
#ifndef BLINK_SCHEDULER_ADMISSION_H
#define BLINK_SCHEDULER_ADMISSION_H

namespace blink {

constexpr uint32_t kDescriptorWords = sizeof(blink_descriptor) / 4;  // the last one is the checksum
constexpr uint32_t kTorn = 0x80000000u;

// True if a row was added. False: nothing waits, or the oldest that waits must wait on (FCFS: nobody overtakes it, S2).
template <class P>
BLINK_FN bool Scheduler<P>::admit_next() {
  for (;;) {
    const uint64_t arrival = oldest_waiting();
    if (arrival == kNone) return false;
    uint32_t row = BLINK_NO_ROW;
    for (uint32_t i = tid; i < t.max_batch; i += threads) {
      if (c.rows[i].use == BLINK_ROW_FREE) row = row < i ? row : i;
    }
    row = p.reduce(row, Min());
    if (row == BLINK_NO_ROW) return false;

    const uint32_t slot = arrival_slot(arrival);
    blink_request& r = c.requests[slot];
    uint32_t problem = copy_descriptor(slot, row);
    const uint32_t length = t.params[row].prompt_tokens + r.generated;
    const uint32_t n_pages = length / t.page_size + 1;  // the first decode step's token included
    const bool others = s.n_active || s.n_zombies;      // they will give pages back
    if (!problem && others && n_pages <= c.total_pages && n_pages + s.n_active > s.n_free_pages) return false;
    if (!problem) problem = copy_prompt(slot, row);
    if (problem) {
      refuse_or_wait(slot, problem);
      continue;
    }
    copy_outputs(slot, row);
    for (uint32_t i = tid; i < n_pages; i += threads) pages(row)[i] = c.free_pages[s.n_free_pages - 1 - i];
    p.sync();
    if (tid == 0) {
      const blink_descriptor& d = t.params[row];
      s.n_free_pages -= n_pages;
      ++s.n_active;
      --s.n_waiting;
      ++s.stats.admitted;
      c.rows[row] = {0, BLINK_ROW_ACTIVE, slot, 0, length, n_pages, 0};
      const uint64_t cached = uint64_t(c.total_pages) * t.page_size;
      const uint32_t context = cached < t.max_context ? uint32_t(cached) : t.max_context;
      const uint32_t left = Min()(context - d.prompt_tokens, c.output_capacity);
      r.prompt_tokens = d.prompt_tokens;
      r.max_outputs = Min()(d.max_tokens, left);
      r.row = row;
      r.state = BLINK_STATE_PREFILL_PROCESSING;
      publish(slot);
    }
    p.sync();
    return true;
  }
}

// The arrival of the oldest request that waits, those aside whose payload was found torn this round.
template <class P>
BLINK_FN uint64_t Scheduler<P>::oldest_waiting() {
  uint64_t oldest = kNone;
  if (s.n_waiting) {
    for (uint32_t slot = tid; slot < c.n_slots; slot += threads) {
      const blink_request& r = c.requests[slot];
      if (waiting(r) && r.torn_last_ns != now) oldest = Min()(oldest, r.arrival);
    }
  }
  return p.reduce(oldest, Min());
}

// Returns 0 or kTorn. Nothing in the descriptor but these two members may be believed before the checksum has matched.
template <class P>
BLINK_FN uint32_t Scheduler<P>::copy_descriptor(uint32_t slot, uint32_t row) {
  const uint32_t* from = reinterpret_cast<const uint32_t*>(&c.descriptors[slot]);
  uint32_t* to = reinterpret_cast<uint32_t*>(t.params + row);
  for (uint32_t i = tid; i < kDescriptorWords; i += threads) to[i] = p.load(from + i);
  p.sync();
  const blink_descriptor& d = t.params[row];
  return d.sequence != c.requests[slot].sequence || d.prompt_tokens > c.prompt_capacity ? kTorn : 0;
}

// Written so that a NaN fails.
template <class P>
BLINK_FN uint32_t Scheduler<P>::check_parameters(const blink_descriptor& d) const {
  const uint64_t context = Min()(uint64_t(t.max_context), uint64_t(c.total_pages) * t.page_size);
  if (d.prompt_tokens == 0) return BLINK_REASON_EMPTY_PROMPT;
  if (d.prompt_tokens >= context) return BLINK_REASON_PROMPT_TOO_LONG;
  constexpr float kLarge = 1e30f;
  const bool good = d.max_tokens >= 1 && d.temperature >= 0 && d.temperature < kLarge && d.top_p > 0 && d.top_p <= 1 &&
                    d.min_p >= 0 && d.min_p <= 1 && d.repetition_penalty > 0 && d.repetition_penalty < kLarge &&
                    d.presence_penalty > -kLarge && d.presence_penalty < kLarge && d.frequency_penalty > -kLarge &&
                    d.frequency_penalty < kLarge && d.n_stop_ids <= BLINK_MAX_STOP_IDS;
  return good ? 0 : BLINK_REASON_BAD_PARAMETER;
}

// Copies the prompt into the row's history and checks it. Returns 0, kTorn, or the reason to refuse the request.
template <class P>
BLINK_FN uint32_t Scheduler<P>::copy_prompt(uint32_t slot, uint32_t row) {
  const blink_descriptor& d = t.params[row];
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&d);
  const uint32_t* from = prompt(slot);
  uint32_t* to = history(row);
  const uint32_t head = kDescriptorWords - 1, n = head + d.prompt_tokens;
  CrcShare crc(n, tid, threads);
  uint32_t largest = 0;
  constexpr uint32_t kAhead = 8;  // loads in flight: each crosses PCIe when the ring is in host memory
  for (uint32_t base = tid; base < n; base += kAhead * threads) {
    uint32_t word[kAhead];
    for (uint32_t k = 0; k < kAhead; ++k) {
      const uint32_t i = base + k * threads;
      word[k] = i >= n ? 0 : i < head ? words[i] : p.load(from + (i - head));
    }
    for (uint32_t k = 0; k < kAhead; ++k) {
      const uint32_t i = base + k * threads;
      if (i >= n) break;
      crc.add(word[k]);
      if (i < head) continue;
      if (i - head < t.max_context) to[i - head] = word[k];
      largest = Max()(largest, word[k]);
    }
  }
  const uint32_t checksum = ~p.reduce(crc.share(), Xor());
  largest = p.reduce(largest, Max());
  if (checksum != d.crc32c) return kTorn;
  if (largest >= t.vocab_size) return BLINK_REASON_BAD_TOKEN;
  return check_parameters(d);
}

// A request that was paused goes on where it was: its published tokens are part of what is prefilled again.
template <class P>
BLINK_FN void Scheduler<P>::copy_outputs(uint32_t slot, uint32_t row) {
  uint32_t* to = history(row) + t.params[row].prompt_tokens;
  const uint32_t n = c.requests[slot].generated;
  for (uint32_t i = tid; i < n; i += threads) to[i] = low(p.load(outputs(slot) + i));
}

template <class P>
BLINK_FN void Scheduler<P>::refuse_or_wait(uint32_t slot, uint32_t problem) {
  p.sync();
  if (tid == 0) {
    blink_request& r = c.requests[slot];
    if (problem != kTorn) {
      finish(slot, problem);
    } else {
      ++s.stats.torn_payloads;
      r.torn_last_ns = now;
      if (r.torn_since_ns == 0) r.torn_since_ns = now;
      if (now - r.torn_since_ns > BLINK_TORN_PAYLOAD_TIMEOUT_NS) finish(slot, BLINK_REASON_BAD_CHECKSUM);
    }
  }
  p.sync();
}

}  // namespace blink

#endif
