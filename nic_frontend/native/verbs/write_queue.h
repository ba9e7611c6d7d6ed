// The queue of a connection over which everything is written. Nobody waits for a write: a call copies what it is given,
// posts it and returns (V9).
#ifndef BLINK_FRONTEND_VERBS_WRITE_QUEUE_H
#define BLINK_FRONTEND_VERBS_WRITE_QUEUE_H

#include <deque>
#include <mutex>
#include <vector>

#include "nic_frontend/native/link.h"
#include "nic_frontend/native/verbs/work_queue.h"

namespace blink {

// Thread-safe. What is written over a connection that has broken is lost (V4).
class WriteQueue {
 public:
  static constexpr size_t kStagingBytes = 1 << 20;

  WriteQueue(const Device& device, QueuePair& pair, Fate& fate, size_t staging_bytes = kStagingBytes);

  void open(const RemoteRegion& region) { queue_.open(region); }

  void write(const Piece& piece);
  void publish(uint64_t offset, uint64_t word);
  void submit(const Submission* burst, size_t n);

  // Takes the completions that are there, and posts what has waited for room. To be called again and again; soon, if
  // it returns that something still waits.
  bool progress();
  // Waits until everything has been acknowledged. False when that took longer than kCompletionDeadlineNs, or the
  // connection has broken.
  bool settle();

 private:
  // Work requests of which the last reports its completion, which is that of all.
  struct Batch {
    uint32_t requests = 0;
    size_t bytes = 0;     // of the staging ring
    uint64_t posted = 0;  // when
  };
  enum class Kind : uint8_t { kPayload, kReadBack, kWord };
  // What does not fit into the queue or the staging ring yet.
  struct Waiting {
    Kind kind;
    uint64_t offset, word;
    std::vector<uint8_t> payload;
    size_t staged = 0;  // of the payload
  };

  bool advance();
  void put_payload(const Piece& piece);
  void put(Kind kind, uint64_t offset, uint64_t word);
  size_t stage(uint64_t offset, const uint8_t* from, size_t bytes);
  bool add(Kind kind, uint64_t offset, uint64_t word);
  bool add_waiting(Waiting* waiting);
  void added(size_t bytes);
  void end_batch();
  void post();

  Fate& fate_;
  const size_t ring_bytes_;  // of the staging buffer; behind them is where a read-back goes
  std::mutex mutex_;         // guards what follows
  WorkQueue queue_;
  size_t head_ = 0, used_ = 0;  // of the staging ring: where the next payload goes, and the bytes in use before that
  uint32_t in_flight_ = 0;      // work requests that have not completed, and those of the chain
  Batch batch_;                 // the one that is being made
  std::deque<Batch> batches_;   // that have not completed
  std::deque<Waiting> waiting_;
  bool dirty_ = false;         // payload was written that no word has published
  uint64_t last_written_ = 0;  // offset of its last word
};

}  // namespace blink

#endif  // BLINK_FRONTEND_VERBS_WRITE_QUEUE_H
