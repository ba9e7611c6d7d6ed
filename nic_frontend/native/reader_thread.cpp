// The reader's thread: one cycle takes messages, looks after the lease, polls the ring once and pauses.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "nic_frontend/native/clock.h"
#include "nic_frontend/native/token_reader.h"
#include "ringbuffer/words.h"

namespace blink {
namespace {

constexpr uint32_t kUnresolved = UINT32_MAX;                  // no connection has that number
constexpr uint32_t kEventWords = BLINK_EVENT_TOKENS_MAX / 2;  // of log-probabilities

}  // namespace

void TokenReader::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // the default of 50 us is longer than the shortest sleep
  for (;;) {
    now_ = monotonic_ns();
    if (!take_messages()) return;
    const bool up = connected();
    if (up) {
      watch();
      // What was submitted before the scheduler ended is polled before the end is told.
      if (lease_.scheduler_ended() && !take_messages()) return;
      poll(now_);
      report();
    }
    pause(monotonic_ns(), up);
  }
}

// False when the thread is to end.
bool TokenReader::take_messages() {
  {
    std::lock_guard<std::mutex> lock(inbox_mutex_);
    if (stopping_) return false;
    messages_.swap(inbox_);
  }
  for (const Message& message : messages_) {
    if (lease_.lost()) break;
    Slot& slot = slots_[message.slot];
    if (message.submitted) {
      slot.phase = Phase::kOpen;
      slot.next = 0;
      slot.unreadable_since = 0;
      slot.admitted = 0;
      slot.connection = message.connection;
      slot.output_offset = message.output_offset;
      slot.output_room = message.output_room;
      slot.logprob_words = message.logprob_words;
      slot.prompt_words = message.prompt_words;
      slot.prompt_told = 0;
      urgent_.push_back(message.slot);
      last_arrival_ = now_;
      if (message.connection != resolved_) resolved_ = kUnresolved;
    } else if (slot.phase == Phase::kOpen && slot.sequence == message.sequence) {
      end(message.slot, Phase::kCancelled, BLINK_COMMAND_CANCEL);
    }
  }
  messages_.clear();
  return true;
}

// Whether the link is up, and everything over it is known (V7).
bool TokenReader::connected() {
  const uint32_t connection = link_.connections();
  const bool down = link_.down();
  const bool resolved = !down && (connection == resolved_ || resolve(connection));
  if (down != bool(health_.link_down) || (!down && !resolved) != bool(health_.resolving)) {
    std::lock_guard<std::mutex> lock(health_mutex_);
    health_.link_down = down;
    health_.resolving = !down && !resolved;
  }
  return resolved;
}

// The connection has been made again, and the lease may have outlived the interruption. What was written over the
// connection before has arrived or never will (V4), so the ring says what became of it. A submission that did not
// arrive is given up, never sent again: its client gets an error and may (V7). Its sequence is used up by a CANCEL,
// because parts of its payload may lie in the slot, valid for that sequence (R4). CANCEL and RELEASE may be
// written any number of times.
bool TokenReader::resolve(uint32_t connection) {
  bool granted = false, full = false;
  if (!lease_.lost() && !lease_.confirm(&granted)) return false;
  if (granted) {
    std::vector<uint64_t> requests(slots_.size());
    if (!link_.read(header_.requests_offset + first_slot_ * 8ull, requests.data(), requests.size())) return false;
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.phase == Phase::kCancelled) end(i, Phase::kCancelled, BLINK_COMMAND_CANCEL);
      if (slot.phase == Phase::kReleasing) end(i, Phase::kReleasing, BLINK_COMMAND_RELEASE);
      if (slot.phase != Phase::kOpen || slot.connection == connection) continue;
      if (low(requests[i]) == slot.sequence) {
        slot.connection = connection;
        continue;
      }
      if ((full |= !push(i, BLINK_EVENT_LOST, 0, nullptr, 0))) break;  // the rest in the next cycle
      end(i, Phase::kCancelled, BLINK_COMMAND_CANCEL);
    }
    regroup();
    if (pushed_) wake();
  } else {
    urgent_.clear();
    flowing_.clear();
  }
  if (!full) resolved_ = connection;
  return !full;
}

