// One queue pair of the frontend: its staging buffer, the chain of work requests that is posted next, and completions.
#ifndef BLINK_FRONTEND_VERBS_WORK_QUEUE_H
#define BLINK_FRONTEND_VERBS_WORK_QUEUE_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ringbuffer/rdma/endpoint.h"
#include "ringbuffer/ring.h"

namespace blink {

// Whoever waits longer than that for a completion has lost the lease anyway (V6).
constexpr uint64_t kCompletionDeadlineNs = BLINK_LEASE_TIMEOUT_NS;

// The region as the backend registered it.
struct RemoteRegion {
  uint64_t address = 0;
  uint32_t key = 0;
  bool read_back = true;  // V3
};

// What the two queues of a connection share: whether it has broken, and why.
class Fate {
 public:
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  void breaks(const std::string& why);  // the first reason stays
  std::string why() const;

 private:
  std::atomic<bool> broken_{false};
  mutable std::mutex mutex_;
  std::string why_;
};

// Not thread-safe. Work requests complete in the order in which they were posted (InfiniBand 10.8.3).
class WorkQueue {
 public:
  static constexpr uint32_t kDepth = 512;  // work requests that have not completed, and those of the chain

  WorkQueue(const Device& device, QueuePair& pair, Fate& fate, size_t staging_bytes);

  // To be called once the queue pair is connected, before anything else.
  void open(const RemoteRegion& region) { region_ = region; }

  const RemoteRegion& region() const { return region_; }
  uint8_t* staging() const { return reinterpret_cast<uint8_t*>(staging_.get()); }

  // Append to the chain. `staged` and `to` lie in the staging buffer; offsets are those of the ring.
  void add_write(const uint8_t* staged, size_t bytes, uint64_t offset);
  void add_read(uint8_t* to, size_t bytes, uint64_t offset);
  void add_word(uint64_t offset, uint64_t word);  // inline, and behind all earlier READs
  // The last work request of the chain reports its completion.
  void signal();
  // Posts the chain in one call, which rings the doorbell once.
  void post();
  // Takes the next reported completion. False: there is none yet, or the connection has broken.
  bool completed();

 private:
  void add(ibv_wr_opcode opcode, unsigned flags, const void* local, size_t bytes, uint64_t offset);

  QueuePair& pair_;
  Fate& fate_;
  RemoteRegion region_;
  std::unique_ptr<uint64_t[]> staging_;
  Registration registration_;
  std::vector<uint64_t> words_;  // inline data of the chain
  std::vector<ibv_sge> pieces_;
  std::vector<ibv_send_wr> chain_;
};

}  // namespace blink

#endif  // BLINK_FRONTEND_VERBS_WORK_QUEUE_H
