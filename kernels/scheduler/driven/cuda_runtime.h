/* The runtime on a GPU: the CUDA driver API, found at run time, because this library also serves machines without. */
#ifndef BLINK_DRIVEN_CUDA_RUNTIME_H
#define BLINK_DRIVEN_CUDA_RUNTIME_H

#include <string>
#include <vector>

#include "runtime.h"

namespace blink {

struct CudaDriver;

/* The driver, or null with the reason in `error`. It stays loaded. */
const CudaDriver* load_cuda_driver(std::string* error);

class CudaRuntime : public Runtime {
 public:
  /* `context` is a CUcontext that outlives this; `executables` [n_shapes][BLINK_STEP_SETS] are CUgraphExecs. */
  CudaRuntime(const CudaDriver& driver, void* context, const uint64_t* executables, uint32_t n_shapes);
  ~CudaRuntime() override;

  void open(unsigned n_streams, unsigned n_events) override;
  void copy_in(unsigned stream, void* device, const void* host, size_t bytes) override;
  void copy_out(unsigned stream, void* host, const void* device, size_t bytes) override;
  void launch(unsigned stream, uint32_t shape, uint32_t set) override;
  void record(unsigned event, unsigned stream) override;
  void wait(unsigned stream, unsigned event) override;
  bool reached(unsigned event) override;
  void idle() override;
  int error() const override { return error_; }

 private:
  void check(int result, const char* call);

  const CudaDriver& driver_;
  void* const context_;
  const std::vector<uint64_t> executables_;
  std::vector<void*> streams_, events_;
  int error_ = 0;
};

}  // namespace blink

#endif
