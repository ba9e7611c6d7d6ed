// The ring in GPU memory, opened by this process with CUDA IPC and moved by the copy engines and by stream
// memory operations alone: nothing here starts a kernel, which would wait for the scheduler's time slice (U1).
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "nic_frontend/native/clock.h"
#include "nic_frontend/native/cuda_driver.h"
#include "nic_frontend/native/frontend.h"
#include "nic_frontend/native/link.h"

namespace blink {
namespace {

constexpr uint64_t kTimeoutNs = 1000000000;  // of one copy, which takes microseconds: the GPU is gone (U4)
constexpr size_t kInbound = BLINK_MAX_SLOTS * sizeof(blink_progress);  // one read fetches any progress table
constexpr size_t kOutbound = 4 << 20;
// Longer payload goes as one padded copy where it has the room. On an H200 a copy costs 7.3 us whatever its
// length, a word in a batch 0.78 us.
constexpr size_t kWordsBytes = 64;
constexpr size_t kMaxQueued = 4096;  // operations between two looks at whether the stream still moves

class CudaIpcLink final : public Link {
 public:
  ~CudaIpcLink() override;
  // "" or why the memory cannot be opened.
  std::string open(const char* library, const cuda::Uuid& uuid, const cuda::IpcHandle& handle);

  bool read(uint64_t offset, uint64_t* to, size_t words) override;
  bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) override;
  void write(const Piece& piece) override;
  void publish(uint64_t offset, uint64_t word) override;
  bool down() const override { return down_; }

 private:
  std::string attach(const cuda::Uuid& uuid, const cuda::IpcHandle& handle);
  void release();
  std::string choose_device(const cuda::Uuid& uuid);
  bool fetch(uint64_t offset, size_t bytes);
  void copy(uint64_t offset, const uint8_t* from, size_t bytes, size_t padded);
  void store(uint64_t offset, const uint8_t* from, size_t bytes);
  void push(uint64_t offset, uint64_t value, uint32_t operation);
  void flush();
  bool reserve(size_t operations, size_t bytes);
  void make_current();
  bool ok(cuda::Result result, const char* what);
  bool idle(cuda::Str* stream);

  cuda::Driver driver_{};
  cuda::Device device_ = -1;
  cuda::Ctx* context_ = nullptr;
  cuda::DevicePtr base_ = 0;
  std::atomic<bool> down_{true};

  std::mutex retrieval_mutex_;  // guards the retrieval stream and its buffer
  cuda::Str* retrieval_ = nullptr;
  uint8_t* inbound_ = nullptr;

