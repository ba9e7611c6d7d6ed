// One queue pair of the frontend with its staging buffer: everything that is posted, and every wait for it.
#ifndef BLINK_FRONTEND_VERBS_CHANNEL_H
#define BLINK_FRONTEND_VERBS_CHANNEL_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nic_frontend/native/link.h"
#include "ringbuffer/rdma/endpoint.h"

namespace blink {

// The region as the backend registered it.
struct RemoteRegion {
  uint64_t address = 0;
  uint32_t key = 0;
  bool read_back = true;  // V3
};

// What the two channels of a connection share: whether it has broken, and why.
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

// Thread-safe. At most one signalled work request is under way: a wait is for that one, and its completion
// implies those before it (InfiniBand 10.8.3: work requests of a queue pair complete in order).
class Channel {
 public:
  static constexpr uint32_t kDepth = 512;  // work requests
  static constexpr size_t kStagingBytes = 1 << 19;

  Channel(const Device& device, QueuePair& pair, Fate& fate);

  // To be called once the queue pair is connected, before anything else.
  void open(const RemoteRegion& region) { region_ = region; }

  // All return false when the connection has broken, within kDeadlineNs.
  bool read(uint64_t offset, void* to, size_t bytes);
  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to);
  bool write(const Piece& piece);
  bool publish(uint64_t offset, uint64_t word);
  bool submit(const Submission* burst, size_t n);
  // Everything posted has been acknowledged.
  bool settle();

 private:
  bool add(ibv_wr_opcode opcode, unsigned flags, const void* local, size_t bytes, uint64_t offset);
  bool add_write(const Piece& piece);
  bool add_read_back(uint64_t offset);
  bool add_word(uint64_t offset, uint64_t word);
  bool read_locked(uint64_t offset, size_t bytes);
  bool post(bool signalled);
  bool flush();
  bool wait();

  QueuePair& pair_;
  Fate& fate_;
  RemoteRegion region_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<uint64_t[]> staging_;
  Registration registration_;
  size_t staged_ = 0;            // bytes of the staging buffer that the chain refers to
  std::vector<uint64_t> words_;  // inline data of the chain
  std::vector<ibv_sge> pieces_;
  std::vector<ibv_send_wr> chain_;  // not yet posted
  uint32_t unconfirmed_ = 0;        // posted since the last completion
  bool dirty_ = false;              // payload was written that no word has published
  uint64_t last_written_ = 0;       // offset of its last word
};

}  // namespace blink

#endif  // BLINK_FRONTEND_VERBS_CHANNEL_H
