// The few functions of the CUDA driver that the cuda_ipc link calls, looked up at run time: the frontend's
// library needs neither CUDA's headers nor its libraries. Types and values as in cuda.h (CUDA 12 and 13).
#ifndef BLINK_FRONTEND_CUDA_DRIVER_H
#define BLINK_FRONTEND_CUDA_DRIVER_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace blink::cuda {

using Result = int;
using DevicePtr = uint64_t;
using Device = int;
struct Ctx;    // CUcontext
struct Str;    // CUstream
struct Uuid {  // CUuuid
  char bytes[16];
};
struct IpcHandle {  // CUipcMemHandle
  char reserved[64];
};

constexpr Result kSuccess = 0, kNotReady = 600;
constexpr unsigned kIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only value allowed
constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCanWrite64 = 122;  // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS

// CUstreamBatchMemOpParams, its writeValue member
struct WriteValue {
  uint32_t operation;
  uint32_t pad0;
  DevicePtr address;
  uint64_t value;
  uint32_t flags;
  uint32_t pad1;
  uint64_t alias;
  uint64_t pad2;
};
static_assert(sizeof(WriteValue) == 48, "CUstreamBatchMemOpParams has 48 bytes");
constexpr uint32_t kWriteValue32 = 2, kWriteValue64 = 5;
constexpr size_t kMaxBatch = 255;  // cuStreamBatchMemOp: "must be less than 256"

struct Driver {
  Result (*cuInit)(unsigned flags);
  Result (*cuGetErrorString)(Result, const char** text);
  Result (*cuDeviceGetCount)(int* n);
  Result (*cuDeviceGet)(Device*, int ordinal);
  Result (*cuDeviceGetUuid)(Uuid*, Device);
  Result (*cuDeviceGetAttribute)(int* value, int attribute, Device);
  Result (*cuDevicePrimaryCtxRetain)(Ctx**, Device);
  Result (*cuDevicePrimaryCtxRelease)(Device);
  Result (*cuCtxSetCurrent)(Ctx*);
  Result (*cuStreamCreate)(Str**, unsigned flags);
  Result (*cuStreamDestroy)(Str*);
  Result (*cuStreamQuery)(Str*);
  Result (*cuMemHostAlloc)(void**, size_t bytes, unsigned flags);
  Result (*cuMemFreeHost)(void*);
  Result (*cuIpcOpenMemHandle)(DevicePtr*, IpcHandle, unsigned flags);
  Result (*cuIpcCloseMemHandle)(DevicePtr);
  Result (*cuMemcpyHtoDAsync)(DevicePtr, const void*, size_t bytes, Str*);
  Result (*cuMemcpyDtoHAsync)(void*, DevicePtr, size_t bytes, Str*);
  Result (*cuStreamBatchMemOp)(Str*, unsigned count, WriteValue*, unsigned flags);

  // "" or why `library` cannot be used.
  std::string load(const char* library);
  std::string describe(Result result) const;
};

}  // namespace blink::cuda

#endif  // BLINK_FRONTEND_CUDA_DRIVER_H
