/* Threads of the emulator: a thread is a fiber that gives way at barriers, warp collectives and polls only. Every round
 * resumes the threads that can go on in another order, and lets some warps run ahead of others. Barriers, memory and
 * checks; what CUDA calls them is in cuda.h.
 */
#ifndef BLINK_EMULATOR_THREADS_H
#define BLINK_EMULATOR_THREADS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

namespace emulator {

constexpr uint32_t kWarp = 32, kStackBytes = 128 * 1024, kValueBytes = 32;
constexpr uint32_t kDynamicBytes = 228 * 1024; /* 227 KiB, and what aligns them */
constexpr uint32_t kAlign = 1024, kMostBytes = kDynamicBytes - kAlign;
constexpr uint32_t kLate = 4, kLateRounds = 300; /* of a cluster every fourth block starts when others may have sent */
constexpr uint32_t kFilledBytes = 4 * 1024;      /* of a stack, with NaNs, where variables without a value lie */
/* Where stacks begin differs by so many lines of the cache: if all began at the same place of a page, their upper ends
 * would share a few places in the cache. */
constexpr uint32_t kStackColours = 64, kLine = 64;

[[noreturn]] inline void fail(const char* what) {
  fprintf(stderr, "emulator: %s\n", what);
  abort();
}

struct Thread;

/* What threads wait for. Each opening is a new generation, and lets those run that wait for it. */
struct Gate {
  uint64_t generation = 0;
  std::vector<Thread*> waiting;

  void open(std::vector<Thread*>& runnable);
  void await_next(uint64_t before);
};

/* A barrier of `alive` threads: the last to arrive opens its gate. */
struct ThreadBarrier {
  uint32_t alive = 0, arrived = 0;
  Gate gate;
};

/* Among some of a block's threads. */
struct NamedBarrier {
  uint32_t arrived = 0;
  Gate gate;
};

struct Lanes {
  alignas(16) unsigned char value[kWarp][kValueBytes];
  uint32_t present = 0;

  template <typename T>
  T get(uint32_t lane) const {
    if (!(present >> lane % kWarp & 1)) fail("a warp collective reads a lane that does not take part");
    T value_of_lane;
    memcpy(&value_of_lane, value[lane % kWarp], sizeof(T));
    return value_of_lane;
  }
  template <typename T>
  void set(uint32_t lane, const T& value_of_lane) {
    static_assert(sizeof(T) <= kValueBytes, "value too large");
    memcpy(value[lane], &value_of_lane, sizeof(T));
    present |= 1u << lane;
  }
};

struct Warp {
  ThreadBarrier barrier;
  Lanes lanes[2];         /* of even and odd generations: a lane may still read the one before */
  uint64_t committed = 0; /* groups of wgmma */
};

struct Block;

using Place = void* [5]; /* where a fiber goes on, for __builtin_setjmp */

/* Only a fiber's start uses ucontext: swapcontext calls the kernel, to save the mask of signals, which took more time
 * than all that the fibers do. */
struct Thread {
  ucontext_t start;
  Place here;
  std::unique_ptr<char[]> stack{new char[kStackBytes + kStackColours * kLine]};
  dim3 index;
  Block* block = nullptr;
  bool started = false, done = false, waits = false; /* at a gate */
  uint64_t cluster_generation = 0;                   /* of the cluster's barrier at which it arrived */
};

struct Block {
  dim3 index;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  ThreadBarrier barrier;
  std::map<uint32_t, NamedBarrier> named_barriers;
  int count = 0, counted = 0; /* of __syncthreads_count */
  std::unique_ptr<char[]> dynamic{new char[kDynamicBytes]};
  uint64_t start = 0;      /* the round in which its threads begin */
  bool has_waited = false; /* for the kernel before */

  /* Of its dynamic shared memory. */
  char* shared() const {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(dynamic.get()) + kAlign - 1) / kAlign * kAlign);
  }
  /* Whether all of it is as it was at first from `bytes` on. */
  bool is_untouched(uint32_t bytes) const {
    const auto is_full = [](char byte) { return byte == char(0xff); };
    return std::all_of(shared() + bytes, dynamic.get() + kDynamicBytes, is_full);
  }
};

