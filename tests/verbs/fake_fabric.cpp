#include "tests/verbs/fake_fabric.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake {

Fabric fabric;

namespace {

constexpr size_t kBurst = 64;  // words that reach memory in one go
// How long memory shows a write that has overtaken a READ without what the READ waits for: long enough that whoever
// polls that memory looks once, also where it shares its core with others.
constexpr std::chrono::microseconds kShown{200};

thread_local std::mt19937_64 dice(std::random_device{}());

bool chance(uint64_t one_in) {
  return one_in && dice() % one_in == 0;
}

// Where that is in this process, or nullptr if the region does not allow it. fabric.mutex is held.
uint8_t* place(uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = fabric.regions.find(key);
  if (found == fabric.regions.end() || (found->second->access & access) != access) return nullptr;
  const Region& region = *found->second;
  if (address < region.begin || address + bytes > region.begin + region.mr.length) return nullptr;
  return region.memory + (address - region.begin);
}

uint64_t remote_place(const Request& request) {
  const int access = request.wr.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  const auto& where = request.wr.wr.rdma;
  return reinterpret_cast<uint64_t>(place(where.rkey, where.remote_addr, request.piece.length, access));
}

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

}  // namespace

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
  const size_t bytes = request.piece.length;
  const bool read = request.wr.opcode == IBV_WR_RDMA_READ;
  const uint64_t remote = remote_place(request);
  if (!remote) return false;
  const uint8_t* from =
      request.inlined.empty() ? reinterpret_cast<uint8_t*>(request.piece.addr) : request.inlined.data();
  if (request.inlined.empty() &&
      !place(request.piece.lkey, request.piece.addr, bytes, read ? IBV_ACCESS_LOCAL_WRITE : 0))
    return false;
  const bool breaks = chance(fabric.break_one_in);
  if (read) {
    if (next && next->wr.opcode == IBV_WR_RDMA_WRITE && !(next->wr.send_flags & IBV_SEND_FENCE) && chance(2)) {
      const uint64_t written = remote_place(*next);
      if (!written) return false;
      ++fabric.overtaken;
      const uint8_t* early =
          next->inlined.empty() ? reinterpret_cast<uint8_t*>(next->piece.addr) : next->inlined.data();
      std::vector<PendingWord> held;
      held.swap(responder->pending);
      store(written, early, next->piece.length, responder, SIZE_MAX);
      settle_all(responder);
      std::this_thread::sleep_for(kShown);
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
  const bool write = request.wr.opcode == IBV_WR_RDMA_WRITE;
  const auto delay = std::chrono::microseconds(write ? fabric.write_delay_us.load() : 0);
  queue->found.push_back({completion, this, request.number, std::chrono::steady_clock::now() + delay});
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

}  // namespace fake
