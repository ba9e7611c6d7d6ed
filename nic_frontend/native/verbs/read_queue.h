// The queue of a connection over which everything is read. Whoever reads waits for what it reads.
#ifndef BLINK_FRONTEND_VERBS_READ_QUEUE_H
#define BLINK_FRONTEND_VERBS_READ_QUEUE_H

#include <mutex>

#include "nic_frontend/native/verbs/work_queue.h"

namespace blink {

// Thread-safe. All return false when the connection has broken, within kCompletionDeadlineNs.
class ReadQueue {
 public:
  ReadQueue(const Device& device, QueuePair& pair, Fate& fate);

  void open(const RemoteRegion& region) { queue_.open(region); }

  bool read(uint64_t offset, void* to, size_t bytes);
  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to);

 private:
  bool fetch(uint64_t offset, size_t bytes);
  bool wait();

  Fate& fate_;
  std::mutex mutex_;  // guards the queue
  WorkQueue queue_;
};

}  // namespace blink

#endif  // BLINK_FRONTEND_VERBS_READ_QUEUE_H
