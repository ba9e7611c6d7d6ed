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
      poll();
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
      pacing_.expect_first_token(now_);
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
    leave_slots();
  }
  if (!full) resolved_ = connection;
  return !full;
}

void TokenReader::poll() {
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
  pacing_.found(now_);
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
  const auto next = flowing_.begin() + long(cursor_);
  visiting_.assign(next, flowing_.end());
  visiting_.insert(visiting_.end(), flowing_.begin(), next);
  visiting_.insert(visiting_.end(), urgent_.begin(), urgent_.end());  // they have just had their turn
  cursor_ = 0;
  urgent_.clear();
  flowing_.clear();
  for (uint32_t index : visiting_) {
    if (slots_[index].phase == Phase::kIdle) continue;
    (slots_[index].next ? flowing_ : urgent_).push_back(index);
  }
}

void TokenReader::leave_slots() {
  urgent_.clear();
  flowing_.clear();
  cursor_ = 0;
}

void TokenReader::watch() {
  if (now_ < lease_.next_tick()) return;
  if (!lease_.tick(now_)) {
    // The scheduler has cancelled everything of this lease and owns its slots: not one more word may be
    // written (F4).
    leave_slots();
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

void TokenReader::pause(uint64_t now, bool up) {
  const bool urgent = !urgent_.empty(), flowing = !flowing_.empty();
  uint64_t sleep = up ? lease_.next_tick() - std::min(now, lease_.next_tick()) : options_.max_sleep_ns;
  if (up && (urgent || flowing)) {
    const uint64_t until_poll = pacing_.sleep(now, urgent, flowing);
    if (until_poll == 0) {
      std::this_thread::yield();
      return;
    }
    sleep = std::min(sleep, until_poll);
  }
  if (up && link_.go_on_writing()) sleep = std::min(sleep, options_.min_sleep_ns);
  std::unique_lock<std::mutex> lock(inbox_mutex_);
  inbox_ready_.wait_for(lock, std::chrono::nanoseconds(sleep), [this] { return stopping_ || !inbox_.empty(); });
}

}  // namespace blink
