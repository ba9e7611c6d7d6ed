/* The echo as one persistent thread block. Compiled like the scheduler (kernels/scheduler/scheduler.cu). */
#include "echo.h"
#include "kernels/scheduler/device.cuh"

extern "C" __global__ void __launch_bounds__(BLINK_SCHEDULER_THREADS, 1)
    blink_echo(uint8_t* ring, blink_echo_slot* slots, uint64_t step_ns) {
  __shared__ blink::DevicePlatform::Scratch scratch;
  blink::DevicePlatform platform(scratch);
  blink::Echo<blink::DevicePlatform>(platform, ring, slots, step_ns).run();
}
