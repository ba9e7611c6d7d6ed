// The token reader between an event loop and a scheduler that both run at full speed, for the thread
// sanitizer: every token of every request arrives once, in order, and only for the request that is open.
// Exits 1 with a message when one does not.
#include <random>

#include "tests/nic_frontend/stress_client.h"

namespace {

constexpr uint32_t kRequests = 20000;

}  // namespace

int main() {
  uint8_t* region = make_region();
  const blink_reader_options options{0, 100, 20000, 1000, 100000, 1000000, 2000000000, 1000000000};
  blink_link* link = blink_link_shared_memory(region);
  blink_reader* reader = blink_reader_create(link, &options);
  if (blink_reader_open(reader, 1, 0) != 0) fail("the reader does not open", 0, 0);
  Scheduler scheduler(region);
  std::thread thread([&] { scheduler.run(); });

  Client client(reader);
  std::mt19937 random(1);
  uint32_t submitted = 0;
  while (client.freed < kRequests) {
    for (uint32_t slot = 0; slot < kSlots && submitted < kRequests; ++slot) {
      if (client.slots[slot].busy) continue;
      blink_descriptor descriptor{};
      descriptor.prompt_tokens = 1 + random() % kPrompt;
      descriptor.max_tokens = 1 + random() % kOutput;
      place(descriptor, slot);
      uint32_t prompt[kPrompt];
      for (uint32_t& token : prompt) token = random();
      blink_reader_submit(reader, 1, &slot, &descriptor, prompt);
      client.slots[slot] = {true, true, descriptor.sequence, 0, descriptor.max_tokens, submitted};
      ++submitted;
    }
    const uint32_t victim = random() % kSlots;
    if (random() % 8 == 0) client.cancel(victim);
    client.drain();
  }
  if (!client.lost.empty()) fail("lost", 0, client.lost.front());
  blink_reader_destroy(reader);
  scheduler.stop = true;
  thread.join();
  blink_link_close(link);
  std::free(region);
  return 0;
}
