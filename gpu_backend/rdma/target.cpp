#include "gpu_backend/rdma/target.h"

#include <cstdio>

#include "ringbuffer/rdma/endpoint.h"

namespace {

// No atomics: no word has two writers (R1). No relaxed ordering (V3).
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr int kPairAccess = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr uint32_t kDepth = 1;  // the passive end posts nothing

template <class F>
auto told(char* error, F make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& failure) {
    std::snprintf(error, BLINK_RDMA_ERROR_BYTES, "%s", failure.what());
    return nullptr;
  }
}

}  // namespace

struct blink_rdma_target {
  blink_rdma_target(const blink::DeviceChoice& choice, void* memory, size_t bytes)
      : device(choice), region(device, memory, bytes, kAccess), address(reinterpret_cast<uint64_t>(memory)) {}
  blink_rdma_target(const blink::DeviceChoice& choice, int dmabuf, uint64_t offset, size_t bytes)
      : device(choice), region(device, dmabuf, offset, bytes, kAccess), address(0) {}

  blink::Device device;
  blink::Registration region;
  uint64_t address;
};

struct blink_rdma_pairs {
  explicit blink_rdma_pairs(const blink::Device& device) : endpoint(device, kDepth, kPairAccess) {}
  blink::Endpoint endpoint;
};

extern "C" {

blink_rdma_target* blink_rdma_open(const char* device, int32_t gid_index, const char* local_address, void* memory,
                                   uint64_t bytes, char* error) {
  return told(error, [&] { return new blink_rdma_target({device, gid_index, local_address}, memory, bytes); });
}

blink_rdma_target* blink_rdma_open_dmabuf(const char* device, int32_t gid_index, const char* local_address,
                                          int32_t dmabuf, uint64_t offset, uint64_t bytes, char* error) {
  return told(error, [&] { return new blink_rdma_target({device, gid_index, local_address}, dmabuf, offset, bytes); });
}

void blink_rdma_close(blink_rdma_target* target) {
  delete target;
}
uint64_t blink_rdma_region_address(blink_rdma_target* target) {
  return target->address;
}
uint32_t blink_rdma_region_key(blink_rdma_target* target) {
  return target->region.region->rkey;
}

blink_rdma_pairs* blink_rdma_accept(blink_rdma_target* target, const blink_rdma_address* theirs,
                                    blink_rdma_address* ours, char* error) {
  return told(error, [&] {
    auto pairs = std::make_unique<blink_rdma_pairs>(target->device);
    pairs->endpoint.connect(*theirs);
    *ours = pairs->endpoint.address();
    return pairs.release();
  });
}

void blink_rdma_pairs_close(blink_rdma_pairs* pairs) {
  delete pairs;
}

}  // extern "C"
