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

// Bytes for the ring, by byte offset there. `room` bytes from there on are the writer's to overwrite: nobody reads what
// lies in them behind the `bytes`.
struct Piece {
  uint64_t offset;
  const void* from;
  size_t bytes, room;
};

// One submission's payload and the word that publishes it.
struct Submission {
  Piece prompt, descriptor;
  uint64_t word_offset, word;
};

class Link {
 public:
  virtual ~Link() = default;

  // Copies `words` 8-byte words from an aligned offset. Each word arrives whole, in no order among them. What
  // was published before a word that this call returned is visible to the next call: an RDMA READ's
  // completion gives that, an acquire fence here. False when the link is down: `to` is then unspecified.
  virtual bool read(uint64_t offset, uint64_t* to, size_t words) = 0;

  // to[i] = the progress entry at `table` with index entries[i]: one bulk READ of the span over RDMA. Ordered
  // as `read`, and false when the link is down.
  virtual bool gather(uint64_t table, const uint32_t* entries, size_t n, blink_progress* to) = 0;

  // Writes payload. Visible at the latest with the next `publish`.
  virtual void write(const Piece& piece) = 0;

  // Stores one aligned word after everything this thread wrote before (R2). On a link that is down it is lost.
  virtual void publish(uint64_t offset, uint64_t word) = 0;

  // A burst: each word is stored after its payload (R2). One doorbell over RDMA. Returns which of `connections` it
  // went over, so that it can be known later whether that one has broken.
  virtual uint32_t submit(const Submission* burst, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      write(burst[i].prompt);
      write(burst[i].descriptor);
      publish(burst[i].word_offset, burst[i].word);
    }
    return connections();
  }

  // Goes on with writes that have found no room yet. Whether some still wait: then it is to be called again soon, for
  // whatever is written next, the lease's beat too, waits behind them.
  virtual bool go_on_writing() { return false; }

  // A mapping is never down. A connection that broke is, until it has been made again; `connections` then counts
  // one more, and what was written or published over the one before has arrived or never will (V4).
  virtual bool down() const { return false; }
  virtual uint32_t connections() const { return 1; }
};

std::unique_ptr<Link> make_shared_memory_link(void* address);

}  // namespace blink

// What C callers hold (frontend.h).
struct blink_link {
  std::unique_ptr<blink::Link> link;
};

#endif  // BLINK_FRONTEND_LINK_H
