#include "nic_frontend/native/verbs/work_queue.h"

#include <cstring>

namespace blink {

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

WorkQueue::WorkQueue(const Device& device, QueuePair& pair, Fate& fate, size_t staging_bytes)
    : pair_(pair),
      fate_(fate),
      staging_(new uint64_t[staging_bytes / 8]),
      registration_(device, staging_.get(), staging_bytes, IBV_ACCESS_LOCAL_WRITE),
      words_(kDepth),
      pieces_(kDepth) {
  chain_.reserve(kDepth);
}

void WorkQueue::add_write(const uint8_t* staged, size_t bytes, uint64_t offset) {
  add(IBV_WR_RDMA_WRITE, 0, staged, bytes, offset);
}

void WorkQueue::add_read(uint8_t* to, size_t bytes, uint64_t offset) {
  add(IBV_WR_RDMA_READ, 0, to, bytes, offset);
}

void WorkQueue::add_word(uint64_t offset, uint64_t word) {
  uint64_t* at = &words_[chain_.size()];
  *at = word;
  add(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE | IBV_SEND_FENCE, at, 8, offset);
}

void WorkQueue::add(ibv_wr_opcode opcode, unsigned flags, const void* local, size_t bytes, uint64_t offset) {
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
}

void WorkQueue::signal() {
  chain_.back().send_flags |= IBV_SEND_SIGNALED;
}

void WorkQueue::post() {
  if (chain_.empty()) return;
  for (size_t i = 0; i + 1 < chain_.size(); ++i) chain_[i].next = &chain_[i + 1];
  ibv_send_wr* refused;
  if (const int error = ibv_post_send(pair_.pair, chain_.data(), &refused))
    fate_.breaks(std::string("a work request was refused: ") + std::strerror(error));
  chain_.clear();
}

bool WorkQueue::completed() {
  if (fate_.broken()) return false;
  ibv_wc completion;
  const int n = ibv_poll_cq(pair_.completions, 1, &completion);
  if (n > 0 && completion.status == IBV_WC_SUCCESS) return true;
  if (n > 0) fate_.breaks(std::string("a work request failed: ") + ibv_wc_status_str(completion.status));
  if (n < 0) fate_.breaks("the completion queue cannot be polled");
  return false;
}

}  // namespace blink
