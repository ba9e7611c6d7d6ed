/* Where one side's queue pairs are, as the exchange carries it (messages.py, EndpointAddress). C, for ctypes. */
#ifndef BLINK_RDMA_ADDRESS_H
#define BLINK_RDMA_ADDRESS_H

#include <stdint.h>

#define BLINK_RDMA_QUEUE_PAIRS 2u /* submission and retrieval (V2) */

struct blink_rdma_address {
  uint8_t gid[16];
  uint32_t lid;   /* InfiniBand only */
  uint32_t mtu;   /* enum ibv_mtu */
  uint32_t reads; /* RDMA READs that may be under way at once */
  uint32_t numbers[BLINK_RDMA_QUEUE_PAIRS];
  uint32_t first_packets[BLINK_RDMA_QUEUE_PAIRS]; /* packet sequence numbers */
};

#endif /* BLINK_RDMA_ADDRESS_H */
