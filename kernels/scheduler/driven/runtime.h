/* What a host-driven scheduler uses of CUDA: streams, events, copies, graph launches. Two machines provide it:
 *   cuda_runtime.h        a GPU, through the driver API
 *   emulated_runtime.h    threads as streams, and an engine on the CPU
 *
 * All calls come from the scheduler's one thread. None of them blocks for longer than a poll's back-off. The first
 * error is kept and ends the scheduler: what was enqueued after it is not to be relied on.
 */
#ifndef BLINK_DRIVEN_RUNTIME_H
#define BLINK_DRIVEN_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

namespace blink {

class Runtime {
 public:
  virtual ~Runtime() = default;

  /* First, and on the scheduler's thread: makes streams 0..n_streams-1 and events 0..n_events-1. */
  virtual void open(unsigned n_streams, unsigned n_events) = 0;

  /* Enqueued, in order, on a stream. A host address is pinned and stays untouched until the copy has run. */
  virtual void copy_in(unsigned stream, void* device, const void* host, size_t bytes) = 0;
  virtual void copy_out(unsigned stream, void* host, const void* device, size_t bytes) = 0;
  virtual void launch(unsigned stream, uint32_t shape, uint32_t set) = 0;
  virtual void record(unsigned event, unsigned stream) = 0;
  virtual void wait(unsigned stream, unsigned event) = 0;

  /* Whether the stream has reached the event's last record; backs off a little before it says no. */
  virtual bool reached(unsigned event) = 0;

  /* Backs off when there is nothing to wait for. */
  virtual void idle() = 0;

  /* 0, or the code of the first call that failed. */
  virtual int error() const = 0;
};

}  // namespace blink

#endif
