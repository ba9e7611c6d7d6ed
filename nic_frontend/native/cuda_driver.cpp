#include "nic_frontend/native/cuda_driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace blink::cuda {

std::string Driver::load(const char* library) {
  // Never closed: the driver starts threads of its own.
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
  std::string missing;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function && missing.empty()) missing = std::string(library) + " has no " + symbol;
  };
  find(cuInit, "cuInit");
  find(cuGetErrorString, "cuGetErrorString");
  find(cuDeviceGetCount, "cuDeviceGetCount");
  find(cuDeviceGet, "cuDeviceGet");
  find(cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  find(cuCtxSetCurrent, "cuCtxSetCurrent");
  find(cuStreamCreate, "cuStreamCreate");
  find(cuStreamDestroy, "cuStreamDestroy_v2");
  find(cuStreamQuery, "cuStreamQuery");
  find(cuMemHostAlloc, "cuMemHostAlloc");
  find(cuMemFreeHost, "cuMemFreeHost");
  find(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
  find(cuIpcCloseMemHandle, "cuIpcCloseMemHandle");
  find(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  find(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  find(cuStreamBatchMemOp, "cuStreamBatchMemOp_v2");
  return missing;
}

std::string Driver::describe(Result result) const {
  const char* text = nullptr;
  if (cuGetErrorString(result, &text) != kSuccess || !text) text = "no description";
  return std::string(text) + " (CUresult " + std::to_string(result) + ")";
}

}  // namespace blink::cuda
