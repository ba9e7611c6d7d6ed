/* The C interface of libblink_verbs.so: a link over RDMA, for the functions of frontend.h that take a link.
 *
 * A library of its own, because it needs libibverbs, which a frontend beside its backend has no use for. The
 * link starts down; `prepare` and `connect` make a connection, at first and again after one has broken. Both
 * come from one thread at a time. Functions that can fail return nonzero or NULL, and say why in `error`, which
 * holds BLINK_VERBS_ERROR_BYTES.
 */
#ifndef BLINK_FRONTEND_VERBS_LINK_H
#define BLINK_FRONTEND_VERBS_LINK_H

#include "nic_frontend/native/frontend.h"
#include "ringbuffer/rdma/address.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_VERBS_ERROR_BYTES 512u

BLINK_EXPORT struct blink_link* blink_verbs_open(void);

/* Opens a device and makes queue pairs. `device` is a name, or empty; `gid_index` an index, or -1;
 * `local_address` the IP address through which the exchange reached the backend. Fills in where they are. */
BLINK_EXPORT int blink_verbs_prepare(struct blink_link* link, const char* device, int32_t gid_index,
                                     const char* local_address, struct blink_rdma_address* ours, char* error);

/* Connects what `prepare` made to the backend's queue pairs, and puts it in the place of the connection before.
 * The region is at `address` of remote key `key`. `read_back`: a READ between payload and word (V3). */
BLINK_EXPORT int blink_verbs_connect(struct blink_link* link, const struct blink_rdma_address* theirs, uint64_t address,
                                     uint32_t key, uint32_t read_back, char* error);

/* Breaks the connection, if there is one: the backend has. */
BLINK_EXPORT void blink_verbs_break(struct blink_link* link, const char* why);

/* Nonzero while the link is down; `error` then says why. */
BLINK_EXPORT int blink_verbs_down(struct blink_link* link, char* error);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_FRONTEND_VERBS_LINK_H */
