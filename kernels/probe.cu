/* What `blink doctor` runs to learn whether this GPU and driver can do what the scheduler needs
 * (gpu_backend/cuda/probe.py). Compiled as relocatable code and linked with the device runtime, as the
 * scheduler is.
 */
#include "../ringbuffer/ring.h"

extern "C" __global__ void blink_probe_child(uint32_t* counts) {
  counts[1] += 1;
}

/* counts: runs of this kernel, runs of the child, the first launch error. Launches the child and then, behind
 * it, its own graph, until it has run `runs` times. grid (1), block (1). */
extern "C" __global__ void blink_probe_parent(uint32_t* counts, cudaGraphExec_t child, uint32_t runs) {
  counts[0] += 1;
  cudaError_t error = cudaGraphLaunch(child, cudaStreamGraphFireAndForget);
  if (error == cudaSuccess && counts[0] < runs)
    error = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
  if (error != cudaSuccess && counts[2] == 0) counts[2] = error;
}

/* Host memory through its device address. grid (1), block (1). */
extern "C" __global__ void blink_probe_increment(uint64_t* word) {
  *word += 1;
}
