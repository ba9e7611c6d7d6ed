// What the token reader needs of a transport: one-sided access to the ring by byte offset.
// shared_memory_link.cpp maps it; an RDMA link posts work requests. Thread-safe: the event loop submits while
// the reader polls.
#ifndef BLINK_FRONTEND_LINK_H
#define BLINK_FRONTEND_LINK_H

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ringbuffer/ring.h"

namespace blink {

class Link {
 public:
  virtual ~Link() = default;

  // Copies `words` 8-byte words from an aligned offset. Each word arrives whole, in no order among them. What
  // was published before a word that this call returned is visible to the next call: an RDMA READ's
  // completion gives that, an acquire fence here.
  virtual void read(uint64_t offset, uint64_t* to, size_t words) = 0;

  // to[i] = the progress entry at `table` with index entries[i]: one bulk READ of the span over RDMA. Ordered
  // as `read`.
  virtual void gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) = 0;

  // Writes payload. Visible at the latest with the next `publish`.
  virtual void write(uint64_t offset, const void* from, size_t bytes) = 0;

  // Stores one aligned word after everything this thread wrote before (R2).
  virtual void publish(uint64_t offset, uint64_t word) = 0;
};

std::unique_ptr<Link> make_shared_memory_link(void* address);

}  // namespace blink

#endif  // BLINK_FRONTEND_LINK_H
