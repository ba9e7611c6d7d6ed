// A ring and a scheduler stand-in at full speed, for the programs that stress the token reader. The scheduler
// answers with tokens that anyone can check, and says when the protocol is broken.
#ifndef BLINK_TESTS_STRESS_RING_H
#define BLINK_TESTS_STRESS_RING_H

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "nic_frontend/native/crc32c.h"
#include "nic_frontend/native/frontend.h"
#include "ringbuffer/words.h"

constexpr uint32_t kSlots = 64, kPrompt = 16, kOutput = 64, kEpoch = 1;
constexpr uint64_t kLeases = 4096, kAcks = 8192, kWords = 12288, kDescriptors = 16384, kProgress = 32768,
                   kPrompts = 36864, kOutputs = 40960, kEnd = kOutputs + kSlots * kOutput * 8;

[[noreturn]] inline void fail(const char* what, uint32_t slot, uint32_t sequence) {
  std::fprintf(stderr, "%s (slot %u, sequence %u)\n", what, slot, sequence);
  std::exit(1);
}

inline uint32_t expected_token(uint32_t slot, uint32_t sequence, uint32_t position) {
  return slot * 2654435761u ^ sequence * 40503u ^ position * 97u;
}

// What the prefix cache is said to have had of a prompt.
inline uint32_t expected_cached(uint32_t slot, uint32_t sequence) {
  return 1 + (slot + sequence) % 1000;
}

inline uint64_t* word(uint8_t* region, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(region + offset);
}

// Gives a slot's request ranges that no other slot's has: they lie in reverse order.
inline void place(blink_descriptor& descriptor, uint32_t slot) {
  descriptor.prompt_room = kPrompt;
  descriptor.prompt_offset = (kSlots - 1 - slot) * kPrompt;
  descriptor.output_room = kOutput;
  descriptor.output_offset = (kSlots - 1 - slot) * kOutput;
}

// A zeroed region with a header, and its only lease granted for kEpoch.
inline uint8_t* make_region() {
  const auto region = static_cast<uint8_t*>(std::aligned_alloc(4096, (kEnd + 4095) / 4096 * 4096));
  std::memset(region, 0, kEnd);
  const auto header = reinterpret_cast<blink_header*>(region);
  header->n_slots = kSlots;
  header->n_leases = 1;
  header->vocab_size = UINT32_MAX;
  header->prompt_heap = kSlots * kPrompt;
  header->output_heap = kSlots * kOutput;
  header->leases_offset = kLeases;
  header->lease_acks_offset = kAcks;
  header->requests_offset = kWords;
  header->descriptors_offset = kDescriptors;
  header->progress_offset = kProgress;
  header->prompts_offset = kPrompts;
  header->outputs_offset = kOutputs;
  *word(region, kAcks) = blink::pair_word(kEpoch, BLINK_LEASE_GRANTED);
  return region;
}

// Reads a payload once when its word arrives; one that does not match its checksum is read again in every turn
// if `patient`, as the scheduler does (R4), else the protocol is broken.
struct Scheduler {
  explicit Scheduler(uint8_t* region, bool patient = false) : region(region), patient(patient) {}

  uint8_t* region;
  const bool patient;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> torn{0};  // payloads that did not match at the first look
  std::vector<uint32_t> runs;     // how often each request ran, by its seed; may be empty
  struct Row {
    uint64_t seen = 0;
    uint32_t sequence = 0, state = BLINK_STATE_EMPTY, count = 0, limit = 0, output = 0;
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
      row.state = BLINK_STATE_PREFILL_PENDING;
      row.count = 0;
      if (command == BLINK_COMMAND_SUBMIT && !accept(slot)) ++torn;
    } else if (sequence != row.sequence) {
      fail("a request word out of sequence", slot, sequence);
    }
    const bool open = row.state == BLINK_STATE_PREFILL_PENDING || row.state == BLINK_STATE_DECODE_PROCESSING;
    if (command == BLINK_COMMAND_CANCEL && open) {
      row.state = BLINK_STATE_DECODE_COMPLETED;
      publish(slot, BLINK_REASON_CANCELLED);
    }
    if (command == BLINK_COMMAND_RELEASE && row.state == BLINK_STATE_DECODE_COMPLETED) {
      row.state = BLINK_STATE_EMPTY;
      row.count = 0;
      publish(slot, 0);
    }
  }

  // Word by word, as the scheduler loads what another agent may be writing.
  void load(uint64_t offset, void* to, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4) {
      const auto from = reinterpret_cast<uint32_t*>(region + offset + i);
      const uint32_t value = __atomic_load_n(from, __ATOMIC_RELAXED);
      std::memcpy(static_cast<uint8_t*>(to) + i, &value, 4);
    }
  }

  bool accept(uint32_t slot) {
    blink_descriptor descriptor;
    uint32_t prompt[kPrompt];
    load(kDescriptors + slot * sizeof(descriptor), &descriptor, sizeof(descriptor));
    load(kPrompts + descriptor.prompt_offset * 4, prompt, sizeof(prompt));
    const uint32_t crc = blink::crc32c(0, &descriptor, offsetof(blink_descriptor, crc32c));
    const bool whole = descriptor.sequence == rows[slot].sequence && descriptor.epoch == kEpoch &&
                       descriptor.prompt_tokens <= kPrompt &&
                       blink::crc32c(crc, prompt, descriptor.prompt_tokens * 4) == descriptor.crc32c;
    if (!whole) {
      if (!patient) fail("the payload does not match its checksum", slot, descriptor.sequence);
      return false;
    }
    __atomic_store_n(word(region, kProgress + slot * 64 + 8),
                     blink::pair_word(descriptor.sequence, expected_cached(slot, descriptor.sequence)),
                     __ATOMIC_RELAXED);
    rows[slot].limit = descriptor.max_tokens;
    rows[slot].output = descriptor.output_offset;
    rows[slot].state = BLINK_STATE_DECODE_PROCESSING;
    if (!runs.empty() && ++runs[descriptor.seed] > 1) fail("a request ran twice", slot, descriptor.sequence);
    return true;
  }

  void step(uint32_t slot) {
    Row& row = rows[slot];
    if (row.state == BLINK_STATE_PREFILL_PENDING) accept(slot);
    if (row.state != BLINK_STATE_DECODE_PROCESSING) return;
    const uint64_t high = row.count | row.sequence << 20;
    const uint64_t record = expected_token(slot, row.sequence, row.count) | high << 32;
    __atomic_store_n(word(region, kOutputs + (row.output + row.count) * 8), record, __ATOMIC_RELAXED);
    __atomic_store_n(word(region, kProgress + slot * 64 + 16 + row.count % BLINK_INLINE_RECORDS * 8), record,
                     __ATOMIC_RELAXED);
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

#endif  // BLINK_TESTS_STRESS_RING_H
