/* What launching a graph costs on the device, and what the scheduler's look at the ring does (graph_launches.py).
 * Compiled as the scheduler is: relocatable code, linked with the device runtime. */
#include "../../kernels/scheduler/device.cuh"
#include "../../kernels/scheduler/scan.h"

namespace {

constexpr unsigned long long kPatienceNs = 1000000000;  // for one run, and for one launch to be accepted
constexpr unsigned kRestNs = 20000;                     // after a run, until the runtime has retired it

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__device__ unsigned long long acquire(const unsigned long long* p) {
  unsigned long long v;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

__device__ void release(unsigned long long* p, unsigned long long v) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

}  // namespace

/* What the runs of all graphs share. */
struct blink_runs {
  unsigned long long completed; /* runs, which is the number of the one that is next */
  unsigned leaves;              /* of the run under way that have ended */
  unsigned error;               /* the first that a launch met; 1000 where a run or a launch took too long */
  unsigned refused;             /* launches that were tried again */
  unsigned capacity;            /* of `started`, `asked` and `returned` */
};

namespace {

__device__ bool wait_for(blink_runs* runs, unsigned long long completed) {
  const unsigned long long begin = now();
  while (acquire(&runs->completed) < completed) {
    if (now() - begin > kPatienceNs) return runs->error = 1000, false;
  }
  __nanosleep(kRestNs);
  return true;
}

/* One launch that is accepted, and when: an executable is refused while its last run has not been retired. */
__device__ bool launch(cudaGraphExec_t executable, cudaStream_t how, blink_runs* runs, unsigned long long* asked,
                       unsigned long long* returned) {
  const unsigned long long begin = now();
  for (;;) {
    __threadfence();
    *asked = now();
    const cudaError_t error = cudaGraphLaunch(executable, how);
    *returned = now();
    if (error == cudaSuccess) return true;
    ++runs->refused;
    if (*returned - begin > kPatienceNs) return runs->error = error, false;
    __nanosleep(kRestNs);
  }
}

}  // namespace

/* A node of a graph that is launched. Roots tell when the run started, and the last of `leaves` leaves that it ended.
 * grid (1), block (32). */
extern "C" __global__ void blink_node(blink_runs* runs, unsigned long long* started, unsigned is_root,
                                      unsigned leaves) {
  if (threadIdx.x != 0) return;
  const unsigned long long begin = now();
  const unsigned long long run = acquire(&runs->completed);
  if (is_root && run < runs->capacity) atomicMin(started + run, begin);
  if (leaves && atomicAdd(&runs->leaves, 1) + 1 == leaves) {
    runs->leaves = 0;
    __threadfence();
    release(&runs->completed, run + 1);
  }
}

/* Launches one of three executables of one graph after the other, `n` times, and waits for each. `is_tail`: once, and
 * it runs when this kernel has ended. grid (1), block (1); n is at most the device runtime's limit of 120. */
extern "C" __global__ void blink_launcher(blink_runs* runs, unsigned long long* asked, unsigned long long* returned,
                                          cudaGraphExec_t first, cudaGraphExec_t second, cudaGraphExec_t third,
                                          unsigned n, unsigned is_tail) {
  const cudaGraphExec_t executables[] = {first, second, third};
  for (unsigned i = 0; i < n && runs->error == 0; ++i) {
    const unsigned long long run = runs->completed;
    if (run >= runs->capacity) return;
    const cudaStream_t how = is_tail ? cudaStreamGraphTailLaunch : cudaStreamGraphFireAndForget;
    if (!launch(executables[i % 3], how, runs, asked + run, returned + run)) return;
    if (!is_tail && !wait_for(runs, run + 1)) return;
  }
}

/* A window of the persistent scheduler without its work: `n` launches one after the other, and then this kernel once
 * more. Entry k of `begun` and `asked` is the kernel's k-th execution, `past[0]` their number until now, and it ends
 * after `executions`. grid (1), block (BLINK_SCHEDULER_THREADS). */
extern "C" __global__ void __launch_bounds__(BLINK_SCHEDULER_THREADS, 1)
    blink_window(blink_runs* runs, unsigned long long* begun, unsigned long long* asked, unsigned* past,
                 cudaGraphExec_t first, cudaGraphExec_t second, cudaGraphExec_t third, unsigned n,
                 unsigned executions) {
  if (threadIdx.x != 0) return;
  const unsigned long long begin = now();
  const unsigned execution = (*past)++;
  begun[execution] = begin;
  const cudaGraphExec_t executables[] = {first, second, third};
  unsigned long long ignored[2];
  for (unsigned i = 0; i < n; ++i) {
    const unsigned long long run = runs->completed;
    if (!launch(executables[i % 3], cudaStreamGraphFireAndForget, runs, ignored, ignored + 1)) return;
    if (!wait_for(runs, run + 1)) return;
  }
  if (execution + 1 == executions) return;
  __threadfence();
  asked[execution] = now();
  const cudaError_t error = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
  if (error != cudaSuccess) runs->error = error;
}

/* The scheduler's look at the ring when nothing has changed, `rounds` times: every word, and the barrier in which the
 * threads agree on it. took[i]: nanoseconds of a round. found: words that were not as `seen`.
 * grid (1), block (BLINK_SCHEDULER_THREADS). */
extern "C" __global__ void __launch_bounds__(BLINK_SCHEDULER_THREADS, 1)
    blink_scan(const unsigned long long* words, const unsigned long long* seen, unsigned n_slots, unsigned rounds,
               unsigned long long* took, unsigned* found) {
  __shared__ blink::DevicePlatform::Scratch scratch;
  blink::DevicePlatform platform(scratch);
  for (unsigned round = 0; round < rounds; ++round) {
    platform.sync();
    const unsigned long long begin = now();
    unsigned changed = 0;
    blink::scan_words(platform, reinterpret_cast<const uint64_t*>(words), reinterpret_cast<const uint64_t*>(seen),
                      n_slots, [&](uint32_t) { ++changed; });
    changed = platform.reduce(changed, blink::Sum());
    if (threadIdx.x == 0) {
      took[round] = now() - begin;
      *found = changed;
    }
  }
}

/* Answers the host's question, so that both clocks can be compared: told[0] is this GPU's time when `asked[0]` became
 * `n`. Both lie in host memory. grid (1), block (1). */
extern "C" __global__ void blink_clock(const unsigned long long* asked, unsigned long long* told, unsigned rounds) {
  for (unsigned round = 1; round <= rounds; ++round) {
    const unsigned long long begin = now();
    unsigned long long question;
    do {
      asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(question) : "l"(asked) : "memory");
      if (now() - begin > kPatienceNs) return;
    } while (question < round);
    told[0] = now();
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(told + 1), "l"((unsigned long long)round) : "memory");
  }
}
