#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "nic_frontend/native/crc32c.h"
#include "nic_frontend/native/frontend.h"
#include "nic_frontend/native/link.h"
#include "nic_frontend/native/token_reader.h"
#include "nic_frontend/native/watchdog.h"

struct blink_reader {
  blink::TokenReader reader;
};
struct blink_watchdog {
  blink::Watchdog watchdog;
};

extern "C" {

blink_link* blink_link_shared_memory(void* address) {
  return new blink_link{blink::make_shared_memory_link(address)};
}
void blink_link_close(blink_link* link) {
  delete link;
}
int blink_link_read(blink_link* link, uint64_t offset, void* to, uint64_t bytes) {
  return link->link->read(offset, static_cast<uint64_t*>(to), bytes / 8) ? 0 : 1;
}
void blink_link_write(blink_link* link, uint64_t offset, const void* from, uint64_t bytes, uint64_t room) {
  link->link->write({offset, from, bytes, room});
}
void blink_link_publish(blink_link* link, uint64_t offset, uint64_t word) {
  link->link->publish(offset, word);
}

uint32_t blink_crc32c(uint32_t crc, const void* data, uint64_t bytes) {
  return blink::crc32c(crc, data, bytes);
}
uint32_t blink_crc32c_table(uint32_t crc, const void* data, uint64_t bytes) {
  return blink::crc32c_table(crc, data, bytes);
}

blink_reader* blink_reader_create(blink_link* link, const blink_reader_options* options) {
  uint64_t words[sizeof(blink_header) / 8];
  if (!link->link->read(0, words, sizeof(words) / 8)) {
    errno = ENOTCONN;
    return nullptr;
  }
  blink_header header;
  std::memcpy(&header, words, sizeof(header));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return wake < 0 ? nullptr : new blink_reader{{*link->link, header, *options, wake}};
}
void blink_reader_destroy(blink_reader* reader) {
  delete reader;
}
int blink_reader_eventfd(blink_reader* reader) {
  return reader->reader.eventfd();
}
uint32_t blink_reader_open(blink_reader* reader, uint32_t epoch, uint32_t beat) {
  return reader->reader.open(epoch, beat);
}
uint32_t blink_reader_submit(blink_reader* reader, uint32_t n, const uint32_t* slots, blink_descriptor* descriptors,
                             const uint32_t* prompts) {
  return reader->reader.submit(n, slots, descriptors, prompts);
}
void blink_reader_cancel(blink_reader* reader, uint32_t slot, uint32_t sequence) {
  reader->reader.cancel(slot, sequence);
}
uint32_t blink_reader_drain(blink_reader* reader, blink_event* events, uint32_t max_events, uint32_t* tokens,
                            uint32_t max_tokens) {
  return reader->reader.drain(events, max_events, tokens, max_tokens);
}
void blink_reader_health(blink_reader* reader, struct blink_health* health) {
  *health = reader->reader.health();
}

blink_watchdog* blink_watchdog_create(uint64_t limit_ns) {
  return new blink_watchdog{blink::Watchdog(limit_ns)};
}
void blink_watchdog_beat(blink_watchdog* watchdog) {
  watchdog->watchdog.beat();
}
void blink_watchdog_destroy(blink_watchdog* watchdog) {
  delete watchdog;
}

}  // extern "C"
