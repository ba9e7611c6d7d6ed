#include "nic_frontend/native/verbs/channel.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "nic_frontend/native/clock.h"

namespace blink {
namespace {

// Whoever waits longer than that has lost the lease anyway.
constexpr uint64_t kDeadlineNs = BLINK_LEASE_TIMEOUT_NS;
constexpr int kSpins = 256;  // polls before the processor is offered to others

static_assert(Channel::kStagingBytes >= BLINK_MAX_SLOTS * sizeof(blink_progress), "a gather is one READ");

uint64_t last_word(const Piece& piece) {
  return (piece.offset + piece.bytes - 8) & ~uint64_t(7);
}

}  // namespace

void Fate::breaks(const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (broken_) return;
  why_ = why;
  broken_.store(true, std::memory_order_release);
}

std::string Fate::why() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}

Channel::Channel(const Device& device, QueuePair& pair, Fate& fate)
    : pair_(pair),
      fate_(fate),
      staging_(new uint64_t[kStagingBytes / 8]),
      registration_(device, staging_.get(), kStagingBytes, IBV_ACCESS_LOCAL_WRITE),
      words_(kDepth),
      pieces_(kDepth) {
  chain_.reserve(kDepth);
}

bool Channel::read(uint64_t offset, void* to, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, kStagingBytes);
    if (!read_locked(offset + done, n)) return false;
    std::memcpy(static_cast<uint8_t*>(to) + done, staging_.get(), n);
    done += n;
  }
  return true;
}

bool Channel::gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) {
  if (n == 0) return !fate_.broken();
  const auto [first, last] = std::minmax_element(entries, entries + n);
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t span = (*last - *first + 1) * sizeof(blink_progress);
  if (!read_locked(table + *first * sizeof(blink_progress), span)) return false;
  const auto found = reinterpret_cast<const blink_progress*>(staging_.get());
  for (size_t i = 0; i < n; ++i) to[i] = found[entries[i] - *first];
  return true;
}

bool Channel::write(const Piece& piece) {
  std::lock_guard<std::mutex> lock(mutex_);
  dirty_ = true;
  last_written_ = last_word(piece);
  return add_write(piece) && flush();
}

// Unsignalled as a rule: what follows on the queue pair confirms it.
bool Channel::publish(uint64_t offset, uint64_t word) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (dirty_ && region_.read_back && !add_read_back(last_written_)) return false;
  dirty_ = false;
  return add_word(offset, word) && (unconfirmed_ < kDepth / 2 ? post(false) : flush());
}

// One READ suffices for the burst: it follows all payloads, and all words wait for it (V3).
bool Channel::submit(const Submission* burst, size_t n) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    const Submission& s = burst[i];
    if (!add_write(s.prompt) || !add_write(s.descriptor)) return false;
  }
  if (n && region_.read_back && !add_read_back(last_word(burst[n - 1].descriptor))) return false;
  for (size_t i = 0; i < n; ++i)
    if (!add_word(burst[i].word_offset, burst[i].word)) return false;
  return flush();
}

bool Channel::settle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return unconfirmed_ == 0 || read_locked(0, 8);
}

// Into the start of the staging buffer.
bool Channel::read_locked(uint64_t offset, size_t bytes) {
  return add(IBV_WR_RDMA_READ, 0, staging_.get(), bytes, offset) && flush();
}

bool Channel::add_write(const Piece& piece) {
  for (size_t done = 0; done < piece.bytes;) {
    if (staged_ == kStagingBytes && !flush()) return false;
    const size_t n = std::min(piece.bytes - done, kStagingBytes - staged_);
    uint8_t* at = reinterpret_cast<uint8_t*>(staging_.get()) + staged_;
    std::memcpy(at, static_cast<const uint8_t*>(piece.from) + done, n);
    // Before `add`, which may flush and so make all of the buffer free again.
    staged_ += n;
    if (!add(IBV_WR_RDMA_WRITE, 0, at, n, piece.offset + done)) return false;
    done += n;
  }
  return true;
}

bool Channel::add_read_back(uint64_t offset) {
  if (kStagingBytes - staged_ < 8 && !flush()) return false;
  uint8_t* at = reinterpret_cast<uint8_t*>(staging_.get()) + staged_;
  staged_ += 8;
  return add(IBV_WR_RDMA_READ, 0, at, 8, offset);
}

bool Channel::add_word(uint64_t offset, uint64_t word) {
  uint64_t* at = &words_[chain_.size()];
  *at = word;
  return add(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE | IBV_SEND_FENCE, at, 8, offset);
}

bool Channel::add(ibv_wr_opcode opcode, unsigned flags, const void* local, size_t bytes, uint64_t offset) {
  ibv_sge& piece = pieces_[chain_.size()];
  piece = {reinterpret_cast<uint64_t>(local), uint32_t(bytes), registration_.region->lkey};
  ibv_send_wr request{};
  request.opcode = opcode;
  request.send_flags = flags;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = region_.address + offset;
  request.wr.rdma.rkey = region_.key;
  chain_.push_back(request);
  return chain_.size() < kDepth / 2 || flush();
}

// The chain in one call, which rings the doorbell once. At most half the queue is unsignalled, so half is free.
bool Channel::post(bool signalled) {
  const size_t n = chain_.size();
  if (!fate_.broken() && n) {
    for (size_t i = 0; i + 1 < n; ++i) chain_[i].next = &chain_[i + 1];
    if (signalled) chain_.back().send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* refused;
    if (const int error = ibv_post_send(pair_.pair, chain_.data(), &refused))
      fate_.breaks(std::string("a work request was refused: ") + std::strerror(error));
    unconfirmed_ += uint32_t(n);
  }
  chain_.clear();
  return !fate_.broken();
}

bool Channel::flush() {
  const bool wanted = !chain_.empty();
  const bool done = post(true) && (!wanted || wait());
  if (done) unconfirmed_ = 0;
  staged_ = 0;
  return done;
}

bool Channel::wait() {
  const uint64_t begin = monotonic_ns();
  for (int polls = 0; !fate_.broken(); ++polls) {
    ibv_wc completion;
    const int n = ibv_poll_cq(pair_.completions, 1, &completion);
    if (n > 0 && completion.status == IBV_WC_SUCCESS) return true;
    if (n > 0) {
      fate_.breaks(std::string("a work request failed: ") + ibv_wc_status_str(completion.status));
    } else if (n < 0) {
      fate_.breaks("the completion queue cannot be polled");
    } else if (polls % 64 == 63 && monotonic_ns() - begin > kDeadlineNs) {
      fate_.breaks("a work request did not complete in time");
    } else if (polls > kSpins) {
      std::this_thread::yield();
    }
  }
  return false;
}

}  // namespace blink
