// libibverbs without a device: two ends in one process, and memory that orders remote writes no more than the
// InfiniBand specification and PCIe make it. rdma_rxe executes in order and cannot show a protocol that relies on
// more than that; this can.
//
//   A WRITE's bytes reach memory as aligned 8-byte words, in any order, at any later time, even after its
//   completion. Words of several WRITEs mix. Only writes to one word keep their order.
//   A READ waits for every WRITE posted before it on its queue pair; its words are read in any order.
//   A WRITE without IBV_SEND_FENCE may overtake a READ posted before it.
//   A queue pair may break between any two words. What then has not reached the memory may still do so, or never
//   will, until the responder's queue pair has been destroyed.
#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/verbs/fake_ibverbs.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

constexpr size_t kBurst = 64;  // words that reach memory in one go

struct PendingWord {
  uint8_t* to;
  size_t bytes;  // 8, less at the ends of an unaligned WRITE
  uint8_t data[8];
};

struct Request {
  ibv_send_wr wr;
  ibv_sge piece;
  std::vector<uint8_t> inlined;
};

struct Pair;

struct Fabric {
  std::mutex mutex;  // guards all but a pair's own parts
  std::map<uint32_t, Pair*> pairs;
  std::map<uint32_t, ibv_mr*> regions;
  std::map<uint32_t, int> accesses;
  uint32_t next_number = 100;
  uint32_t next_key = 1;
  std::atomic<uint32_t> break_one_in{0};
  std::atomic<uint64_t> overtaken{0}, broken{0}, words_together{0};
  ibv_context context{};
} fabric;

thread_local std::mt19937_64 dice(std::random_device{}());

bool chance(uint64_t one_in) {
  return one_in && dice() % one_in == 0;
}

// Valid for as long as fabric.mutex is held.
ibv_mr* region(uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = fabric.regions.find(key);
  if (found == fabric.regions.end() || (fabric.accesses[key] & access) != access) return nullptr;
  const uint64_t begin = reinterpret_cast<uint64_t>(found->second->addr);
  return address >= begin && address + bytes <= begin + found->second->length ? found->second : nullptr;
}

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

struct Queue {
  ibv_cq cq{};
  std::mutex mutex;
  std::deque<ibv_wc> found;
  size_t depth = 0;
};

// The first pending write to the word of a random one: any order but that of one word. fabric.mutex is held.
void settle_one(Pair* pair) {
  const size_t chosen = dice() % pair->pending.size();
  const auto word = [&](const PendingWord& w) { return reinterpret_cast<uint64_t>(w.to) / 8; };
  size_t first = 0;
  while (word(pair->pending[first]) != word(pair->pending[chosen])) ++first;
  const PendingWord write = pair->pending[first];
  pair->pending.erase(pair->pending.begin() + long(first));
  if (write.bytes == 8) {
    uint64_t value;
    std::memcpy(&value, write.data, 8);
    __atomic_store_n(reinterpret_cast<uint64_t*>(write.to), value, __ATOMIC_RELEASE);
  } else {
    for (size_t i = 0; i < write.bytes; ++i) __atomic_store_n(write.to + i, write.data[i], __ATOMIC_RELEASE);
  }
}

void settle_all(Pair* pair) {
  while (!pair->pending.empty()) settle_one(pair);
}

void Pair::store(uint64_t address, const uint8_t* from, size_t bytes, Pair* to, size_t limit) {
  for (size_t done = 0; done < bytes && limit; --limit) {
    const size_t n = std::min(bytes - done, 8 - (address + done) % 8);
    PendingWord word{reinterpret_cast<uint8_t*>(address + done), n, {}};
    std::memcpy(word.data, from + done, n);
    to->pending.push_back(word);
    done += n;
  }
}

