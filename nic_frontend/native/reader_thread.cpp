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

constexpr uint32_t kUnresolved = UINT32_MAX;  // no connection has that number

}  // namespace

void TokenReader::run() {
  prctl(PR_SET_NAME, "token reader");
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
