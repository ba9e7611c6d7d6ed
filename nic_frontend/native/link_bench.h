/* Measures a link and the token reader over it, against an echo that answers in the scheduler's place
 * (kernels/echo/echo.h). The loops are here so that what is measured is not Python.
 */
#ifndef BLINK_FRONTEND_LINK_BENCH_H
#define BLINK_FRONTEND_LINK_BENCH_H

#include "nic_frontend/native/frontend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds of one request of one token. */
struct blink_trip {
  uint64_t posted; /* submission: until the call returned */
  uint64_t answer; /* submission, until its token was read */
  uint64_t word;   /* RELEASE, until EMPTY was read: one word there and one back */
};

/* n requests with prompts of `prompt_tokens`, one after the other in `slot`, idle under a granted lease of this epoch.
 * Returns how many were answered: fewer than n when one took longer than `timeout_ns`, or the link is down. */
BLINK_EXPORT uint32_t blink_link_trips(struct blink_link* link, uint32_t slot, uint32_t epoch, uint32_t prompt_tokens,
                                       uint32_t n, uint64_t timeout_ns, struct blink_trip* trips);

struct blink_drained {
  uint64_t tokens;
  uint64_t wall_ns;
  uint64_t cpu_ns; /* of this process, all threads */
};

/* One request of `max_tokens` in each of the reader's slots 0..n-1, until all have ended. `link` is the reader's.
 * Nonzero: not in time. */
BLINK_EXPORT int blink_reader_drain_all(struct blink_reader* reader, struct blink_link* link, uint32_t n,
                                        uint32_t prompt_tokens, uint32_t max_tokens, uint64_t timeout_ns,
                                        struct blink_drained* result);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_FRONTEND_LINK_BENCH_H */