bool Pair::execute(const Request& request, const Request* next) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  const auto found = fabric.pairs.find(peer);
  if (found == fabric.pairs.end() || found->second->state == IBV_QPS_ERR) return false;
  Pair* responder = found->second;
  const uint64_t remote = request.wr.wr.rdma.remote_addr;
  const uint32_t key = request.wr.wr.rdma.rkey;
  const size_t bytes = request.piece.length;
  const bool read = request.wr.opcode == IBV_WR_RDMA_READ;
  if (!region(key, remote, bytes, read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) return false;
  const uint8_t* from =
      request.inlined.empty() ? reinterpret_cast<uint8_t*>(request.piece.addr) : request.inlined.data();
  if (request.inlined.empty() &&
      !region(request.piece.lkey, request.piece.addr, bytes, read ? IBV_ACCESS_LOCAL_WRITE : 0))
    return false;
  const bool breaks = chance(fabric.break_one_in);
  if (read) {
    if (next && next->wr.opcode == IBV_WR_RDMA_WRITE && !(next->wr.send_flags & IBV_SEND_FENCE) && chance(2)) {
      ++fabric.overtaken;
      const uint8_t* early =
          next->inlined.empty() ? reinterpret_cast<uint8_t*>(next->piece.addr) : next->inlined.data();
      std::vector<PendingWord> held;
      held.swap(responder->pending);
      store(next->wr.wr.rdma.remote_addr, early, next->piece.length, responder, SIZE_MAX);
      settle_all(responder);
      responder->pending.swap(held);
    }
    settle_all(responder);
    if (breaks) return false;
    std::vector<size_t> order(bytes / 8);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), dice);
    for (size_t i : order) {
      const uint64_t value = __atomic_load_n(reinterpret_cast<uint64_t*>(remote) + i, __ATOMIC_ACQUIRE);
      std::memcpy(reinterpret_cast<uint8_t*>(request.piece.addr) + i * 8, &value, 8);
    }
    return true;
  }
  store(remote, from, bytes, responder, breaks ? dice() % (bytes / 8 + 1) : SIZE_MAX);
  return !breaks;
}

void Pair::complete(const Request& request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && !(request.wr.send_flags & IBV_SEND_SIGNALED)) return;
  auto queue = reinterpret_cast<Queue*>(completions);
  ibv_wc completion{};
  completion.wr_id = request.wr.wr_id;
  completion.status = status;
  std::lock_guard<std::mutex> lock(queue->mutex);
  if (queue->found.size() >= queue->depth) {
    std::fprintf(stderr, "the completion queue overflows\n");
    std::abort();
  }
  queue->found.push_back(completion);
}

void Pair::run() {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex);
    ready.wait_for(lock, std::chrono::microseconds(50), [this] { return stopping || !queue.empty(); });
    if (stopping) return;
    if (!queue.empty()) {
      const Request request = queue.front();
      const Request next = queue.size() > 1 ? queue[1] : request;
      const bool more = queue.size() > 1;
      lock.unlock();
      ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
      if (state == IBV_QPS_RTS) {
        const bool done = execute(request, more ? &next : nullptr);
        if (!done) {
          state = IBV_QPS_ERR;
          ++fabric.broken;
        }
        status = done ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
      }
      lock.lock();
      queue.pop_front();
      lock.unlock();
      complete(request, status);
    } else {
      lock.unlock();
    }
    std::lock_guard<std::mutex> fabric_lock(fabric.mutex);
    const auto found = fabric.pairs.find(peer);
    if (found == fabric.pairs.end() || chance(2)) continue;
    for (size_t n = dice() % kBurst; n && !found->second->pending.empty(); --n) settle_one(found->second);
  }
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  auto pair = reinterpret_cast<Pair*>(qp);
  uint64_t words = 0;
  for (; wr; wr = wr->next) {
    Request request{*wr, wr->sg_list[0], {}};
    if (wr->send_flags & IBV_SEND_INLINE) {
      ++words;
      auto from = reinterpret_cast<const uint8_t*>(request.piece.addr);
      request.inlined.assign(from, from + request.piece.length);
    }
    std::lock_guard<std::mutex> lock(pair->mutex);
    if (pair->queue.size() == pair->depth) {
      *bad = wr;
      return ENOMEM;
    }
    pair->queue.push_back(request);
    pair->ready.notify_one();
  }
  if (words > fabric.words_together) fabric.words_together = words;
  return 0;
}

