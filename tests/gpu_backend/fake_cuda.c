/* A libcuda and a libcublas without a GPU: host memory, captures that count, kernels that are logged and not run.
 *
 * With it the CUDA engine's host code runs in tests on any machine: argument marshalling, capture, release.
 * Parameter sizes come from the real cubin (EIATTR_KPARAM_INFO of its .nv.info sections). Every allocation,
 * launch and release is one line of $FAKE_CUDA_LOG. Modules and launches are in fake_modules.c, captures in
 * fake_graphs.c, cuBLAS in fake_cublas.c; fake_cuda.py builds all.
 */
#define _GNU_SOURCE /* dladdr, memfd_create */
#include "fake_cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void record(const char* format, ...) {
  static FILE* log;
  if (!log) log = fopen(getenv("FAKE_CUDA_LOG"), "a");
  va_list args;
  va_start(args, format);
  vfprintf(log, format, args);
  va_end(args);
  fflush(log);
}

API(cuInit)(unsigned flags) {
  return flags ? INVALID_VALUE : SUCCESS;
}
EXPORT Result cuInit(unsigned flags) {
  return fake_cuInit(flags);
}
/* NVRTC asks for it where it finds cuInit. */
EXPORT Result cuGetExportTable(const void** table, const void* id) {
  return (void)table, (void)id, INVALID_VALUE;
}
API(cuDriverGetVersion)(int* version) {
  return *version = 13000, SUCCESS;
}
API(cuGetErrorName)(Result error, const char** name) {
  return *name = error == OUT_OF_MEMORY ? "OOM" : "ERROR", SUCCESS;
}
API(cuGetErrorString)(Result error, const char** text) {
  return (void)error, *text = "a fake error", SUCCESS;
}
API(cuDeviceGetCount)(int* count) {
  return *count = 1, SUCCESS;
}
API(cuDeviceGet)(int* device, int ordinal) {
  return *device = ordinal, SUCCESS;
}
API(cuDeviceGetName)(char* name, int n, int device) {
  return (void)device, snprintf(name, n, "Fake GPU"), SUCCESS;
}
API(cuDeviceGetUuid)(char* uuid, int device) {
  return memset(uuid, 7 + device, 16), SUCCESS;
}
API(cuDeviceTotalMem)(size_t* n, int device) {
  return (void)device, *n = 1ull << 34, SUCCESS;
}
/* $FAKE_CUDA_ATTRIBUTE_N is that of number N, for tests of another GPU. */
API(cuDeviceGetAttribute)(int* value, int attribute, int device) {
  (void)device;
  char name[64];
  snprintf(name, sizeof name, "FAKE_CUDA_ATTRIBUTE_%d", attribute);
  const char* wanted = getenv(name);
  *value = wanted ? atoi(wanted) : attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1;
  return SUCCESS;
}
API(cuDevicePrimaryCtxRetain)(void** context, int device) {
  return (void)device, *context = (void*)1, SUCCESS;
}
API(cuDevicePrimaryCtxRelease)(int device) {
  return record("release context %d\n", device), SUCCESS;
}
API(cuCtxSetCurrent)(void* context) {
  return context ? SUCCESS : INVALID_VALUE;
}
API(cuMemGetInfo)(size_t* free_bytes, size_t* total) {
  return *free_bytes = 1ull << 33, *total = 1ull << 34, SUCCESS;
}

/* A large allocation has blocks of 2 MiB of its own. */
API(cuMemAlloc)(uint64_t* address, size_t n) {
  const size_t unit = n < 2u << 20 ? 256 : 2u << 20;
  if (n > 1ull << 33) return OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(unit, (n + unit - 1) / unit * unit);
  record("alloc %llu %zu\n", (unsigned long long)*address, n);
  return SUCCESS;
}
API(cuMemFree)(uint64_t address) {
  return record("free %llu\n", (unsigned long long)address), free((void*)address), SUCCESS;
}
API(cuPointerSetAttribute)(const void* value, int attribute, uint64_t address) {
  if (attribute != SYNC_MEMOPS) return INVALID_VALUE;
  return record("sync_memops %llu %u\n", (unsigned long long)address, *(const unsigned*)value), SUCCESS;
}
/* The "dma-buf" is a file in memory, which takes the place of the range: whoever maps it sees the same bytes. */
API(cuMemGetHandleForAddressRange)(void* handle, uint64_t address, size_t n, int kind, uint64_t flags) {
  if (getenv("FAKE_CUDA_NO_EXPORT")) return NOT_SUPPORTED;
  if (address % 4096 || n % 4096 || !n || kind != DMA_BUF_FD || flags) return INVALID_VALUE;
  const int file = memfd_create("dmabuf", MFD_CLOEXEC);
  if (write(file, (void*)address, n) != (ssize_t)n) return OUT_OF_MEMORY;
  if (mmap((void*)address, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    return OUT_OF_MEMORY;
  record("export %llu %zu\n", (unsigned long long)address, n);
  return *(int*)handle = file, SUCCESS;
}
struct ipc_handle {
  char reserved[64];
};
API(cuIpcGetMemHandle)(struct ipc_handle* handle, uint64_t address) {
  memset(handle, 0, sizeof *handle);
  return memcpy(handle, &address, 8), SUCCESS;
}
API(cuMemHostAlloc)(void** p, size_t n, unsigned flags) {
  return (void)flags, *p = malloc(n), SUCCESS;
}
API(cuMemFreeHost)(void* p) {
  return free(p), SUCCESS;
}
API(cuMemHostRegister)(void* p, size_t n, unsigned flags) {
  return (void)p, n && flags == 3 ? SUCCESS : INVALID_VALUE;
}
API(cuMemHostUnregister)(void* p) {
  return record("unregister %llu\n", (unsigned long long)(uintptr_t)p), SUCCESS;
}
API(cuMemHostGetDevicePointer)(uint64_t* address, void* p, unsigned flags) {
  return (void)flags, *address = (uint64_t)p, SUCCESS;
}
API(cuMemcpyHtoDAsync)(uint64_t to, const void* from, size_t n, void* stream) {
  return (void)stream, memcpy((void*)to, from, n), SUCCESS;
}
API(cuMemcpyDtoHAsync)(void* to, uint64_t from, size_t n, void* stream) {
  return (void)stream, memcpy(to, (void*)from, n), SUCCESS;
}
API(cuMemsetD8Async)(uint64_t to, unsigned char value, size_t n, void* stream) {
  return (void)stream, memset((void*)to, value, n), SUCCESS;
}

API(cuStreamCreate)(void** stream, unsigned flags) {
  return *stream = malloc(1), flags == 1 ? SUCCESS : INVALID_VALUE;
}
API(cuStreamSynchronize)(void* stream) {
  return stream ? SUCCESS : INVALID_VALUE;
}
API(cuStreamQuery)(void* stream) {
  return stream ? SUCCESS : INVALID_VALUE;
}
API(cuStreamDestroy)(void* stream) {
  return record("destroy stream\n"), free(stream), SUCCESS;
}

/* What cuda-bindings look up; a name that is not faked fails where it is used. */
EXPORT Result cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  char symbol[128];
  (void)version, (void)flags;
  snprintf(symbol, sizeof symbol, "fake_%s", name);
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (!*function) {
    Dl_info self;
    dladdr((void*)cuGetProcAddress_v2, &self);
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = dlsym(library, symbol);
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
