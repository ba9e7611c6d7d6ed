// The token reader between an event loop and a scheduler that both run at full speed, for the thread
// sanitizer: every token of every request arrives once, in order, and only for the request that is open.
// Exits 1 with a message when one does not.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "nic_frontend/native/crc32c.h"
#include "nic_frontend/native/frontend.h"
#include "ringbuffer/words.h"

namespace {

constexpr uint32_t kSlots = 64, kPrompt = 16, kOutput = 64, kRequests = 20000;
constexpr uint64_t kLeases = 4096, kAcks = 8192, kWords = 12288, kDescriptors = 16384, kProgress = 24576,
                   kPrompts = 28672, kOutputs = 32768, kEnd = kOutputs + kSlots * kOutput * 8;

[[noreturn]] void fail(const char* what, uint32_t slot, uint32_t sequence) {
  std::fprintf(stderr, "%s (slot %u, sequence %u)\n", what, slot, sequence);
  std::exit(1);
}

uint32_t expected_token(uint32_t slot, uint32_t sequence, uint32_t position) {
  return slot * 2654435761u ^ sequence * 40503u ^ position * 97u;
}

uint64_t* word(uint8_t* region, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(region + offset);
}

struct Scheduler {
  explicit Scheduler(uint8_t* region) : region(region) {}

  uint8_t* region;
  std::atomic<bool> stop{false};
  struct Row {
    uint64_t seen = 0;
    uint32_t sequence = 0, state = BLINK_STATE_EMPTY, count = 0, limit = 0;
  } rows[kSlots];

  void publish(uint32_t slot, uint32_t reason) {
    const Row& row = rows[slot];
    const uint64_t high = row.state | reason << 4 | row.count << 12;
    __atomic_store_n(word(region, kProgress + slot * 64), row.sequence | high << 32, __ATOMIC_RELEASE);
  }

  void observe(uint32_t slot) {
    Row& row = rows[slot];
    const uint64_t request = __atomic_load_n(word(region, kWords + slot * 8), __ATOMIC_ACQUIRE);
    if (request == row.seen) return;
    row.seen = request;
    const uint32_t sequence = uint32_t(request), command = request >> 32 & 0xff;
    if (row.state == BLINK_STATE_EMPTY && sequence == row.sequence + 1) {
      row.sequence = sequence;
      row.state = BLINK_STATE_DECODE_PROCESSING;
      row.count = 0;
      if (command == BLINK_COMMAND_SUBMIT) accept(slot);
    }
    if (command == BLINK_COMMAND_CANCEL && row.state == BLINK_STATE_DECODE_PROCESSING) {
      row.state = BLINK_STATE_DECODE_COMPLETED;
      publish(slot, BLINK_REASON_CANCELLED);
    }
    if (command == BLINK_COMMAND_RELEASE && row.state == BLINK_STATE_DECODE_COMPLETED) {
      row.state = BLINK_STATE_EMPTY;
      row.count = 0;
      publish(slot, 0);
    }
  }

  void accept(uint32_t slot) {
    blink_descriptor descriptor;
    std::memcpy(&descriptor, region + kDescriptors + slot * sizeof(descriptor), sizeof(descriptor));
    const uint32_t crc = blink::crc32c(0, &descriptor, offsetof(blink_descriptor, crc32c));
    const void* prompt = region + kPrompts + slot * kPrompt * 4;
    if (blink::crc32c(crc, prompt, descriptor.prompt_tokens * 4) != descriptor.crc32c)
      fail("the payload does not match its checksum", slot, descriptor.sequence);
    rows[slot].limit = descriptor.max_tokens;
  }

  void step(uint32_t slot) {
    Row& row = rows[slot];
    if (row.state != BLINK_STATE_DECODE_PROCESSING) return;
    const uint64_t high = row.count | row.sequence << 20;
    const uint64_t record = expected_token(slot, row.sequence, row.count) | high << 32;
    __atomic_store_n(word(region, kOutputs + (slot * kOutput + row.count) * 8), record, __ATOMIC_RELAXED);
    __atomic_store_n(word(region, kProgress + slot * 64 + 8 + row.count % 7 * 8), record, __ATOMIC_RELAXED);
    if (++row.count == row.limit) row.state = BLINK_STATE_DECODE_COMPLETED;
    publish(slot, row.count == row.limit ? BLINK_REASON_LENGTH : 0);
  }

  void run() {
    while (!stop) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) observe(slot);
      for (uint32_t slot = 0; slot < kSlots; ++slot) step(slot);
      std::this_thread::yield();
    }
  }
};

}  // namespace

int main() {
  auto region = static_cast<uint8_t*>(std::aligned_alloc(4096, (kEnd + 4095) / 4096 * 4096));
  std::memset(region, 0, kEnd);
  auto header = reinterpret_cast<blink_header*>(region);
  header->n_slots = kSlots;
  header->n_leases = 1;
  header->prompt_capacity = kPrompt;
  header->output_capacity = kOutput;
  header->leases_offset = kLeases;
  header->lease_acks_offset = kAcks;
  header->requests_offset = kWords;
  header->descriptors_offset = kDescriptors;
  header->progress_offset = kProgress;
  header->prompts_offset = kPrompts;
  header->outputs_offset = kOutputs;
  *word(region, kAcks) = blink::pair_word(1, BLINK_LEASE_GRANTED);

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
