#include "nic_frontend/native/verbs/read_queue.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "nic_frontend/native/clock.h"

namespace blink {
namespace {

constexpr size_t kStagingBytes = 1 << 19;
constexpr int kSpins = 256;  // polls before the processor is offered to others

static_assert(kStagingBytes >= BLINK_MAX_SLOTS * sizeof(blink_progress), "a gather is one READ");

}  // namespace

ReadQueue::ReadQueue(const Device& device, QueuePair& pair, Fate& fate)
    : fate_(fate), queue_(device, pair, fate, kStagingBytes) {}

bool ReadQueue::read(uint64_t offset, void* to, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, kStagingBytes);
    if (!fetch(offset + done, n)) return false;
    std::memcpy(static_cast<uint8_t*>(to) + done, queue_.staging(), n);
    done += n;
  }
  return true;
}

bool ReadQueue::gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) {
  if (n == 0) return !fate_.broken();
  const auto [first, last] = std::minmax_element(entries, entries + n);
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t span = (*last - *first + 1) * sizeof(blink_progress);
  if (!fetch(table + *first * sizeof(blink_progress), span)) return false;
  const auto found = reinterpret_cast<const blink_progress*>(queue_.staging());
  for (size_t i = 0; i < n; ++i) to[i] = found[entries[i] - *first];
  return true;
}

// Into the start of the staging buffer.
bool ReadQueue::fetch(uint64_t offset, size_t bytes) {
  if (fate_.broken()) return false;
  queue_.add_read(queue_.staging(), bytes, offset);
  queue_.signal();
  queue_.post();
  return wait();
}

// The time is read before the queue is polled: a process that was stopped in between blames nobody.
bool ReadQueue::wait() {
  const uint64_t begin = monotonic_ns();
  for (int polls = 0; !fate_.broken(); ++polls) {
    const bool late = polls % 64 == 63 && monotonic_ns() - begin > kCompletionDeadlineNs;
    if (queue_.completed()) return true;
    if (late) fate_.breaks("a read did not complete in time");
    if (polls > kSpins) std::this_thread::yield();
  }
  return false;
}

}  // namespace blink
