#include "nic_frontend/native/token_reader.h"

#include <unistd.h>

#include <cstddef>

#include "nic_frontend/native/clock.h"
#include "nic_frontend/native/crc32c.h"
#include "ringbuffer/extents.h"

namespace blink {

TokenReader::TokenReader(Link& link, const blink_header& header, const blink_reader_options& options, int eventfd)
    : link_(link),
      options_(options),
      eventfd_(eventfd),
      header_(header),
      lease_(link, header, options),
      pacing_(options.spin_ns, options.min_sleep_ns, options.max_sleep_ns) {
  const uint32_t n = header_.n_slots / header_.n_leases;
  first_slot_ = options_.lease * n;
  slots_.resize(n);
  entries_.resize(n);
  lease_.report(&health_);
}

TokenReader::~TokenReader() {
  stop();
  close(eventfd_);
}

void TokenReader::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(inbox_mutex_);
    stopping_ = true;
  }
  inbox_ready_.notify_one();
  thread_.join();
  stopping_ = false;
}

uint32_t TokenReader::open(uint32_t epoch, uint32_t beat) {
  const size_t n = slots_.size();
  std::vector<uint64_t> requests(n);
  std::vector<uint32_t> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = first_slot_ + uint32_t(i);
  std::vector<blink_progress> entries(n);
  const uint32_t connection = link_.connections();
  if (!link_.read(header_.requests_offset + first_slot_ * 8ull, requests.data(), n) ||
      !link_.gather(header_.progress_offset, all.data(), n, entries.data()))
    return BLINK_LINK_DOWN;
  uint32_t wrong = 0;
  for (size_t i = 0; i < n; ++i) {
    const Status status = unpack_status(entries[i].status);
    wrong += status.state != BLINK_STATE_EMPTY || status.sequence != low(requests[i]);
  }
  if (wrong) return wrong;

  stop();
  for (size_t i = 0; i < n; ++i) {
    slots_[i] = Slot{};
    slots_[i].sequence = low(requests[i]);
  }
  inbox_.clear();
  leave_slots();
  blink_event event;
  uint32_t tokens[BLINK_EVENT_TOKENS_MAX];
  while (queue_.pop(&event, 1, tokens, BLINK_EVENT_TOKENS_MAX)) continue;  // of the lease before
  ticket_ = 0;
  resolved_ = connection;
  lease_.begin(epoch, beat, monotonic_ns());
  lease_.report(&health_);
  thread_ = std::thread(&TokenReader::run, this);
  return 0;
}

uint32_t TokenReader::submit(uint32_t n, const uint32_t* slots, blink_descriptor* descriptors,
                             const uint32_t* prompts) {
  if (lease_.lost() || link_.down()) return 0;
  std::vector<Submission> burst(n);
  for (uint32_t i = 0; i < n; ++i) {
    blink_descriptor& descriptor = descriptors[i];
    const uint64_t slot = first_slot_ + slots[i];
    const size_t words = payload_words(descriptor, header_.vocab_size), prompt_bytes = words * sizeof(uint32_t);
    descriptor.sequence = ++slots_[slots[i]].sequence;
    descriptor.epoch = lease_.epoch();
    descriptor.ticket = ticket_++;
    const uint32_t crc = crc32c(0, &descriptor, offsetof(blink_descriptor, crc32c));
    descriptor.crc32c = crc32c(crc, prompts, prompt_bytes);
    const uint64_t token = uint64_t(options_.lease) * header_.prompt_heap + descriptor.prompt_offset;
    burst[i].prompt = {header_.prompts_offset + token * sizeof(uint32_t), prompts, prompt_bytes,
                       descriptor.prompt_room * sizeof(uint32_t)};
    burst[i].descriptor = {header_.descriptors_offset + slot * sizeof(blink_descriptor), &descriptor,
                           sizeof(blink_descriptor), sizeof(blink_descriptor)};
    burst[i].word_offset = header_.requests_offset + slot * 8;
    burst[i].word = request_word(descriptor.sequence, BLINK_COMMAND_SUBMIT, descriptor.epoch);
    prompts += words;
  }
  const uint32_t connection = link_.submit(burst.data(), n);
  {
    std::lock_guard<std::mutex> lock(inbox_mutex_);
    for (uint32_t i = 0; i < n; ++i)
      inbox_.push_back({true, slots[i], descriptors[i].sequence, connection, descriptors[i].output_offset,
                        descriptors[i].output_room, descriptors[i].logprob_words,
                        descriptors[i].prompt_tokens * descriptors[i].prompt_logprob_words});
  }
  inbox_ready_.notify_one();
  return n;
}

void TokenReader::cancel(uint32_t slot, uint32_t sequence) {
  {
    std::lock_guard<std::mutex> lock(inbox_mutex_);
    inbox_.push_back({false, slot, sequence, 0, 0, 0, 0, 0});
  }
  inbox_ready_.notify_one();
}

uint32_t TokenReader::drain(blink_event* events, uint32_t max_events, uint32_t* tokens, uint32_t max_tokens) {
  // Read whether it is signalled or not: the reader's thread marks it first and writes then, and what it writes after
  // the mark was taken back here would stay, and wake the event loop for ever.
  uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(eventfd_, &count, sizeof(count));
  signalled_.exchange(false);  // before looking: what is pushed after the look signals again
  return queue_.pop(events, max_events, tokens, max_tokens);
}

blink_health TokenReader::health() {
  std::lock_guard<std::mutex> lock(health_mutex_);
  return health_;
}

}  // namespace blink
