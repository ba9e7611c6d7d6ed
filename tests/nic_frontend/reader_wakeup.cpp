// An event loop that drains between the moment that the reader's thread has marked its eventfd and the moment that it
// writes to it. Exits 1 with a message when the eventfd then stays readable though there is nothing to read.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/nic_frontend/stress_ring.h"

namespace {

enum class Write { kFree, kReached, kLetGo, kDone };
std::atomic<Write> reached{Write::kFree};
std::atomic<int> watched{-1};

void await(Write state) {
  while (reached != state) usleep(100);
}

}  // namespace

// In the C library's place: the reader's thread loses its core just before its first write.
extern "C" ssize_t write(int file, const void* bytes, size_t n) {
  const bool first = file == watched && reached == Write::kFree;
  if (first) {
    reached = Write::kReached;
    await(Write::kLetGo);
  }
  const ssize_t written = syscall(SYS_write, file, bytes, n);
  if (first) reached = Write::kDone;
  return written;
}

int main() {
  uint8_t* region = make_region();
  const blink_reader_options options{0, 100, 20000, 50000, 1000000, 25000000, 2000000000, 1000000000};
  blink_link* link = blink_link_shared_memory(region);
  blink_reader* reader = blink_reader_create(link, &options);
  watched = blink_reader_eventfd(reader);
  if (blink_reader_open(reader, 1, 1)) fail("the reader does not open", 0, 0);
  const uint32_t slot = 0, prompt = 5;
  blink_descriptor descriptor{};
  descriptor.prompt_tokens = 1;
  descriptor.prompt_room = descriptor.output_room = 1;
  blink_reader_submit(reader, 1, &slot, &descriptor, &prompt);
  *word(region, kOutputs) = blink::output_record(7, 0, 1);
  __atomic_store_n(word(region, kProgress), blink::status_word({1, BLINK_STATE_DECODE_PROCESSING, 0, 1}),
                   __ATOMIC_RELEASE);

  blink_event events[8];
  uint32_t tokens[8 * BLINK_EVENT_TOKENS_MAX];
  const auto drain = [&] { return blink_reader_drain(reader, events, 8, tokens, 8 * BLINK_EVENT_TOKENS_MAX); };
  await(Write::kReached);
  if (drain() != 1) fail("the token is not there", slot, 1);
  reached = Write::kLetGo;
  await(Write::kDone);
  drain();
  pollfd wake{watched, POLLIN, 0};
  if (poll(&wake, 1, 0) != 0) fail("the eventfd stays readable", slot, 1);
  blink_reader_destroy(reader);
  blink_link_close(link);
  std::free(region);
  return 0;
}
