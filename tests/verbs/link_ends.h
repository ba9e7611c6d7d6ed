// Both ends of a link over the fabric in memory (fake_ibverbs.cpp), connected as the exchange does it.
#ifndef BLINK_TESTS_LINK_ENDS_H
#define BLINK_TESTS_LINK_ENDS_H

#include "gpu_backend/rdma/target.h"
#include "nic_frontend/native/verbs/verbs_link.h"
#include "tests/nic_frontend/stress_ring.h"
#include "tests/verbs/fake_ibverbs.h"

struct Ends {
  blink_rdma_target* target;
  blink_link* link = blink_verbs_open();
  const bool read_back;
  blink_rdma_pairs* pairs = nullptr;

  Ends(uint8_t* region, size_t bytes, bool read_back) : read_back(read_back) {
    char error[BLINK_RDMA_ERROR_BYTES];
    target = blink_rdma_open("", -1, "", region, bytes, error);
    if (!target) fail(error, 0, 0);
    connect();
  }

  ~Ends() {
    blink_link_close(link);
    blink_rdma_pairs_close(pairs);
    blink_rdma_close(target);
  }

  // The old pairs are gone before the new ones are made (V4).
  void connect() {
    char error[BLINK_VERBS_ERROR_BYTES];
    blink_rdma_address ours, theirs;
    blink_verbs_break(link, "it is made again");
    if (pairs) blink_rdma_pairs_close(pairs);
    if (blink_verbs_prepare(link, "", -1, "127.0.0.1", &ours, error)) fail(error, 0, 0);
    pairs = blink_rdma_accept(target, &ours, &theirs, error);
    if (!pairs) fail(error, 0, 0);
    if (blink_verbs_connect(link, &theirs, blink_rdma_region_address(target), blink_rdma_region_key(target), read_back,
                            error))
      fail(error, 0, 0);
  }
};

#endif  // BLINK_TESTS_LINK_ENDS_H
