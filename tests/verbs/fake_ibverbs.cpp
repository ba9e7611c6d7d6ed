// libibverbs without a device, over a fabric that reorders, delays, tears and breaks (fake_fabric.h says by which
// rules).
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tests/verbs/fake_fabric.h"
#include "tests/verbs/fake_ibverbs.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

using fake::fabric;
using fake::Pair;
using fake::Queue;
using fake::Region;
using fake::Request;

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  auto pair = reinterpret_cast<Pair*>(qp);
  uint64_t words = 0;
  ++fabric.doorbells;
  for (; wr; wr = wr->next) {
    ++(wr->opcode == IBV_WR_RDMA_READ ? fabric.reads : fabric.writes);
    Request request{*wr, wr->sg_list[0], {}, 0};
    if (wr->send_flags & IBV_SEND_INLINE) {
      ++words;
      auto from = reinterpret_cast<const uint8_t*>(request.piece.addr);
      request.inlined.assign(from, from + request.piece.length);
    }
    std::lock_guard<std::mutex> lock(pair->mutex);
    if (pair->posted - pair->reported == pair->depth) {
      *bad = wr;
      return ENOMEM;
    }
    request.number = ++pair->posted;
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
  const auto now = std::chrono::steady_clock::now();
  for (; found < n && !queue->found.empty() && queue->found.front().due <= now; ++found) {
    const fake::Completion& first = queue->found.front();
    to[found] = first.completion;
    first.pair->reported = first.number;
    queue->found.pop_front();
  }
  return found;
}

constexpr uint64_t kPage = 4096;
ibv_device the_device;
const uint8_t kGid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

ibv_mr* add_region(ibv_pd* pd, size_t bytes, const Region& region) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  auto made = new Region(region);
  made->mr.pd = pd;
  made->mr.length = bytes;
  made->mr.lkey = made->mr.rkey = fabric.next_key++;
  fabric.regions[made->mr.lkey] = made;
  return &made->mr;
}

ibv_mr* add_memory(ibv_pd* pd, void* address, size_t bytes, int access) {
  return add_region(pd, bytes,
                    {{}, reinterpret_cast<uint64_t>(address), static_cast<uint8_t*>(address), access, {}, {}});
}

}  // namespace

extern "C" {

void fake_verbs_break_one_in(uint32_t work_requests) {
  fabric.break_one_in = work_requests;
}

void fake_verbs_delay_writes(uint32_t us) {
  fabric.write_delay_us = us;
}

void fake_verbs_no_dmabuf(uint32_t yes) {
  fabric.no_dmabuf = yes != 0;
}

int fake_verbs_region(uint32_t key, struct fake_verbs_region* found) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  const auto entry = fabric.regions.find(key);
  if (entry == fabric.regions.end()) return 0;
  const Region& region = *entry->second;
  *found = {region.begin, region.mr.length, region.file, region.file_offset, uint64_t(region.access)};
  return 1;
}

void fake_verbs_counts(struct fake_verbs_counts* counts) {
  *counts = {fabric.broken.exchange(0),    fabric.overtaken.exchange(0), fabric.words_together.exchange(0),
             fabric.doorbells.exchange(0), fabric.reads.exchange(0),     fabric.writes.exchange(0)};
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
  return add_memory(pd, address, bytes, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t, unsigned access) {
  return add_memory(pd, address, bytes, int(access));
}
// The file stands for a dma-buf; the checks are the kernel's. The registration outlives the descriptor.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int descriptor, int access) {
  struct stat file;
  if (fabric.no_dmabuf) return errno = EOPNOTSUPP, nullptr;
  if (fstat(descriptor, &file) != 0) return nullptr;
  if (offset + bytes > uint64_t(file.st_size) || (offset ^ iova) % kPage) return errno = EINVAL, nullptr;
  const uint64_t before = offset % kPage;
  void* mapped = mmap(nullptr, bytes + before, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, off_t(offset - before));
  if (mapped == MAP_FAILED) return nullptr;
  return add_region(pd, bytes, {{}, iova, static_cast<uint8_t*>(mapped) + before, access, file.st_ino, offset});
}
int ibv_dereg_mr(ibv_mr* mr) {
  std::lock_guard<std::mutex> lock(fabric.mutex);
  auto region = reinterpret_cast<Region*>(mr);
  fabric.regions.erase(mr->lkey);
  if (region->file) munmap(region->memory - region->file_offset % kPage, mr->length + region->file_offset % kPage);
  delete region;
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
  fake::settle_all(pair);  // what was on its way into memory is there by now, and what was not never will be
  fabric.pairs.erase(qp->qp_num);
  delete pair;
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "other";
}

}  // extern "C"
