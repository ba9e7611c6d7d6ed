// What is new in a slot's answer: the reader's thread takes it from the ring, checks it and delivers it.
#include <algorithm>
#include <cstddef>

#include "nic_frontend/native/token_reader.h"
#include "ringbuffer/words.h"

namespace blink {
namespace {

constexpr uint32_t kEventWords = BLINK_EVENT_TOKENS_MAX / 2;  // of log-probabilities

}  // namespace

void TokenReader::visit(uint32_t index, const blink_progress& entry) {
  Slot& slot = slots_[index];
  const Status status = unpack_status(entry.status);
  // Another sequence: the scheduler has not met the submission yet. EMPTY before the release: the lease is
  // gone, see watch.
  if (status.sequence != slot.sequence) return;
  if (!slot.admitted && status.state > BLINK_STATE_PREFILL_PENDING) {
    slot.admitted = now_;
    pacing_.expect_first_token(now_);
  }
  if (slot.phase == Phase::kReleasing) {
    if (status.state == BLINK_STATE_EMPTY && push(index, BLINK_EVENT_FREED, 0, nullptr, 0)) {
      slot.phase = Phase::kIdle;
      regroup_ = true;
    }
  } else if (status.state == BLINK_STATE_DECODE_COMPLETED) {
    if (slot.phase == Phase::kCancelled || collect(index, entry)) end(index, Phase::kReleasing, BLINK_COMMAND_RELEASE);
  } else if (slot.phase == Phase::kOpen && status.state != BLINK_STATE_EMPTY) {
    collect(index, entry);
  }
}

// Delivers what is new of an open slot. True when that was the last of it.
bool TokenReader::collect(uint32_t index, const blink_progress& entry) {
  Slot& slot = slots_[index];
  const Status status = unpack_status(entry.status);
  const bool completed = status.state == BLINK_STATE_DECODE_COMPLETED;
  if (slot.next == status.count) return completed && push(index, BLINK_EVENT_FINISHED, status.reason, nullptr, 0);
  if (slot.next == 0 && slot.prompt_told < slot.prompt_words && !tell_prompt(index)) return false;
  uint32_t tokens[BLINK_EVENT_TOKENS_MAX];
  uint64_t words[kEventWords];
  bool full;
  uint32_t room = std::min({queue_.room(&full), BLINK_EVENT_TOKENS_MAX, budget_});
  if (slot.logprob_words) room = std::min({room, budget_, kEventWords / slot.logprob_words});
  behind_ |= status.count > slot.next && status.count - slot.next > room;
  if (room == 0) return false;
  uint32_t n = 0;
  if (slot.next < status.count && status.count <= slot.output_room)
    n = read_records(index, entry, std::min(status.count - slot.next, room), tokens);
  if (n == 0) {
    if (slot.unreadable_since == 0) slot.unreadable_since = now_;
    if (now_ - slot.unreadable_since > options_.torn_timeout_ns &&
        push(index, BLINK_EVENT_FINISHED, BLINK_REASON_BAD_CHECKSUM, nullptr, 0))
      end(index, Phase::kCancelled, BLINK_COMMAND_CANCEL);
    return false;
  }
  uint32_t cached = 0, prefill_us = 0;
  if (slot.next == 0) {
    if (!read_cached(index, entry, &cached)) return false;
    prefill_us = uint32_t(std::min<uint64_t>((now_ - slot.admitted) / 1000, UINT32_MAX));
  }
  if (slot.logprob_words && (!read_logprobs(index, n, words) || !queue_.holds(2, n + 2 * n * slot.logprob_words))) {
    behind_ = true;
    return false;
  }
  if (slot.logprob_words) push_words(index, BLINK_EVENT_LOGPROBS, words, n * slot.logprob_words);
  if (slot.next == 0) regroup_ = true;  // no longer urgent
  slot.next += n;
  slot.unreadable_since = 0;
  budget_ -= n;
  counters_.records += n;
  const bool last = completed && slot.next == status.count;
  return push(index, last ? BLINK_EVENT_FINISHED : BLINK_EVENT_TOKENS, last ? status.reason : 0, tokens, n, cached,
              prefill_us) &&
         last;
}

// Delivers what is told of a slot's prompt, which is there with its first record (R2). False: not all of it yet.
bool TokenReader::tell_prompt(uint32_t index) {
  Slot& slot = slots_[index];
  while (slot.prompt_told < slot.prompt_words) {
    uint64_t words[kEventWords];
    const uint32_t n = std::min(kEventWords, slot.prompt_words - slot.prompt_told);
    const uint64_t first = uint64_t(slot.output_room) * (1 + slot.logprob_words) + slot.prompt_told;
    if (!read_outputs(slot, first, n, words)) return false;
    if (!push_words(index, BLINK_EVENT_PROMPT_LOGPROBS, words, n)) return false;
    slot.prompt_told += n;
  }
  return true;
}

// The words of the next n tokens. They are there with the records that have been read (R2).
bool TokenReader::read_logprobs(uint32_t index, uint32_t n, uint64_t* words) {
  const Slot& slot = slots_[index];
  const uint64_t first = slot.output_room + uint64_t(slot.next) * slot.logprob_words;
  return read_outputs(slot, first, n * slot.logprob_words, words);
}

// Words of a slot's range of the outputs' heap.
bool TokenReader::read_outputs(const Slot& slot, uint64_t first, uint32_t n, uint64_t* words) {
  const uint64_t at = uint64_t(options_.lease) * header_.output_heap + slot.output_offset + first;
  return link_.read(header_.outputs_offset + at * 8, words, n);
}

// Reads up to n records from position slot.next on; returns how many are of this request (F3). A token outside the
// vocabulary is none of the scheduler's, which would have failed: something else writes to the ring.
uint32_t TokenReader::read_records(uint32_t index, const blink_progress& entry, uint32_t n, uint32_t* tokens) {
  const Slot& slot = slots_[index];
  uint32_t good = 0;
  for (; good < n; ++good) {
    const uint32_t position = slot.next + good;
    const uint64_t record = entry.records[position % BLINK_INLINE_RECORDS];
    if (!record_is(record, position, slot.sequence) || low(record) >= header_.vocab_size) break;
    tokens[good] = low(record);
  }
  if (good == n) return n;
  uint64_t records[BLINK_EVENT_TOKENS_MAX];
  if (!read_outputs(slot, slot.next, n, records)) return 0;
  ++counters_.arena_reads;
  for (good = 0; good < n; ++good) {
    if (!record_is(records[good], slot.next + good, slot.sequence) || low(records[good]) >= header_.vocab_size) break;
    tokens[good] = low(records[good]);
  }
  counters_.bad_records += n - good;
  return good;
}

// How many tokens of the prompt were cached, which is there before the first record (R2). But a bulk read's words are
// in no order: where `entry` lacks it, a read that begins now does not. False when the link is down.
bool TokenReader::read_cached(uint32_t index, const blink_progress& entry, uint32_t* cached) {
  uint64_t prefix = entry.prefix;
  const uint64_t at = (first_slot_ + index) * sizeof(blink_progress) + offsetof(blink_progress, prefix);
  if (low(prefix) != slots_[index].sequence && !link_.read(header_.progress_offset + at, &prefix, 1)) return false;
  *cached = low(prefix) == slots_[index].sequence ? high(prefix) : 0;
  return true;
}

// False when the queue is full: the caller leaves the slot as it is and comes back.
bool TokenReader::push(uint32_t index, blink_event_kind kind, uint32_t reason, const uint32_t* tokens, uint32_t n,
                       uint32_t cached, uint32_t prefill_us) {
  bool full;
  if (queue_.room(&full) < n || full) {
    behind_ = true;
    return false;
  }
  queue_.push({index, slots_[index].sequence, n, kind, reason, cached, prefill_us}, tokens);
  ++pushed_;
  return true;
}

// Words of log-probabilities, as the queue has them.
bool TokenReader::push_words(uint32_t index, blink_event_kind kind, const uint64_t* words, uint32_t n) {
  uint32_t halves[2 * kEventWords];
  for (uint32_t i = 0; i < n; ++i) halves[2 * i] = low(words[i]), halves[2 * i + 1] = high(words[i]);
  return push(index, kind, 0, halves, 2 * n);
}

}  // namespace blink
