/* Splits loops of many sizes on pools of many sizes, with pauses long enough for workers to fall asleep, from
 * two threads in turn. Every index must be visited exactly once, and what a loop wrote must be visible after
 * it. Exits 1 otherwise. */
#include "kernels/reference/thread_pool.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

static bool loops(blink::ThreadPool& pool) {
  for (uint32_t round = 0; round < 400; ++round) {
    const uint32_t n = round % 7 * 13;
    std::vector<int> visits(n);
    pool.split(n, 1, [&](uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) ++visits[i];
    });
    for (int count : visits)
      if (count != 1) return false;
    if (round % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

int main() {
  for (uint32_t threads = 1; threads <= 4; ++threads) {
    blink::ThreadPool pool(threads);
    bool correct = loops(pool);
    std::thread other([&] { correct = loops(pool) && correct; });
    other.join();
    if (!correct) {
      fprintf(stderr, "wrong visits with %u threads\n", threads);
      return 1;
    }
  }
  return 0;
}
