/* The persistent scheduler kernel: a one-node graph, launched once by the host, that from then on relaunches itself.
 *
 * Compiled with NVRTC (-rdc) and linked with libcudadevrt by gpu_backend/cuda/compile.py; by hand:
 *   nvcc -arch=sm_90a -rdc=true -dc kernels/scheduler/scheduler.cu
 */
#include "device.cuh"
#include "scheduler.h"

extern "C" __global__ void __launch_bounds__(BLINK_SCHEDULER_THREADS, 1)
    blink_scheduler(const __grid_constant__ blink_scheduler_config config) {
  __shared__ blink::DevicePlatform::Scratch scratch;
  blink::DevicePlatform platform(scratch);
  blink::Scheduler<blink::DevicePlatform>(platform, config).run();
}
