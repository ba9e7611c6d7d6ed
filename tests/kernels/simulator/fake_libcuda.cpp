/* A libcuda.so.1 for the host-driven schedulers: copies and launches happen when they are enqueued, events take a few
 * polls, and arguments that CUDA would refuse are refused. A graph executable is what `fake_cuda_run` makes of it.
 */
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

enum { kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kNotReady = 600 };

thread_local void* current = nullptr;
struct Event {
  int polls = 0;
};

int checked(bool good) {
  return current ? (good ? kSuccess : kInvalidValue) : kInvalidContext;
}

}  // namespace

extern "C" {

void (*fake_cuda_run)(void* executable) = nullptr;
int fake_cuda_open_handles = 0;

int cuCtxSetCurrent(void* context) {
  current = context;
  return checked(true);
}
int cuStreamCreate(void** stream, unsigned flags) {
  ++fake_cuda_open_handles;
  *stream = new int;
  return checked(flags == 1);
}
int cuStreamDestroy_v2(void* stream) {
  --fake_cuda_open_handles;
  delete static_cast<int*>(stream);
  return checked(true);
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return checked(stream && event && flags == 0);
}
int cuEventCreate(void** event, unsigned flags) {
  ++fake_cuda_open_handles;
  *event = new Event;
  return checked(flags == 2);
}
int cuEventDestroy_v2(void* event) {
  --fake_cuda_open_handles;
  delete static_cast<Event*>(event);
  return checked(true);
}
int cuEventRecord(void* event, void* stream) {
  static_cast<Event*>(event)->polls = 3;
  return checked(event && stream);
}
int cuEventQuery(void* event) {
  Event& e = *static_cast<Event*>(event);
  return e.polls > 0 && e.polls-- ? kNotReady : checked(true);
}
int cuMemcpyHtoDAsync_v2(uint64_t device, const void* host, size_t bytes, void* stream) {
  memcpy(reinterpret_cast<void*>(device), host, bytes);
  return checked(stream && bytes);
}
int cuMemcpyDtoHAsync_v2(void* host, uint64_t device, size_t bytes, void* stream) {
  memcpy(host, reinterpret_cast<const void*>(device), bytes);
  return checked(stream && bytes);
}
int cuGraphLaunch(void* executable, void* stream) {
  if (!executable || !stream) return kInvalidValue;
  fake_cuda_run(executable);
  return checked(true);
}
int cuGetErrorName(int result, const char** name) {
  *name = result == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_INVALID_VALUE";
  return kSuccess;
}
}
