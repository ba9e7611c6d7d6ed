/* How a test steers fake_ibverbs.cpp. */
#ifndef BLINK_TESTS_FAKE_IBVERBS_H
#define BLINK_TESTS_FAKE_IBVERBS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on one work request in so many breaks its queue pair; 0 is never. */
void fake_verbs_break_one_in(uint32_t work_requests);

/* From now on the completion of a WRITE is reported that much later than it is executed. */
void fake_verbs_delay_writes(uint32_t us);

/* From now on no dma-buf can be registered, as with a driver that does not support it; 0: it can. */
void fake_verbs_no_dmabuf(uint32_t yes);

/* A registered region. `file` is the inode of a dma-buf, whose registered part begins at `file_offset`; 0 where the
 * region is of this process's memory. */
struct fake_verbs_region {
  uint64_t address, bytes, file, file_offset, access;
};
/* 0 where no region has this key. */
int fake_verbs_region(uint32_t key, struct fake_verbs_region* found);

/* Since the last look. */
struct fake_verbs_counts {
  uint64_t broken;         /* queue pairs */
  uint64_t overtaken;      /* READs that a WRITE without a fence has overtaken */
  uint64_t words_together; /* most inline words in one call of ibv_post_send: one doorbell */
  uint64_t doorbells;      /* calls of ibv_post_send */
  uint64_t reads, writes;  /* work requests that were posted */
};
void fake_verbs_counts(struct fake_verbs_counts* counts);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_TESTS_FAKE_IBVERBS_H */
