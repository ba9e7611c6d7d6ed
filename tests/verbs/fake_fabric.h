// A fabric of queue pairs without a device: two ends in one process, and memory that orders remote writes no more than
// the InfiniBand specification and PCIe make it. rdma_rxe executes in order and cannot show a protocol that relies on
// more than that; this can.
//
//   A WRITE's bytes reach memory as aligned 8-byte words, in any order, at any later time, even after its
//   completion. Words of several WRITEs mix. Only writes to one word keep their order.
//   A READ waits for every WRITE posted before it on its queue pair; its words are read in any order.
//   A WRITE without IBV_SEND_FENCE may overtake a READ posted before it.
//   A completion may be reported late.
//   A queue pair may break between any two words. What then has not reached the memory may still do so, or never
//   will, until the responder's queue pair has been destroyed.
#pragma once
#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace fake {

struct PendingWord {
  uint8_t* to;
  size_t bytes;  // 8, less at the ends of an unaligned WRITE
  uint8_t data[8];
};

struct Request {
  ibv_send_wr wr;
  ibv_sge piece;
  std::vector<uint8_t> inlined;
  uint64_t number;  // of the work requests of its pair
};

struct Pair;

// A registered region: remote addresses from `begin` are those of `memory`, a dma-buf's being mapped for it.
struct Region {
  ibv_mr mr;
  uint64_t begin;
  uint8_t* memory;
  int access;
  uint64_t file, file_offset;  // the inode and the place in it, of a dma-buf
};

struct Fabric {
  std::mutex mutex;  // guards all but a pair's own parts
  std::map<uint32_t, Pair*> pairs;
  std::map<uint32_t, Region*> regions;
  uint32_t next_number = 100;
  uint32_t next_key = 1;
  std::atomic<uint32_t> break_one_in{0};
  std::atomic<bool> no_dmabuf{false};
  std::atomic<uint32_t> write_delay_us{0};  // until a completion of a WRITE is reported
  std::atomic<uint64_t> overtaken{0}, broken{0}, words_together{0}, doorbells{0}, reads{0}, writes{0};
  ibv_context context{};
};
extern Fabric fabric;

struct Pair {
  ibv_qp qp{};
  ibv_cq* completions;
  uint32_t peer = 0;
  std::atomic<int> state{IBV_QPS_RESET};

  std::mutex mutex;  // guards the queue
  std::condition_variable ready;
  std::deque<Request> queue;
  bool stopping = false;
  uint32_t depth;
  // Work requests occupy the queue until they, or a later one, have been reported as completed.
  uint64_t posted = 0;
  std::atomic<uint64_t> reported{0};

  // Of the responder: what its peer has sent and memory does not show yet. Guarded by fabric.mutex.
  std::vector<PendingWord> pending;
  std::thread thread;

  explicit Pair(const ibv_qp_init_attr& wanted) : completions(wanted.send_cq), depth(wanted.cap.max_send_wr) {}

  void start() { thread = std::thread(&Pair::run, this); }
  void run();
  bool execute(const Request& request, const Request* next);
  void store(uint64_t address, const uint8_t* from, size_t bytes, Pair* to, size_t limit);
  void complete(const Request& request, ibv_wc_status status);
};

struct Completion {
  ibv_wc completion;
  Pair* pair;
  uint64_t number;
  std::chrono::steady_clock::time_point due;
};

struct Queue {
  ibv_cq cq{};
  std::mutex mutex;
  std::deque<Completion> found;
  size_t depth = 0;
};

// What has not reached the memory of `pair` yet does so. fabric.mutex is held.
void settle_all(Pair* pair);

}  // namespace fake