int poll_cq(ibv_cq* cq, int n, ibv_wc* to) {
  auto queue = reinterpret_cast<Queue*>(cq);
  std::lock_guard<std::mutex> lock(queue->mutex);
  int found = 0;
  for (; found < n && !queue->found.empty(); ++found) {
    to[found] = queue->found.front();
    queue->found.pop_front();
  }
  return found;
}

ibv_device the_device;
const uint8_t kGid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

ibv_mr* add_region(ibv_pd* pd, void* address, size_t bytes, int access) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  auto made = new ibv_mr{};
  made->pd = pd;
  made->addr = address;
  made->length = bytes;
  made->lkey = made->rkey = fabric.next_key++;
  fabric.regions[made->lkey] = made;
  fabric.accesses[made->lkey] = access;
  return made;
}

}  // namespace

extern "C" {

void fake_verbs_break_one_in(uint32_t work_requests) {
  fabric.break_one_in = work_requests;
}

void fake_verbs_counts(struct fake_verbs_counts* counts) {
  *counts = {fabric.broken.exchange(0), fabric.overtaken.exchange(0), fabric.words_together.exchange(0)};
}

#undef ibv_get_device_list
ibv_device** ibv_get_device_list(int* n) {
  *n = 1;
  return new ibv_device*[2]{&the_device, nullptr};
}
void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}
const char* ibv_get_device_name(ibv_device*) {
  return "fake0";
}
ibv_context* ibv_open_device(ibv_device*) {
  auto context = new ibv_context{};
  context->ops.post_send = post_send;
  context->ops.poll_cq = poll_cq;
  return context;
}
int ibv_close_device(ibv_context* context) {
  delete context;
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, struct _compat_ibv_port_attr* found) {
  auto attributes = reinterpret_cast<ibv_port_attr*>(found);
  attributes->state = IBV_PORT_ACTIVE;
  attributes->active_mtu = IBV_MTU_1024;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  attributes->gid_tbl_len = 1;
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
  if (index) return ENODATA;
  *entry = {};
  std::memcpy(entry->gid.raw, kGid, sizeof(kGid));
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return new ibv_pd{context, 0};
}
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  return add_region(pd, address, bytes, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t, unsigned access) {
  return add_region(pd, address, bytes, int(access));
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
int ibv_dereg_mr(ibv_mr* mr) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  fabric.regions.erase(mr->lkey);
  delete mr;
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int depth, void*, ibv_comp_channel*, int) {
  auto queue = new Queue;
  queue->cq.context = context;
  queue->depth = size_t(depth);
  return &queue->cq;
}
int ibv_destroy_cq(ibv_cq* cq) {
  delete reinterpret_cast<Queue*>(cq);
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  auto pair = new Pair(*wanted);
  pair->qp.context = pd->context;
  std::lock_guard<std::mutex> lock(fabric.mutex);
  pair->qp.qp_num = fabric.next_number++;
  fabric.pairs[pair->qp.qp_num] = pair;
  return &pair->qp;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  auto pair = reinterpret_cast<Pair*>(qp);
  if (mask & IBV_QP_DEST_QPN) pair->peer = attributes->dest_qp_num;
  pair->state = attributes->qp_state;
  if (attributes->qp_state == IBV_QPS_RTS) pair->start();
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  auto pair = reinterpret_cast<Pair*>(qp);
  {
    std::lock_guard<std::mutex> lock(pair->mutex);
    pair->stopping = true;
  }
  pair->ready.notify_one();
  if (pair->thread.joinable()) pair->thread.join();
  std::lock_guard<std::mutex> lock(fabric.mutex);
  settle_all(pair);  // what was on its way into memory is there by now, and what was not never will be
  fabric.pairs.erase(qp->qp_num);
  delete pair;
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "other";
}

}  // extern "C"
