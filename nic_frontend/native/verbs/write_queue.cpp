#include "nic_frontend/native/verbs/write_queue.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "nic_frontend/native/clock.h"

namespace blink {
namespace {

constexpr size_t kReadBackBytes = 8;
// So that the queue and the staging ring become free little by little, and not only when a whole burst has arrived.
constexpr uint32_t kBatchesOfRing = 8;

uint64_t last_word(const Piece& piece) {
  return (piece.offset + piece.bytes - 8) & ~uint64_t(7);
}

}  // namespace

WriteQueue::WriteQueue(const Device& device, QueuePair& pair, Fate& fate, size_t staging_bytes)
    : fate_(fate), ring_bytes_(staging_bytes - kReadBackBytes), queue_(device, pair, fate, staging_bytes) {}

void WriteQueue::write(const Piece& piece) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!advance()) return;
  put_payload(piece);
  dirty_ = true;
  last_written_ = last_word(piece);
  post();
}

void WriteQueue::publish(uint64_t offset, uint64_t word) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!advance()) return;
  if (dirty_ && queue_.region().read_back) put(Kind::kReadBack, last_written_, 0);
  dirty_ = false;
  put(Kind::kWord, offset, word);
  post();
}

// One READ suffices for the burst: it follows all payloads, and all words wait for it (V3).
void WriteQueue::submit(const Submission* burst, size_t n) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (n == 0 || !advance()) return;
  for (size_t i = 0; i < n; ++i) {
    put_payload(burst[i].prompt);
    put_payload(burst[i].descriptor);
  }
  if (queue_.region().read_back) put(Kind::kReadBack, last_word(burst[n - 1].descriptor), 0);
  dirty_ = false;
  for (size_t i = 0; i < n; ++i) put(Kind::kWord, burst[i].word_offset, burst[i].word);
  post();
}

bool WriteQueue::progress() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!batches_.empty() && advance()) post();
  return !waiting_.empty();
}

bool WriteQueue::settle() {
  const uint64_t begin = monotonic_ns();
  for (;;) {
    const bool late = monotonic_ns() - begin > kCompletionDeadlineNs;
    progress();
    if (fate_.broken()) return false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (batches_.empty()) return true;
    }
    if (late) return false;
    std::this_thread::yield();
  }
}

// Makes room, and adds what has waited for it. False when the connection has broken. The time is read before the
// completions are looked at: a process that was stopped in between blames nobody.
bool WriteQueue::advance() {
  const uint64_t now = monotonic_ns();
  while (!batches_.empty() && queue_.completed()) {
    in_flight_ -= batches_.front().requests;
    used_ -= batches_.front().bytes;
    batches_.pop_front();
  }
  if (!batches_.empty() && now - batches_.front().posted > kCompletionDeadlineNs)
    fate_.breaks("a write was not acknowledged in time");
  if (fate_.broken()) {
    waiting_.clear();
    return false;
  }
  while (!waiting_.empty() && add_waiting(&waiting_.front())) waiting_.pop_front();
  return true;
}

void WriteQueue::put_payload(const Piece& piece) {
  const auto from = static_cast<const uint8_t*>(piece.from);
  const size_t staged = waiting_.empty() ? stage(piece.offset, from, piece.bytes) : 0;
  if (staged == piece.bytes) return;
  waiting_.push_back({Kind::kPayload, piece.offset + staged, 0, {from + staged, from + piece.bytes}, 0});
}

void WriteQueue::put(Kind kind, uint64_t offset, uint64_t word) {
  if (waiting_.empty() && add(kind, offset, word)) return;
  waiting_.push_back({kind, offset, word, {}, 0});
}

// As much of a payload as there is room for; returns how much that is. It may be cut anywhere, since nobody reads it
// before a word behind all of it has been published.
size_t WriteQueue::stage(uint64_t offset, const uint8_t* from, size_t bytes) {
  size_t staged = 0;
  while (staged < bytes && in_flight_ < WorkQueue::kDepth && used_ < ring_bytes_) {
    const size_t n = std::min({bytes - staged, ring_bytes_ - head_, ring_bytes_ - used_});
    uint8_t* at = queue_.staging() + head_;
    std::memcpy(at, from + staged, n);
    queue_.add_write(at, n, offset + staged);
    const size_t taken = (n + 7) & ~size_t(7);
    head_ = (head_ + taken) % ring_bytes_;
    added(taken);
    staged += n;
  }
  return staged;
}

// False: there is no room.
bool WriteQueue::add(Kind kind, uint64_t offset, uint64_t word) {
  if (in_flight_ == WorkQueue::kDepth) return false;
  if (kind == Kind::kReadBack)
    queue_.add_read(queue_.staging() + ring_bytes_, kReadBackBytes, offset);
  else
    queue_.add_word(offset, word);
  added(0);
  return true;
}

// False: it, or a part of it, still waits.
bool WriteQueue::add_waiting(Waiting* waiting) {
  if (waiting->kind != Kind::kPayload) return add(waiting->kind, waiting->offset, waiting->word);
  const size_t left = waiting->payload.size() - waiting->staged;
  const size_t staged = stage(waiting->offset + waiting->staged, waiting->payload.data() + waiting->staged, left);
  waiting->staged += staged;
  return staged == left;
}

void WriteQueue::added(size_t bytes) {
  ++in_flight_;
  used_ += bytes;
  ++batch_.requests;
  batch_.bytes += bytes;
  if (batch_.requests >= WorkQueue::kDepth / kBatchesOfRing || batch_.bytes >= ring_bytes_ / kBatchesOfRing)
    end_batch();
}

void WriteQueue::end_batch() {
  queue_.signal();
  batch_.posted = monotonic_ns();
  batches_.push_back(batch_);
  batch_ = {};
}

void WriteQueue::post() {
  if (batch_.requests) end_batch();
  queue_.post();
}

}  // namespace blink
