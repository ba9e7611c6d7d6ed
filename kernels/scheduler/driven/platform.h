/* The policy's platform where a host thread drives the engine: the policy's memory is the host's, a launch is a step
 * put on streams, and backing off is asking for the oldest step's results. */
#ifndef BLINK_DRIVEN_PLATFORM_H
#define BLINK_DRIVEN_PLATFORM_H

#include <atomic>
#include <chrono>

#include "../host.h"
#include "pipeline.h"

namespace blink {

class DrivenPlatform : public HostMemoryModel {
 public:
  /* `work_ns`: what a slower host would do for each step besides, before it launches it. */
  DrivenPlatform(Team& team, Pipeline& pipeline, Runtime& runtime, const std::atomic<uint64_t>& work_ns)
      : HostMemoryModel(team, 0), pipeline_(pipeline), runtime_(runtime), work_ns_(work_ns) {}

  uint64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  uint32_t step_sets() const { return pipeline_.step_sets(); }
  bool shares_step_sets() const { return false; } /* until a copy has brought it, an output is anything (D3) */
  uint32_t launch_window() const { return ~0u; }  /* the device runtime's limit, not the host's */
  int launch(uint64_t, uint32_t shape, uint32_t set) {
    const uint64_t end = now() + work_ns_.load(std::memory_order_relaxed);
    while (now() < end) {
    }
    return pipeline_.submit(shape, set);
  }
  int relaunch() { return 0; }
  void pause(bool idle) {
    if (idle) {
      runtime_.idle();
    } else {
      pipeline_.poll();
    }
  }

 private:
  Pipeline& pipeline_;
  Runtime& runtime_;
  const std::atomic<uint64_t>& work_ns_;
};

}  // namespace blink

#endif
