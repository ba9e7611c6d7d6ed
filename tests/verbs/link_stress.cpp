// The token reader and the link over RDMA between a client and a scheduler at full speed, over a fabric that
// reorders, delays, tears and breaks (fake_ibverbs.cpp).
//
//   link_stress REQUESTS BREAK_ONE_IN READ_BACK
//
// Every request is answered whole, or lost and then it never ran (V7). With READ_BACK no payload is ever seen
// torn (V3); without it torn payloads are seen and never served (R4). Prints what happened.
#include <memory>
#include <random>

#include "tests/nic_frontend/stress_client.h"
#include "tests/verbs/link_ends.h"

namespace {

// One burst to a random part of the free slots.
uint32_t submit(Client& client, uint32_t submitted, uint32_t wanted, std::mt19937& random) {
  std::vector<uint32_t> chosen;
  std::vector<blink_descriptor> descriptors;
  std::vector<uint32_t> prompts;
  for (uint32_t slot = 0; slot < kSlots && submitted + chosen.size() < wanted; ++slot) {
    if (client.slots[slot].busy || random() % 2) continue;
    blink_descriptor descriptor{};
    descriptor.prompt_tokens = 1 + random() % kPrompt;
    descriptor.max_tokens = 1 + random() % kOutput;
    descriptor.seed = submitted + chosen.size();
    place(descriptor, slot);
    for (uint32_t i = 0; i < descriptor.prompt_tokens; ++i) prompts.push_back(random());
    chosen.push_back(slot);
    descriptors.push_back(descriptor);
  }
  const uint32_t n = uint32_t(chosen.size());
  if (!n || blink_reader_submit(client.reader, n, chosen.data(), descriptors.data(), prompts.data()) == 0)
    return submitted;
  for (uint32_t i = 0; i < n; ++i)
    client.slots[chosen[i]] = {
        true, true, descriptors[i].sequence, 0, descriptors[i].max_tokens, uint32_t(descriptors[i].seed)};
  return submitted + n;
}

}  // namespace

int main(int, char** arguments) {
  const uint32_t wanted = uint32_t(std::atoi(arguments[1])), break_one_in = uint32_t(std::atoi(arguments[2]));
  const bool read_back = std::atoi(arguments[3]) != 0;
  uint8_t* region = make_region();
  char error[BLINK_VERBS_ERROR_BYTES];
  auto ends = std::make_unique<Ends>(region, kEnd, read_back);
  const blink_reader_options options{0, 100, 20000, 1000, 100000, 1000000, 60000000000, 10000000000};
  blink_reader* reader = blink_reader_create(ends->link, &options);
  if (!reader || blink_reader_open(reader, 1, 0) != 0) fail("the reader does not open", 0, 0);
  Scheduler scheduler(region, !read_back);
  scheduler.runs.resize(wanted);
  std::thread thread([&] { scheduler.run(); });
  fake_verbs_break_one_in(break_one_in);

  Client client(reader);
  std::mt19937 random(1);
  uint32_t submitted = 0, connections = 1;
  while (client.freed < wanted) {
    if (blink_verbs_down(ends->link, error)) {
      ends->connect();
      ++connections;
    }
    submitted = submit(client, submitted, wanted, random);
    const uint32_t victim = random() % kSlots;
    if (random() % 64 == 0) client.cancel(victim);
    client.drain();
  }
  fake_verbs_break_one_in(0);
  blink_reader_destroy(reader);
  scheduler.stop = true;
  thread.join();
  for (const uint32_t request : client.lost)
    if (scheduler.runs[request]) fail("a lost request ran", 0, request);
  struct fake_verbs_counts counts;
  fake_verbs_counts(&counts);
  std::printf("{\"lost\": %u, \"connections\": %u, \"torn\": %llu, \"overtaken\": %llu}\n",
              uint32_t(client.lost.size()), connections, static_cast<unsigned long long>(scheduler.torn),
              static_cast<unsigned long long>(counts.overtaken));
  ends = nullptr;
  std::free(region);
  return 0;
}