  std::mutex submission_mutex_;  // guards what follows
  cuda::Str* submission_ = nullptr;
  uint8_t* outbound_ = nullptr;
  size_t staged_ = 0;                         // bytes of `outbound_` that queued copies still read
  size_t queued_ = 0;                         // operations since the stream was last seen idle
  std::vector<cuda::WriteValue> operations_;  // payload not yet handed to the driver
};

// ---------------------------------------------------------------- opening and closing

std::string CudaIpcLink::open(const char* library, const cuda::Uuid& uuid, const cuda::IpcHandle& handle) {
  const std::string missing = driver_.load(library);
  if (!missing.empty()) return "no NVIDIA driver: " + missing;
  const std::string why = attach(uuid, handle);
  if (!why.empty()) release();
  return why;
}

std::string CudaIpcLink::attach(const cuda::Uuid& uuid, const cuda::IpcHandle& handle) {
  const std::string why = choose_device(uuid);
  if (!why.empty()) return why;
  cuda::Result result = driver_.cuDevicePrimaryCtxRetain(&context_, device_);
  if (!result) result = driver_.cuCtxSetCurrent(context_);
  if (!result) result = driver_.cuStreamCreate(&retrieval_, cuda::kStreamNonBlocking);
  if (!result) result = driver_.cuStreamCreate(&submission_, cuda::kStreamNonBlocking);
  if (!result) result = driver_.cuMemHostAlloc(reinterpret_cast<void**>(&inbound_), kInbound, 0);
  if (!result) result = driver_.cuMemHostAlloc(reinterpret_cast<void**>(&outbound_), kOutbound, 0);
  if (result) return "cannot use the GPU: " + driver_.describe(result);
  result = driver_.cuIpcOpenMemHandle(&base_, handle, cuda::kIpcLazyPeerAccess);
  if (result) return "cannot open the ring's memory, has its backend ended? " + driver_.describe(result);
  down_ = false;
  return "";
}

std::string CudaIpcLink::choose_device(const cuda::Uuid& uuid) {
  int n = 0;
  cuda::Result result = driver_.cuInit(0);
  if (!result) result = driver_.cuDeviceGetCount(&n);
  for (int i = 0; i < n && !result; ++i) {
    cuda::Uuid found;
    result = driver_.cuDeviceGet(&device_, i);
    if (!result) result = driver_.cuDeviceGetUuid(&found, device_);
    if (result || std::memcmp(&found, &uuid, sizeof(uuid))) continue;
    int able = 0;
    result = driver_.cuDeviceGetAttribute(&able, cuda::kCanWrite64, device_);
    if (!result && !able) return "the GPU has no 64-bit stream memory operations";
    if (!result) return "";
  }
  if (result) return "cannot use the GPU: " + driver_.describe(result);
  return "the ring's GPU is not visible to this process: see CUDA_VISIBLE_DEVICES";
}

// What the driver holds is not released over a link that is down: a driver that hangs would hang us.
CudaIpcLink::~CudaIpcLink() {
  if (down_) return;
  make_current();
  if (idle(submission_) && idle(retrieval_)) release();
}

// What was acquired so far, the context current.
void CudaIpcLink::release() {
  down_ = true;
  if (base_) driver_.cuIpcCloseMemHandle(base_);
  if (submission_) driver_.cuStreamDestroy(submission_);
  if (retrieval_) driver_.cuStreamDestroy(retrieval_);
  if (inbound_) driver_.cuMemFreeHost(inbound_);
  if (outbound_) driver_.cuMemFreeHost(outbound_);
  if (context_) driver_.cuDevicePrimaryCtxRelease(device_);
}

void CudaIpcLink::make_current() {
  ok(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

bool CudaIpcLink::ok(cuda::Result result, const char* what) {
  if (result == cuda::kSuccess) return true;
  if (!down_.exchange(true))
    std::fprintf(stderr, "blink frontend: the link to the ring is down: %s: %s\n", what,
                 driver_.describe(result).c_str());
  return false;
}

// Waits, within a bound, until the stream has done everything. The time is read before the stream is asked: a process
// that was stopped in between blames nobody.
bool CudaIpcLink::idle(cuda::Str* stream) {
  const uint64_t began = monotonic_ns();
  for (;;) {
    const bool late = monotonic_ns() - began > kTimeoutNs;
    const cuda::Result result = driver_.cuStreamQuery(stream);
    if (result != cuda::kNotReady) return ok(result, "cuStreamQuery");
    if (late) return ok(result, "a copy has not ended within a second");
  }
}

// ---------------------------------------------------------------- retrieval

// Leaves `bytes` of the ring in `inbound_`. A finished copy is an acquire: what follows was asked for later.
bool CudaIpcLink::fetch(uint64_t offset, size_t bytes) {
  if (down_) return false;
  make_current();
  return ok(driver_.cuMemcpyDtoHAsync(inbound_, base_ + offset, bytes, retrieval_), "cuMemcpyDtoHAsync") &&
         idle(retrieval_);
}

bool CudaIpcLink::read(uint64_t offset, uint64_t* to, size_t words) {
  std::lock_guard<std::mutex> lock(retrieval_mutex_);
  for (size_t left = words * 8; left;) {
    const size_t bytes = left < kInbound ? left : kInbound;
    if (!fetch(offset, bytes)) return false;
    std::memcpy(to, inbound_, bytes);
    offset += bytes;
    to += bytes / 8;
    left -= bytes;
  }
  return true;
}

bool CudaIpcLink::gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) {
  if (n == 0) return !down_;
  uint32_t first = entries[0], last = entries[0];
  for (size_t i = 1; i < n; ++i) {
    first = entries[i] < first ? entries[i] : first;
    last = entries[i] > last ? entries[i] : last;
  }
  std::lock_guard<std::mutex> lock(retrieval_mutex_);
  if (!fetch(table + first * sizeof(blink_progress), (last - first + 1) * sizeof(blink_progress))) return false;
  for (size_t i = 0; i < n; ++i)
    std::memcpy(&to[i], inbound_ + (entries[i] - first) * sizeof(blink_progress), sizeof(blink_progress));
  return true;
}

// ---------------------------------------------------------------- submission

// What is padded lands in room that is the payload's own (U2).
void CudaIpcLink::write(const Piece& piece) {
  std::lock_guard<std::mutex> lock(submission_mutex_);
  if (down_) return;
  make_current();
  const auto* source = static_cast<const uint8_t*>(piece.from);
  const size_t padded = piece.bytes < BLINK_COPY_ENGINE_BYTES ? BLINK_COPY_ENGINE_BYTES : piece.bytes;
  if (piece.bytes > kWordsBytes && padded <= piece.room)
    copy(piece.offset, source, piece.bytes, padded);
  else
    store(piece.offset, source, piece.bytes);
}

void CudaIpcLink::publish(uint64_t offset, uint64_t word) {
  std::lock_guard<std::mutex> lock(submission_mutex_);
  if (down_) return;
  make_current();
  push(offset, word, cuda::kWriteValue64);
  flush();
}

// The last piece is never short: what remains beyond a piece leaves at least the smallest good copy.
void CudaIpcLink::copy(uint64_t offset, const uint8_t* from, size_t bytes, size_t padded) {
  flush();
  while (padded) {
    size_t piece = padded < kOutbound ? padded : kOutbound;
    if (padded - piece && padded - piece < BLINK_COPY_ENGINE_BYTES) piece = padded - BLINK_COPY_ENGINE_BYTES;
    if (!reserve(1, piece)) return;
    uint8_t* staging = outbound_ + staged_;
    const size_t payload = bytes < piece ? bytes : piece;
    std::memcpy(staging, from, payload);
    ok(driver_.cuMemcpyHtoDAsync(base_ + offset, staging, piece, submission_), "cuMemcpyHtoDAsync");
    staged_ += piece;
    offset += piece;
    from += payload;
    bytes -= payload;
    padded -= piece;
  }
}

// Word by word: 64 bits where the address allows, 32 at odd ends. `bytes` is a multiple of 4.
void CudaIpcLink::store(uint64_t offset, const uint8_t* from, size_t bytes) {
  while (bytes) {
    const size_t size = offset % 8 || bytes < 8 ? 4 : 8;
    uint64_t value = 0;
    std::memcpy(&value, from, size);
    push(offset, value, size == 8 ? cuda::kWriteValue64 : cuda::kWriteValue32);
    offset += size;
    from += size;
    bytes -= size;
  }
}

// With flags 0, a write is preceded by a fence of everything before it on the stream (CUstreamWriteValue_flags).
void CudaIpcLink::push(uint64_t offset, uint64_t value, uint32_t operation) {
  operations_.push_back({operation, 0, base_ + offset, value, 0, 0, 0, 0});
  if (operations_.size() == cuda::kMaxBatch) flush();
}

void CudaIpcLink::flush() {
  if (operations_.empty()) return;
  if (reserve(operations_.size(), 0))
    ok(driver_.cuStreamBatchMemOp(submission_, unsigned(operations_.size()), operations_.data(), 0),
       "cuStreamBatchMemOp");
  operations_.clear();
}

// Makes room in the staging buffer, and bounds what is queued: a driver whose queue is full would block. False
// when the link is down: there is no room.
bool CudaIpcLink::reserve(size_t operations, size_t bytes) {
  if (down_) return false;
  if (staged_ + bytes > kOutbound || queued_ + operations > kMaxQueued) {
    if (!idle(submission_)) return false;
    staged_ = queued_ = 0;
  }
  queued_ += operations;
  return true;
}

}  // namespace
}  // namespace blink

extern "C" blink_link* blink_link_cuda_ipc(const char* library, const void* uuid, const void* handle, char* error,
                                           uint64_t error_bytes) {
  blink::cuda::Uuid device;
  blink::cuda::IpcHandle memory;
  std::memcpy(&device, uuid, sizeof(device));
  std::memcpy(&memory, handle, sizeof(memory));
  auto link = std::make_unique<blink::CudaIpcLink>();
  const std::string why = link->open(library, device, memory);
  if (why.empty()) return new blink_link{std::move(link)};
  std::snprintf(error, error_bytes, "%s", why.c_str());
  return nullptr;
}
