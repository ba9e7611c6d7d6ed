#include "nic_frontend/native/link_bench.h"

#include <poll.h>
#include <time.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "nic_frontend/native/clock.h"
#include "nic_frontend/native/crc32c.h"
#include "nic_frontend/native/link.h"
#include "ringbuffer/words.h"

namespace {

using blink::monotonic_ns;

blink_descriptor request(uint32_t prompt_tokens, uint32_t max_tokens, uint64_t seed) {
  blink_descriptor descriptor{};
  descriptor.prompt_tokens = prompt_tokens;
  descriptor.max_tokens = max_tokens;
  descriptor.seed = seed;
  descriptor.top_p = descriptor.repetition_penalty = 1;
  return descriptor;
}

bool read_header(blink::Link& link, blink_header& header) {
  uint64_t words[sizeof(header) / 8];
  if (!link.read(0, words, sizeof(words) / 8)) return false;
  std::memcpy(&header, words, sizeof(header));
  return true;
}

// Lease 0's heaps, divided evenly among its slots.
void place(blink_descriptor& descriptor, uint32_t slot, const blink_header& header) {
  const uint32_t slots = header.n_slots / header.n_leases;
  descriptor.prompt_room = header.prompt_heap / slots;
  descriptor.prompt_offset = slot * descriptor.prompt_room;
  descriptor.output_room = header.output_heap / slots;
  descriptor.output_offset = slot * descriptor.output_room;
}

class Trips {
 public:
  Trips(blink::Link& link, const blink_header& header, uint32_t slot, uint32_t epoch, uint32_t prompt_tokens,
        uint64_t timeout_ns)
      : link_(link), header_(header), slot_(slot), epoch_(epoch), timeout_ns_(timeout_ns), prompt_(prompt_tokens) {}

  bool start() {
    uint64_t word;
    if (!link_.read(request_offset(), &word, 1)) return false;
    sequence_ = blink::low(word);
    return true;
  }

  bool once(blink_trip* trip) {
    ++sequence_;
    for (uint32_t& token : prompt_) token = sequence_;
    blink_descriptor descriptor = request(uint32_t(prompt_.size()), 1, sequence_);
    place(descriptor, slot_, header_);
    descriptor.sequence = sequence_;
    descriptor.epoch = epoch_;
    const size_t prompt_bytes = prompt_.size() * sizeof(uint32_t);
    const uint32_t crc = blink::crc32c(0, &descriptor, offsetof(blink_descriptor, crc32c));
    descriptor.crc32c = blink::crc32c(crc, prompt_.data(), prompt_bytes);
    blink::Submission submission;
    submission.prompt = {header_.prompts_offset + descriptor.prompt_offset * sizeof(uint32_t), prompt_.data(),
                         prompt_bytes, descriptor.prompt_room * sizeof(uint32_t)};
    submission.descriptor = {header_.descriptors_offset + slot_ * sizeof(descriptor), &descriptor, sizeof(descriptor),
                             sizeof(descriptor)};
    submission.word_offset = request_offset();
    submission.word = blink::request_word(sequence_, BLINK_COMMAND_SUBMIT, epoch_);
    const uint64_t began = monotonic_ns();
    link_.submit(&submission, 1);
    trip->posted = monotonic_ns() - began;
    if (!reached(BLINK_STATE_DECODE_COMPLETED)) return false;
    const uint64_t answered = monotonic_ns();
    trip->answer = answered - began;
    link_.publish(request_offset(), blink::request_word(sequence_, BLINK_COMMAND_RELEASE, epoch_));
    if (!reached(BLINK_STATE_EMPTY)) return false;
    trip->word = monotonic_ns() - answered;
    return true;
  }

 private:
  uint64_t request_offset() const { return header_.requests_offset + slot_ * sizeof(uint64_t); }

  bool reached(uint32_t state) {
    const uint64_t began = monotonic_ns();
    blink_progress entry;
    do {
      if (!link_.gather(header_.progress_offset, &slot_, 1, &entry)) return false;
      const blink::Status status = blink::unpack_status(entry.status);
      if (status.sequence == sequence_ && status.state == state) return true;
    } while (monotonic_ns() - began < timeout_ns_);
    return false;
  }

  blink::Link& link_;
  const blink_header& header_;
  const uint32_t slot_, epoch_;
  const uint64_t timeout_ns_;
  uint32_t sequence_ = 0;
  std::vector<uint32_t> prompt_;
};

uint64_t cpu_ns() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return uint64_t(time.tv_sec) * 1000000000 + uint64_t(time.tv_nsec);
}

}  // namespace

extern "C" {

uint32_t blink_link_trips(blink_link* link, uint32_t slot, uint32_t epoch, uint32_t prompt_tokens, uint32_t n,
                          uint64_t timeout_ns, blink_trip* trips) {
  blink_header header;
  if (!read_header(*link->link, header)) return 0;
  Trips measured(*link->link, header, slot, epoch, prompt_tokens, timeout_ns);
  if (!measured.start()) return 0;
  uint32_t done = 0;
  while (done < n && measured.once(&trips[done])) ++done;
  return done;
}

int blink_reader_drain_all(blink_reader* reader, blink_link* link, uint32_t n, uint32_t prompt_tokens,
                           uint32_t max_tokens, uint64_t timeout_ns, blink_drained* result) {
  blink_header header;
  if (!read_header(*link->link, header)) return 1;
  constexpr uint32_t kEvents = 4096, kTokens = 16384;
  std::vector<uint32_t> slots(n), prompts(size_t(n) * prompt_tokens, 1), tokens(kTokens);
  std::vector<blink_descriptor> descriptors(n, request(prompt_tokens, max_tokens, 1));
  std::vector<blink_event> events(kEvents);
  for (uint32_t i = 0; i < n; ++i) place(descriptors[i], slots[i] = i, header);
  *result = {};
  const uint64_t began = monotonic_ns(), cpu_began = cpu_ns();
  if (blink_reader_submit(reader, n, slots.data(), descriptors.data(), prompts.data()) != n) return 1;
  pollfd wake{blink_reader_eventfd(reader), POLLIN, 0};
  uint32_t freed = 0;
  while (freed < n && monotonic_ns() - began < timeout_ns) {
    poll(&wake, 1, 100);
    uint32_t arrived;
    do {
      arrived = blink_reader_drain(reader, events.data(), kEvents, tokens.data(), kTokens);
      for (uint32_t i = 0; i < arrived; ++i) {
        result->tokens += events[i].n_tokens;
        freed += events[i].kind == BLINK_EVENT_FREED;
      }
    } while (arrived);
  }
  result->wall_ns = monotonic_ns() - began;
  result->cpu_ns = cpu_ns() - cpu_began;
  return freed == n ? 0 : 1;
}

}  // extern "C"