inline std::vector<std::unique_ptr<Block>> blocks; /* kept between launches */
inline Block* block;                               /* whose thread runs */
inline ThreadBarrier cluster;                      /* of all blocks that run in turns */
inline Thread* current;
/* Who will run in the next round, and who once more in this one: a warp goes on for a few collectives before others
 * have their turn, by chance for more or fewer. The stacks of 32 threads fit a cache, those of all do not. */
inline std::vector<Thread*> next_round, same_round;
inline uint32_t n_ahead = 0; /* the collectives that are left to the warp in this round */
constexpr uint32_t kMostAhead = 32;
inline Place scheduler;
inline std::function<void()> body;
inline uint32_t dynamic_bytes = kMostBytes; /* of shared memory, that the kernel may write to */
inline uint32_t cluster_blocks = 1;         /* along x */
inline void (*at_end)() = [] {};            /* what more to check when blocks have ended */
inline std::mt19937 shuffle_order(1);
/* Threads that run in one round of so many: those of a block, of a warp of every block, or of both. */
constexpr uint32_t kAny = UINT32_MAX;
struct Slow {
  uint32_t block = kAny, warp = kAny, rounds = 1;

  bool skips(const Thread& thread, uint64_t round) const {
    const uint32_t of_block = thread.block->index.x, of_warp = thread.index.x / kWarp;
    const bool is_slow = (block == kAny || of_block == block) && (warp == kAny || of_warp == warp);
    return is_slow && round % rounds;
  }
};
inline Slow slow;
constexpr uint64_t kStuckRounds = 200000;

/* What the kernel before the next one writes. It is garbage until that kernel ends, some rounds after the next one has
 * begun (E7): who does not wait reads garbage. */
struct Written {
  char* at;
  std::vector<char> bytes;
};
inline std::vector<Written> not_yet_written;
constexpr uint64_t kPredecessorRounds = 40;

inline void after(const void* p, uint64_t bytes) {
  char* at = const_cast<char*>(static_cast<const char*>(p));
  if (!p || !bytes) return;
  not_yet_written.push_back({at, std::vector<char>(at, at + bytes)});
  memset(at, 0xff, bytes);
}
inline void end_predecessor() {
  for (const Written& of : not_yet_written) memcpy(of.at, of.bytes.data(), of.bytes.size());
  not_yet_written.clear();
}
/* By whoever asks for a copy, which may be made any time from then on. */
inline void check_written(const void* from) {
  for (const Written& of : not_yet_written)
    if (from >= of.at && from < of.at + of.bytes.size()) fail("a copy of what the kernel before has not yet written");
}

inline Warp& this_warp() {
  return block->warps[current->index.x / kWarp];
}
inline uint32_t this_lane() {
  return current->index.x % kWarp;
}

/* Lets the other threads run. */
__attribute__((noinline)) inline void give_way() {
  if (!__builtin_setjmp(current->here)) __builtin_longjmp(scheduler, 1);
}

/* Lets `current` run until it gives way or ends. */
__attribute__((noinline)) inline void resume() {
  if (__builtin_setjmp(scheduler)) return;
  if (current->started) __builtin_longjmp(current->here, 1);
  current->started = true;
  setcontext(&current->start);
}

