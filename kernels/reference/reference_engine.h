/* The reference engine: runs steps on the CPU with the ops' references. It is the engine where there is no GPU, and the
 * oracle of the others.
 *
 * Completion is published as a GPU publishes it (E1), so the scheduler does not know the difference. Steps
 * run one at a time, on whichever thread calls blink_reference_engine_run.
 */
#ifndef BLINK_REFERENCE_REFERENCE_ENGINE_H
#define BLINK_REFERENCE_REFERENCE_ENGINE_H

#include "model.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A new engine, or null with the reason in `error`. The structures are copied; what they point to must
 * outlive the engine. `sets` has BLINK_STEP_SETS elements. `total_pages` sizes the KV cache, `host_pages` where
 * copy steps keep pages. `n_threads` counts the thread that runs the steps. */
void* blink_reference_engine_create(const struct blink_model* model, const struct blink_tables* tables,
                                    const struct blink_step_set* sets, const struct blink_shape* shapes,
                                    uint32_t n_shapes, uint32_t total_pages, uint32_t host_pages, uint32_t n_threads,
                                    char* error, uint32_t error_bytes);

/* Runs the step that set `set` describes on shape `shape`, and publishes its completion. */
void blink_reference_engine_run(void* engine, uint32_t shape, uint32_t set);

/* fp32 logits [batch_slots][vocab_size] of the last step, before penalties; valid until the next step. */
const float* blink_reference_engine_logits(const void* engine);

void blink_reference_engine_destroy(void* engine);

/* What the library was built from: a caller built from other headers must not go on. */
uint64_t blink_host_step_layout_hash(void);
uint64_t blink_host_model_layout_hash(void);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_REFERENCE_REFERENCE_ENGINE_H */
