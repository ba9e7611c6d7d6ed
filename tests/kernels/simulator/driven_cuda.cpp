/* The host-driven schedulers through their C interface and a driver library that is found at run time:
 * fake_libcuda.cpp, in LD_LIBRARY_PATH as libcuda.so.1.
 *
 *   driven_cuda DESIGN SEED      exits 1 and prints what went wrong
 */
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>

#include "frontend.h"
#include "kernels/scheduler/driven/driven.h"

using namespace simulator;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kEnough = 20; /* answers */

SyntheticEngine* engine;

void run_graph(void* executable) {
  engine->run((reinterpret_cast<uintptr_t>(executable) - 1) % BLINK_STEP_SETS, 1, 2);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::puts("no libcuda.so.1"), 2;
  *static_cast<void (**)(void*)>(dlsym(library, "fake_cuda_run")) = run_graph;
  const int* open_handles = static_cast<int*>(dlsym(library, "fake_cuda_open_handles"));

  Random random(std::atoi(argv[2]));
  Sizes sizes{64, 2, 16, 256, 8, 100, 64, 4, 0};
  sizes.prefix_cache = 0;
  SimulatedRing host(sizes), device(sizes);
  SyntheticEngine synthetic(device.c.tables, device.c.sets, sizes.total_pages);
  engine = &synthetic;
  std::vector<uint64_t> executables;
  for (uint64_t i = 0; i < host.c.n_shapes * BLINK_STEP_SETS; ++i) executables.push_back(i + 1);
  char error[256] = "";
  int context;
  blink_driven* driven = blink_driven_start_cuda(argv[1], &host.c, &device.c.tables, device.c.sets, &context,
                                                 executables.data(), error, sizeof error);
  if (!driven) return std::printf("not started: %s\n", error), 1;

  std::deque<Frontend> frontends;
  for (uint32_t i = 0; i < 2; ++i) frontends.emplace_back(host, i, random).tearing = false;
  const auto start = std::chrono::steady_clock::now();
  auto now = [&] { return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count(); };
  auto idle = [&] { return frontends[0].idle() && frontends[1].idle(); };
  auto finished = [&] { return frontends[0].answers.finished + frontends[1].answers.finished; };
  /* Requests come for a second, and where a machine is slow for up to 20, until enough have been answered. Then those
   * that are open have 20 s. */
  int64_t quiet_since = 0;
  while (!quiet_since || (!idle() && now() < quiet_since + 20 * kSecond)) {
    if (!quiet_since && now() >= (finished() >= kEnough ? kSecond : 20 * kSecond)) quiet_since = now();
    for (Frontend& f : frontends) {
      f.quiet = quiet_since != 0;
      f.act(now());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const bool all_idle = idle();
  __atomic_store_n(&host.c.header->control, all_idle ? BLINK_CONTROL_DRAIN : BLINK_CONTROL_STOP, __ATOMIC_RELEASE);
  if (!blink_driven_wait(driven, 60'000)) return std::puts("the scheduler did not stop"), 1;
  const uint64_t cpu_ns = blink_driven_cpu_ns(driven);
  blink_driven_destroy(driven);

  std::string verdict = synthetic.error;
  for (const Frontend& f : frontends) {
    if (verdict.empty()) verdict = f.error;
  }
  if (!all_idle) verdict = "no progress: requests are still open";
  if (host.c.state->phase != BLINK_PHASE_STOPPED) verdict = "the scheduler failed";
  if (*open_handles) verdict = "streams or events were not released";
  if (cpu_ns == 0) verdict = "the thread took no processor time";
  if (finished() < kEnough) verdict = "too little happened";
  std::printf("finished %llu %s\n", (unsigned long long)finished(), verdict.c_str());
  return verdict.empty() ? 0 : 1;
}
