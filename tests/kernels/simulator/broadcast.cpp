/* What one thread of the scheduler tells all others, whatever they have themselves. Exits 1 if one is told otherwise.
 */
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/scheduler/host.h"
#include "kernels/scheduler/platform.h"

namespace {

constexpr unsigned kThreads = 3;
constexpr uint64_t kRounds = 100;

struct Platform : blink::HostMemoryModel {
  Platform(blink::Team& team, unsigned thread) : HostMemoryModel(team, thread) {}
};

}  // namespace

int main() {
  blink::Team team(kThreads);
  bool right[kThreads] = {};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Platform platform(team, t);
      right[t] = true;
      for (uint64_t round = 0; round < kRounds; ++round)
        right[t] &= platform.broadcast(t == 0 ? round : ~round) == round;
    });
  for (std::thread& thread : threads) thread.join();
  for (bool one : right)
    if (!one) return 1;
  return 0;
}
