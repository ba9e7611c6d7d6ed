/* The C interface of libblink_rdma.so: the ring, registered, and the passive end of frontends' queue pairs.
 *
 * Nothing here ever posts a work request or polls for one: after set-up the device alone serves the frontends
 * (V8). Functions that can fail return NULL and say why in `error`, which holds BLINK_RDMA_ERROR_BYTES.
 */
#ifndef BLINK_BACKEND_RDMA_TARGET_H
#define BLINK_BACKEND_RDMA_TARGET_H

#include "ringbuffer/rdma/address.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_RDMA_EXPORT __attribute__((visibility("default")))
#define BLINK_RDMA_ERROR_BYTES 512u

struct blink_rdma_target;
struct blink_rdma_pairs;

/* Registers `bytes` of host memory at `memory`, which the caller keeps mapped until after `close`. `device` is a name,
 * or empty; `gid_index` an index, or -1; `local_address` the IP address that the exchange listens on, or empty. */
BLINK_RDMA_EXPORT struct blink_rdma_target* blink_rdma_open(const char* device, int32_t gid_index,
                                                            const char* local_address, void* memory, uint64_t bytes,
                                                            char* error);
/* The same for GPU memory exported as a dma-buf, which may be closed once this has returned. Has run over a fake of
 * libibverbs alone. */
BLINK_RDMA_EXPORT struct blink_rdma_target* blink_rdma_open_dmabuf(const char* device, int32_t gid_index,
                                                                   const char* local_address, int32_t dmabuf,
                                                                   uint64_t offset, uint64_t bytes, char* error);
/* After all of its pairs. */
BLINK_RDMA_EXPORT void blink_rdma_close(struct blink_rdma_target* target);
/* What a frontend addresses the region's first byte by. */
BLINK_RDMA_EXPORT uint64_t blink_rdma_region_address(struct blink_rdma_target* target);
BLINK_RDMA_EXPORT uint32_t blink_rdma_region_key(struct blink_rdma_target* target);

/* Queue pairs connected to `theirs`; fills in where they are. */
BLINK_RDMA_EXPORT struct blink_rdma_pairs* blink_rdma_accept(struct blink_rdma_target* target,
                                                             const struct blink_rdma_address* theirs,
                                                             struct blink_rdma_address* ours, char* error);
/* Destroys them: from then on nothing that the frontend posts reaches the region (V4). */
BLINK_RDMA_EXPORT void blink_rdma_pairs_close(struct blink_rdma_pairs* pairs);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_BACKEND_RDMA_TARGET_H */