inline void Gate::open(std::vector<Thread*>& runnable) {
  ++generation;
  for (Thread* thread : waiting) thread->waits = false;
  runnable.insert(runnable.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

/* Lets the other threads run until the generation is another than `before`. */
inline void Gate::await_next(uint64_t before) {
  if (generation != before) return;
  current->waits = true;
  waiting.push_back(current);
  give_way();
}

/* Waits until all of the barrier are here; the last to arrive runs `publish` first, and makes the others runnable. */
template <typename Publish>
void arrive_and_wait(ThreadBarrier& barrier, std::vector<Thread*>& runnable, const Publish& publish) {
  const uint64_t generation = barrier.gate.generation;
  if (++barrier.arrived == barrier.alive) {
    publish();
    barrier.arrived = 0;
    barrier.gate.open(runnable);
  }
  barrier.gate.await_next(generation);
}

inline int barrier(bool predicate) {
  block->count += predicate;
  arrive_and_wait(block->barrier, next_round, [] {
    block->counted = block->count;
    block->count = 0;
  });
  return block->counted;
}

/* What every lane of the warp passed, or what `combine` made of it when all were there. */
template <typename T, typename Combine>
const Lanes& exchange(const T& value, const Combine& combine) {
  Warp& warp = this_warp();
  const uint64_t generation = warp.barrier.gate.generation;
  Lanes& lanes = warp.lanes[generation % 2];
  lanes.set(this_lane(), value);
  arrive_and_wait(warp.barrier, n_ahead ? same_round : next_round, [&] {
    combine(lanes);
    if (n_ahead) --n_ahead;
    warp.lanes[(generation + 1) % 2].present = 0;
  });
  return lanes;
}
template <typename T>
const Lanes& exchange(const T& value) {
  return exchange(value, [](const Lanes&) {});
}

inline void leave(ThreadBarrier& barrier) {
  if (--barrier.alive != 0 && barrier.arrived == barrier.alive) fail("a thread ended while others wait for it");
}

inline void thread_main() {
  body();
  current->done = true;
  leave(this_warp().barrier);
  leave(block->barrier);
  leave(cluster);
  __builtin_longjmp(scheduler, 1);
}

inline void prepare(Block& made, dim3 index, uint32_t n_threads) {
  made.index = index;
  memset(made.dynamic.get(), 0xff, kDynamicBytes);
  made.threads.resize(std::max<size_t>(made.threads.size(), n_threads));
  made.warps.assign((n_threads + kWarp - 1) / kWarp, Warp());
  made.barrier = ThreadBarrier{n_threads, 0, {}};
  made.named_barriers.clear();
  made.has_waited = false;
  for (uint32_t t = 0; t < n_threads; ++t) {
    Thread& thread = made.threads[t];
    char* const stack = thread.stack.get() + t * 5 % kStackColours * kLine;
    thread.index = {t, 0, 0};
    thread.block = &made;
    thread.started = thread.done = thread.waits = false;
    memset(stack + kStackBytes - kFilledBytes, 0xff, kFilledBytes);
    ++made.warps[t / kWarp].barrier.alive;
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = stack;
    thread.start.uc_stack.ss_size = kStackBytes;
    makecontext(&thread.start, thread_main, 0);
  }
}

/* Whether the thread has ended with it. */
inline bool run(Thread& thread) {
  block = thread.block;
  current = &thread;
  resume();
  if (!thread.done && !thread.waits) next_round.push_back(&thread);
  return thread.done;
}

/* Runs the threads of blocks at the indices, all of them in turns. */
inline void run_blocks(const std::vector<dim3>& indices, uint32_t n_threads, bool is_cluster) {
  while (blocks.size() < indices.size()) blocks.emplace_back(new Block);
  cluster = ThreadBarrier{uint32_t(indices.size()) * n_threads, 0, {}};
  next_round.clear();
  for (size_t b = 0; b < indices.size(); ++b) {
    prepare(*blocks[b], indices[b], n_threads);
    blocks[b]->start = is_cluster && shuffle_order() % kLate == 0 ? kLateRounds : 0;
    for (uint32_t t = 0; t < n_threads; ++t) next_round.push_back(&blocks[b]->threads[t]);
  }
  std::vector<Thread*> turn, once_more;
  size_t n_alive = next_round.size();
  for (uint64_t round = 0; n_alive; ++round) {
    if (next_round.empty() || round == kStuckRounds) fail("threads wait for each other");
    if (round == kPredecessorRounds) end_predecessor();
    turn.clear();
    turn.swap(next_round);
    std::shuffle(turn.begin(), turn.end(), shuffle_order);
    for (Thread* thread : turn) {
      if (round < thread->block->start || slow.skips(*thread, round)) {
        next_round.push_back(thread);
        continue;
      }
      n_ahead = shuffle_order() % kMostAhead;
      same_round.assign(1, thread);
      while (!same_round.empty()) {
        once_more.clear();
        once_more.swap(same_round);
        std::shuffle(once_more.begin(), once_more.end(), shuffle_order);
        for (Thread* of_warp : once_more) n_alive -= run(*of_warp);
      }
    }
  }
  for (size_t b = 0; b < indices.size(); ++b) {
    if (!blocks[b]->is_untouched(dynamic_bytes)) fail("a block writes behind its shared memory");
    if (!blocks[b]->has_waited) fail("a block ends, and has not waited for the kernel before (E7)");
  }
  at_end();
}

}  // namespace emulator

#endif /* BLINK_EMULATOR_THREADS_H */
