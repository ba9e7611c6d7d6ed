/* Host-driven schedulers: the same policy, graphs and ring as the GPU's scheduler, but a host thread plans each step,
 * launches it and takes its tokens. For comparison (design names: kDesigns in pipeline.h). */
#ifndef BLINK_DRIVEN_H
#define BLINK_DRIVEN_H

#include "../emulation.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct blink_driven blink_driven;

/* Both start the scheduler's thread and return it, or null with the reason in `error`.
 *
 * `config` is the policy's: everything in it lies in host memory, on a GPU in pinned memory. Its arm_margin_ns is not
 * used. `tables` and `sets` [BLINK_STEP_SETS] are what the engine's executables are bound to; each set is one block
 * with the layout of the policy's own. All of it is copied. */
blink_driven* blink_driven_start_emulated(const char* design, const struct blink_scheduler_config* config,
                                          const struct blink_tables* tables, const struct blink_step_set* sets,
                                          blink_run_step run, void* run_context, char* error, uint32_t error_bytes);
blink_driven* blink_driven_start_cuda(const char* design, const struct blink_scheduler_config* config,
                                      const struct blink_tables* tables, const struct blink_step_set* sets,
                                      void* cuda_context, const uint64_t* executables, char* error,
                                      uint32_t error_bytes);

/* 1 when the scheduler has stopped (drained, told to stop, or failed), 0 when `timeout_ms` passed first. */
int blink_driven_wait(blink_driven* driven, uint32_t timeout_ms);

/* Processor time that the scheduler's thread has used, in nanoseconds: all of it, waiting included. */
uint64_t blink_driven_cpu_ns(blink_driven* driven);

/* From now on the thread keeps busy for so long before it launches a step, as a host loop with more to do would. */
void blink_driven_slow_down(blink_driven* driven, uint64_t work_ns);

/* Joins the thread: the scheduler must have stopped. */
void blink_driven_destroy(blink_driven* driven);

#ifdef __cplusplus
}
#endif

#endif