void TokenReader::poll(uint64_t now) {
  behind_ = false;
  const size_t n_flowing = flowing_.size();
  visiting_.assign(urgent_.begin(), urgent_.end());
  for (size_t i = 0; i < n_flowing; ++i) visiting_.push_back(flowing_[(cursor_ + i) % n_flowing]);
  if (visiting_.empty()) return;
  for (uint32_t& index : visiting_) index += first_slot_;
  if (!link_.gather(header_.progress_offset, visiting_.data(), visiting_.size(), entries_.data())) {
    behind_ = true;
    return;
  }
  budget_ = options_.records_per_cycle;
  pushed_ = 0;
  size_t visited = 0;
  for (; visited < visiting_.size() && budget_; ++visited) visit(visiting_[visited] - first_slot_, entries_[visited]);
  behind_ |= visited < visiting_.size();
  if (n_flowing && visited > urgent_.size()) cursor_ = (cursor_ + visited - urgent_.size()) % n_flowing;
  if (regroup_) regroup();
  ++counters_.cycles;
  if (!pushed_) return;
  // The shortest recent time between bursts: at once down, slowly up.
  const uint64_t gap = now - last_arrival_;
  if (gap > options_.spin_ns) period_ = std::min(gap, period_ + period_ / 8 + options_.min_sleep_ns);
  last_arrival_ = now;
  wake();
}

void TokenReader::wake() {
  pushed_ = 0;
  if (signalled_.exchange(true)) return;  // the event loop has not come yet: it will find this batch as well
  ++counters_.wakes;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(eventfd_, &one, sizeof(one));
}

void TokenReader::visit(uint32_t index, const blink_progress& entry) {
  Slot& slot = slots_[index];
  const Status status = unpack_status(entry.status);
  // Another sequence: the scheduler has not met the submission yet. EMPTY before the release: the lease is
  // gone, see watch.
  if (status.sequence != slot.sequence) return;
  if (!slot.admitted && status.state > BLINK_STATE_PREFILL_PENDING) slot.admitted = now_;
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

void TokenReader::end(uint32_t index, Phase phase, uint32_t command) {
  slots_[index].phase = phase;
  link_.publish(header_.requests_offset + (first_slot_ + index) * 8ull,
                request_word(slots_[index].sequence, command, lease_.epoch()));
}

void TokenReader::regroup() {
  regroup_ = false;
  cursor_ = 0;
  visiting_.assign(urgent_.begin(), urgent_.end());
  visiting_.insert(visiting_.end(), flowing_.begin(), flowing_.end());
  urgent_.clear();
  flowing_.clear();
  for (uint32_t index : visiting_) {
    if (slots_[index].phase == Phase::kIdle) continue;
    (slots_[index].next ? flowing_ : urgent_).push_back(index);
  }
}

void TokenReader::watch() {
  if (now_ < lease_.next_tick()) return;
  if (!lease_.tick(now_)) {
    // The scheduler has cancelled everything of this lease and owns its slots: not one more word may be
    // written (F4).
    urgent_.clear();
    flowing_.clear();
  }
  unreported_ = true;
}

// Tells what the last look saw. That the scheduler has ended is told only when everything that it had published
// before was delivered: whoever learns of the end fails what is still open.
void TokenReader::report() {
  if (!unreported_ || (behind_ && lease_.scheduler_ended())) return;
  unreported_ = false;
  std::lock_guard<std::mutex> lock(health_mutex_);
  health_ = counters_;
  lease_.report(&health_);
}

// Adaptive polling: without a pause while a burst lasts; then not before the next one is due, steps being
// regular; from then on after an eighth of the time it is overdue, so that what arrives waits little compared
// with what it has already waited. A first token has no due time.
void TokenReader::pause(uint64_t now, bool up) {
  const uint64_t silence = now - std::min(now, last_arrival_);
  const bool active = up && !(urgent_.empty() && flowing_.empty());
  if (active && silence < options_.spin_ns) {
    std::this_thread::yield();
    return;
  }
  uint64_t sleep = up ? lease_.next_tick() - std::min(now, lease_.next_tick()) : options_.max_sleep_ns;
  if (active) {
    const uint64_t due = urgent_.empty() ? period_ - period_ / 16 : 0;
    const uint64_t wanted = silence < due ? due - silence : (silence - due) / 8;
    sleep = std::min(sleep, std::clamp(wanted, options_.min_sleep_ns, options_.max_sleep_ns));
  }
  std::unique_lock<std::mutex> lock(inbox_mutex_);
  inbox_ready_.wait_for(lock, std::chrono::nanoseconds(sleep), [this] { return stopping_ || !inbox_.empty(); });
}

}  // namespace blink
