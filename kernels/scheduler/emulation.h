/* The scheduler on the CPU: the same policy, run by host threads, with an engine behind a launcher that enforces CUDA's
 * rules. */
#ifndef BLINK_SCHEDULER_EMULATION_H
#define BLINK_SCHEDULER_EMULATION_H

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct blink_emulation blink_emulation;

/* Runs one step: shape and step set as launched. Called from the launcher's thread, one call at a time, in order of
 * step id. It publishes *tables.completed before it returns (E1). */
typedef void (*blink_run_step)(void* context, uint32_t shape, uint32_t set);

/* Starts `n_threads` policy threads and the launcher's thread. The configuration is copied. */
blink_emulation* blink_emulation_start(const struct blink_scheduler_config* config, blink_run_step run, void* context,
                                       uint32_t n_threads);

/* 1 when the scheduler has stopped (drained, told to stop, or failed), 0 when `timeout_ms` passed first. */
int blink_emulation_wait(blink_emulation* emulation, uint32_t timeout_ms);

/* The first launch rule that was broken, or "". */
const char* blink_emulation_violation(const blink_emulation* emulation);

/* Joins the threads: the scheduler must have stopped. */
void blink_emulation_destroy(blink_emulation* emulation);

#ifdef __cplusplus
}
#endif

#endif
