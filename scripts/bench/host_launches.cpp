/* The host's side of graph launches (graph_launches.py), native so that Python's time is in none of them. */
#include <time.h>

#include <cstdint>

namespace {

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

}  // namespace

extern "C" {

/* Launches `executable` and waits for it, `n` times. `launch` and `synchronize` are the driver's. Returns the first
 * error of either. */
int host_launches(int (*launch)(void*, void*), int (*synchronize)(void*), void* executable, void* stream, uint32_t n,
                  uint64_t* asked, uint64_t* returned) {
  for (uint32_t i = 0; i < n; ++i) {
    asked[i] = now();
    const int refused = launch(executable, stream);
    returned[i] = now();
    if (refused) return refused;
    if (const int failed = synchronize(stream)) return failed;
  }
  return 0;
}

/* Asks the GPU for its time, `rounds` times. asked[i], returned[i]: the host's time around told[i], the GPU's. Returns
 * the rounds that were answered within a second each. */
uint32_t compare_clocks(uint64_t* question, const uint64_t* answer, uint32_t rounds, uint64_t* asked, uint64_t* told,
                        uint64_t* returned) {
  for (uint32_t i = 0; i < rounds; ++i) {
    asked[i] = now();
    __atomic_store_n(question, uint64_t(i) + 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(answer + 1, __ATOMIC_ACQUIRE) != i + 1) {
      if (now() - asked[i] > 1000000000ull) return i;
    }
    returned[i] = now();
    told[i] = answer[0];
  }
  return rounds;
}
}
