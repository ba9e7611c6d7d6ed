#include "cuda_runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

#include "../state.h"

namespace blink {

/* CUresult (*name)(...), as cuda.h declares them; a CUdeviceptr is a 64-bit address, handles are pointers. The names
 * carry the version that cuda.h maps them to. */
struct CudaDriver {
  int (*cuCtxSetCurrent)(void* context);
  int (*cuStreamCreate)(void** stream, unsigned flags);
  int (*cuStreamDestroy_v2)(void* stream);
  int (*cuStreamWaitEvent)(void* stream, void* event, unsigned flags);
  int (*cuEventCreate)(void** event, unsigned flags);
  int (*cuEventDestroy_v2)(void* event);
  int (*cuEventRecord)(void* event, void* stream);
  int (*cuEventQuery)(void* event);
  int (*cuMemcpyHtoDAsync_v2)(uint64_t device, const void* host, size_t bytes, void* stream);
  int (*cuMemcpyDtoHAsync_v2)(void* host, uint64_t device, size_t bytes, void* stream);
  int (*cuGraphLaunch)(void* executable, void* stream);
  int (*cuGetErrorName)(int result, const char** name);
};

namespace {

constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
constexpr int kNotReady = 600;
constexpr long kIdleNs = 20'000;

template <class Function>
bool find(void* library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (!*function) *error = std::string("libcuda.so.1 has no ") + name;
  return *function != nullptr;
}

}  // namespace

const CudaDriver* load_cuda_driver(std::string* error) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    *error = "libcuda.so.1 cannot be loaded";
    return nullptr;
  }
  static CudaDriver driver;
#define FIND(name) find(library, #name, &driver.name, error)
  const bool complete = FIND(cuCtxSetCurrent) && FIND(cuStreamCreate) && FIND(cuStreamDestroy_v2) &&
                        FIND(cuStreamWaitEvent) && FIND(cuEventCreate) && FIND(cuEventDestroy_v2) &&
                        FIND(cuEventRecord) && FIND(cuEventQuery) && FIND(cuMemcpyHtoDAsync_v2) &&
                        FIND(cuMemcpyDtoHAsync_v2) && FIND(cuGraphLaunch) && FIND(cuGetErrorName);
#undef FIND
  return complete ? &driver : nullptr;
}

CudaRuntime::CudaRuntime(const CudaDriver& driver, void* context, const uint64_t* executables, uint32_t n_shapes)
    : driver_(driver), context_(context), executables_(executables, executables + n_shapes * BLINK_STEP_SETS) {}

CudaRuntime::~CudaRuntime() {
  check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  for (void* event : events_) check(driver_.cuEventDestroy_v2(event), "cuEventDestroy");
  for (void* stream : streams_) check(driver_.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

void CudaRuntime::open(unsigned n_streams, unsigned n_events) {
  prctl(PR_SET_TIMERSLACK, 1000); /* else an idle sleep takes 50 us longer than it should */
  check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  streams_.resize(n_streams);
  for (void*& stream : streams_) check(driver_.cuStreamCreate(&stream, kStreamNonBlocking), "cuStreamCreate");
  events_.resize(n_events);
  for (void*& event : events_) check(driver_.cuEventCreate(&event, kEventDisableTiming), "cuEventCreate");
}

void CudaRuntime::copy_in(unsigned stream, void* device, const void* host, size_t bytes) {
  check(driver_.cuMemcpyHtoDAsync_v2(reinterpret_cast<uint64_t>(device), host, bytes, streams_[stream]),
        "cuMemcpyHtoDAsync");
}

void CudaRuntime::copy_out(unsigned stream, void* host, const void* device, size_t bytes) {
  check(driver_.cuMemcpyDtoHAsync_v2(host, reinterpret_cast<uint64_t>(device), bytes, streams_[stream]),
        "cuMemcpyDtoHAsync");
}

void CudaRuntime::launch(unsigned stream, uint32_t shape, uint32_t set) {
  void* executable = reinterpret_cast<void*>(executables_[shape * BLINK_STEP_SETS + set]);
  check(driver_.cuGraphLaunch(executable, streams_[stream]), "cuGraphLaunch");
}

void CudaRuntime::record(unsigned event, unsigned stream) {
  check(driver_.cuEventRecord(events_[event], streams_[stream]), "cuEventRecord");
}

void CudaRuntime::wait(unsigned stream, unsigned event) {
  check(driver_.cuStreamWaitEvent(streams_[stream], events_[event], 0), "cuStreamWaitEvent");
}

bool CudaRuntime::reached(unsigned event) {
  const int result = driver_.cuEventQuery(events_[event]);
  if (result != kNotReady) check(result, "cuEventQuery");
  return result == 0;
}

void CudaRuntime::idle() {
  const timespec pause{0, kIdleNs};
  nanosleep(&pause, nullptr);
}

/* Said at once: a step that never ends is a fault only after its timeout. */
void CudaRuntime::check(int result, const char* call) {
  if (result == 0 || error_) return;
  error_ = result;
  const char* name = "an unknown error";
  driver_.cuGetErrorName(result, &name);
  fprintf(stderr, "blink backend: %s: %s\n", call, name);
}

}  // namespace blink
