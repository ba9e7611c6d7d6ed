// The token reader between an event loop and a scheduler that both run at full speed, for the thread
// sanitizer: every token of every request arrives once, in order, and only for the request that is open.
// Exits 1 with a message when one does not.
#include <random>

#include "tests/nic_frontend/stress_ring.h"

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

  struct Open {
    bool open = false, cancelled = false, busy = false;
    uint32_t sequence = 0, next = 0, limit = 0;
  } slots[kSlots];
  std::mt19937 random(1);
  std::vector<blink_event> events(256);
  std::vector<uint32_t> tokens(1024);
  uint32_t submitted = 0, freed = 0;
  while (freed < kRequests) {
    for (uint32_t slot = 0; slot < kSlots && submitted < kRequests; ++slot) {
      if (slots[slot].busy) continue;
      blink_descriptor descriptor{};
      descriptor.prompt_tokens = 1 + random() % kPrompt;
      descriptor.max_tokens = 1 + random() % kOutput;
      uint32_t prompt[kPrompt];
      for (uint32_t& token : prompt) token = random();
      blink_reader_submit(reader, 1, &slot, &descriptor, prompt);
      slots[slot] = {true, false, true, descriptor.sequence, 0, descriptor.max_tokens};
      ++submitted;
    }
    const uint32_t victim = random() % kSlots;
    if (random() % 8 == 0 && slots[victim].open) {
      blink_reader_cancel(reader, victim, slots[victim].sequence);
      slots[victim].open = false;
      slots[victim].cancelled = true;
    }
    const uint32_t n =
        blink_reader_drain(reader, events.data(), uint32_t(events.size()), tokens.data(), uint32_t(tokens.size()));
    const uint32_t* token = tokens.data();
    for (uint32_t i = 0; i < n; token += events[i].n_tokens, ++i) {
      const blink_event& event = events[i];
      Open& slot = slots[event.slot];
      if (!slot.busy || slot.sequence != event.sequence) fail("another request's event", event.slot, event.sequence);
      for (uint32_t t = 0; t < event.n_tokens; ++t, ++slot.next) {
        if (token[t] != expected_token(event.slot, event.sequence, slot.next))
          fail("a wrong token", event.slot, event.sequence);
      }
      if (event.kind == BLINK_EVENT_FINISHED) {
        if (slot.next != slot.limit) fail("tokens are missing", event.slot, event.sequence);
        slot.open = false;
      } else if (event.kind == BLINK_EVENT_FREED) {
        if (slot.open) fail("freed while open", event.slot, event.sequence);
        slot.busy = false;
        ++freed;
      }
    }
  }
  blink_reader_destroy(reader);
  scheduler.stop = true;
  thread.join();
  blink_link_close(link);
  std::free(region);
  return 0;
}
