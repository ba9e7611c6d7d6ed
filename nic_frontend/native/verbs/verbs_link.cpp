#include "nic_frontend/native/verbs/verbs_link.h"

#include <cstdio>

#include "nic_frontend/native/verbs/read_queue.h"
#include "nic_frontend/native/verbs/write_queue.h"

namespace blink {
namespace {

// Everything of one connection, released together.
struct Connection {
  Connection(const DeviceChoice& choice, uint32_t number)
      : number(number),
        device(choice),
        endpoint(device, WorkQueue::kDepth, 0),
        submission(device, endpoint.submission, fate),
        retrieval(device, endpoint.retrieval, fate) {}

  ~Connection() {
    // A word that was just published, such as the end of a lease, is not to be lost with the queue pair.
    if (connected && !fate.broken()) submission.settle();
  }

  void breaks(const std::string& why) {
    fate.breaks(why);
    endpoint.submission.stop();
    endpoint.retrieval.stop();
  }

  const uint32_t number;
  Device device;
  Endpoint endpoint;
  Fate fate;
  WriteQueue submission;
  ReadQueue retrieval;
  bool connected = false;
};

// All writes go over one queue pair, which keeps the order of those to one word, and all reads over the other, so
// that bulk reads never hold up a submission (V2; paper section 4.4, "RDMA datapath"). Whoever reads, which the token
// reader's thread does all the time, also takes the completions of writes (V9).
class VerbsLink final : public Link {
 public:
  bool read(uint64_t offset, uint64_t* to, size_t words) override {
    const auto connection = current();
    if (!connection) return false;
    connection->submission.progress();
    return connection->retrieval.read(offset, to, words * 8);
  }

  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) override {
    const auto connection = current();
    if (!connection) return false;
    connection->submission.progress();
    return connection->retrieval.gather(table, entries, n, to);
  }

  void write(const Piece& piece) override {
    if (const auto connection = current()) connection->submission.write(piece);
  }

  void publish(uint64_t offset, uint64_t word) override {
    if (const auto connection = current()) connection->submission.publish(offset, word);
  }

  uint32_t submit(const Submission* burst, size_t n) override {
    const auto connection = current();
    if (!connection) return 0;
    connection->submission.submit(burst, n);
    return connection->number;
  }

  bool go_on_writing() override {
    const auto connection = current();
    return connection && connection->submission.progress();
  }

  bool down() const override {
    const auto connection = current();
    return !connection || connection->fate.broken();
  }

  uint32_t connections() const override { return connections_.load(std::memory_order_acquire); }

  blink_rdma_address prepare(const DeviceChoice& choice) {
    next_ = nullptr;  // before the device is opened again
    next_ = std::make_shared<Connection>(choice, connections_ + 1);
    return next_->endpoint.address();
  }

  void connect(const blink_rdma_address& theirs, const RemoteRegion& region) {
    next_->endpoint.connect(theirs);
    next_->submission.open(region);
    next_->retrieval.open(region);
    next_->connected = true;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      current_.swap(next_);
      connections_.fetch_add(1, std::memory_order_release);
    }
    next_ = nullptr;  // without the lock: it takes the device a while to take a connection down
  }

  void breaks(const std::string& why) {
    if (const auto connection = current()) connection->breaks(why);
  }

  std::string why_down() const {
    const auto connection = current();
    return connection ? connection->fate.why() : "the connection has not been made yet";
  }

 private:
  std::shared_ptr<Connection> current() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }

  mutable std::mutex mutex_;  // guards current_
  std::shared_ptr<Connection> current_, next_;
  std::atomic<uint32_t> connections_{0};
};

VerbsLink& verbs(blink_link* link) {
  return static_cast<VerbsLink&>(*link->link);
}

void tell(char* error, const std::string& what) {
  std::snprintf(error, BLINK_VERBS_ERROR_BYTES, "%s", what.c_str());
}

}  // namespace
}  // namespace blink

extern "C" {

blink_link* blink_verbs_open(void) {
  return new blink_link{std::make_unique<blink::VerbsLink>()};
}

int blink_verbs_prepare(blink_link* link, const char* device, int32_t gid_index, const char* local_address,
                        blink_rdma_address* ours, char* error) {
  try {
    *ours = blink::verbs(link).prepare({device, gid_index, local_address});
    return 0;
  } catch (const std::exception& failure) {
    blink::tell(error, failure.what());
    return 1;
  }
}

int blink_verbs_connect(blink_link* link, const blink_rdma_address* theirs, uint64_t address, uint32_t key,
                        uint32_t read_back, char* error) {
  try {
    blink::verbs(link).connect(*theirs, {address, key, read_back != 0});
    return 0;
  } catch (const std::exception& failure) {
    blink::tell(error, failure.what());
    return 1;
  }
}

void blink_verbs_break(blink_link* link, const char* why) {
  blink::verbs(link).breaks(why);
}

int blink_verbs_down(blink_link* link, char* error) {
  if (!blink::verbs(link).down()) return 0;
  blink::tell(error, blink::verbs(link).why_down());
  return 1;
}

}  // extern "C"
