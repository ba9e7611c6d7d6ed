/* The echo as one thread of the host. */
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "echo.h"
#include "kernels/scheduler/host.h"

namespace {

class EchoPlatform : public blink::HostMemoryModel {
 public:
  using HostMemoryModel::HostMemoryModel;
  uint64_t now() const {
    return uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
};

}  // namespace

struct blink_host_echo {
  blink_host_echo(uint8_t* ring, uint32_t n_slots, uint64_t step_ns)
      : slots(n_slots), thread([this, ring, step_ns] {
          EchoPlatform platform(team, 0);
          blink::Echo<EchoPlatform>(platform, ring, slots.data(), step_ns).run();
          stopped = true;
        }) {}

  blink::Team team{1};
  std::vector<blink_echo_slot> slots;
  std::atomic<bool> stopped{false};
  std::thread thread;
};

extern "C" {

blink_host_echo* blink_host_echo_start(uint8_t* ring, uint32_t n_slots, uint64_t step_ns) {
  return new blink_host_echo(ring, n_slots, step_ns);
}
int blink_host_echo_stopped(const blink_host_echo* echo) {
  return echo->stopped;
}
/* Joins the thread: the ring's control word must have stopped it. */
void blink_host_echo_destroy(blink_host_echo* echo) {
  echo->thread.join();
  delete echo;
}
}
