// What calls of the link over RDMA post to the fabric in memory (fake_ibverbs.cpp), and what they do when it is slow
// or breaks. `link_calls SCENARIO` exits 1 with a message when a scenario goes wrong.
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "nic_frontend/native/clock.h"
#include "nic_frontend/native/link.h"
#include "nic_frontend/native/verbs/write_queue.h"
#include "tests/verbs/link_ends.h"

namespace {

struct fake_verbs_counts counts() {
  struct fake_verbs_counts found;
  fake_verbs_counts(&found);
  return found;
}

void expect(const char* what, uint64_t found, uint64_t expected) {
  if (found == expected) return;
  std::fprintf(stderr, "%s: %llu instead of %llu\n", what, static_cast<unsigned long long>(found),
               static_cast<unsigned long long>(expected));
  std::exit(1);
}

uint64_t shown(uint8_t* region, uint64_t offset) {
  return __atomic_load_n(word(region, offset), __ATOMIC_ACQUIRE);
}

constexpr uint64_t kDelayNs = 300'000'000;

// How long this thread has waited for a core so far, which a busy machine lets it do for as long as it likes.
uint64_t queued_ns() {
  std::ifstream schedstat("/proc/thread-self/schedstat");
  uint64_t ran = 0, queued = 0;
  if (!(schedstat >> ran >> queued)) fail("no /proc/thread-self/schedstat", 0, 0);
  return queued;
}

// A call that waited for the fabric, the completions of which are that late, would take longer.
void expect_prompt(const char* what, const std::function<void()>& call) {
  const uint64_t queued = queued_ns(), begin = blink::monotonic_ns();
  call();
  const uint64_t passed = blink::monotonic_ns() - begin, waited = queued_ns() - queued;
  const uint64_t ns = passed > waited ? passed - waited : 0;
  if (ns > kDelayNs / 2) fail(what, 0, uint32_t(ns / 1000));
}

// Submissions to slots 0 to n - 1 with this sequence, which is in all of their payload.
struct Burst {
  Burst(uint32_t n, uint32_t sequence) : prompts(n), descriptors(n), submissions(n) {
    for (uint32_t slot = 0; slot < n; ++slot) {
      prompts[slot].assign(kPrompt, sequence);
      place(descriptors[slot], slot);
      descriptors[slot].sequence = sequence;
      submissions[slot].prompt = {kPrompts + descriptors[slot].prompt_offset * 4, prompts[slot].data(), kPrompt * 4,
                                  kPrompt * 4};
      submissions[slot].descriptor = {kDescriptors + slot * sizeof(blink_descriptor), &descriptors[slot],
                                      sizeof(blink_descriptor), sizeof(blink_descriptor)};
      submissions[slot].word_offset = kWords + slot * 8;
      submissions[slot].word = blink::request_word(sequence, BLINK_COMMAND_SUBMIT, kEpoch);
    }
  }

  // Whether the word of a slot has arrived. All of its payload then has (V3).
  bool arrived(uint8_t* region, uint32_t slot) const {
    if (shown(region, submissions[slot].word_offset) != submissions[slot].word) return false;
    const uint32_t sequence = descriptors[slot].sequence;
    const uint64_t both = blink::pair_word(sequence, sequence);
    for (uint64_t at = 0; at < kPrompt * 4; at += 8)
      if (shown(region, submissions[slot].prompt.offset + at) != both) fail("a torn prompt", slot, sequence);
    for (uint64_t at = 0; at < sizeof(blink_descriptor); at += 8) {
      uint64_t expected;
      std::memcpy(&expected, reinterpret_cast<const uint8_t*>(&descriptors[slot]) + at, 8);
      if (shown(region, submissions[slot].descriptor.offset + at) != expected)
        fail("a torn descriptor", slot, sequence);
    }
    return true;
  }

  std::vector<std::vector<uint32_t>> prompts;
  std::vector<blink_descriptor> descriptors;
  std::vector<blink::Submission> submissions;
};

// A queue of writes alone, with a staging ring that a burst of all slots does not fit into.
struct Writer {
  uint8_t* const region = make_region();
  blink_rdma_target* target;
  blink_rdma_pairs* pairs;
  blink::Device device{{"", -1, "127.0.0.1"}};
  blink::Endpoint endpoint{device, blink::WorkQueue::kDepth, 0};
  blink::Fate fate;
  blink::WriteQueue queue{device, endpoint.submission, fate, 4096};

  Writer() {
    char error[BLINK_RDMA_ERROR_BYTES];
    target = blink_rdma_open("", -1, "", region, kEnd, error);
    if (!target) fail(error, 0, 0);
    const blink_rdma_address ours = endpoint.address();
    blink_rdma_address theirs;
    pairs = blink_rdma_accept(target, &ours, &theirs, error);
    if (!pairs) fail(error, 0, 0);
    endpoint.connect(theirs);
    queue.open({blink_rdma_region_address(target), blink_rdma_region_key(target), true});
  }

  ~Writer() {
    if (pairs) blink_rdma_pairs_close(pairs);
    blink_rdma_close(target);
    std::free(region);
  }

  void submit(const Burst& burst) { queue.submit(burst.submissions.data(), burst.submissions.size()); }
};

// A burst rings the doorbell once: its payloads, one READ behind them, and its words (V3).
void burst() {
  constexpr uint32_t kBurst = 48;
  Ends ends(make_region(), kEnd, true);
  const Burst burst(kBurst, 1);
  counts();
  ends.link->link->submit(burst.submissions.data(), kBurst);
  const struct fake_verbs_counts found = counts();
  expect("doorbells", found.doorbells, 1);
  expect("READs", found.reads, 1);
  expect("WRITEs", found.writes, 3 * kBurst);
}

// A poll of slots that lie anywhere is one READ of the span.
void poll() {
  Ends ends(make_region(), kEnd, true);
  std::vector<uint32_t> slots;
  for (uint32_t slot = 3; slot < kSlots; slot += 5) slots.push_back(slot);
  std::vector<blink_progress> entries(slots.size());
  counts();
  if (!ends.link->link->gather(kProgress, slots.data(), slots.size(), entries.data())) fail("the link is down", 0, 0);
  const struct fake_verbs_counts found = counts();
  expect("doorbells", found.doorbells, 1);
  expect("READs", found.reads, 1);
  expect("WRITEs", found.writes, 0);
}

// No call waits until what it has written is acknowledged, also where there is more than the queue holds; everything
// arrives (V9).
void late() {
  uint8_t* const region = make_region();
  Ends ends(region, kEnd, true);
  blink::Link& link = *ends.link->link;
  const std::vector<uint64_t> grammar(512, 7);
  fake_verbs_delay_writes(kDelayNs / 1000);
  uint32_t sequence = 0;
  while (++sequence < 10) {
    const Burst burst(kSlots, sequence);
    expect_prompt("a submission waits", [&] { link.submit(burst.submissions.data(), kSlots); });
    expect_prompt("a write waits", [&] { link.write({kOutputs, grammar.data(), grammar.size() * 8, 0}); });
    expect_prompt("a word waits", [&] { link.publish(kLeases, sequence); });
  }
  fake_verbs_delay_writes(0);
  const Burst last(kSlots, sequence);
  link.submit(last.submissions.data(), kSlots);
  uint64_t beat;
  for (uint32_t slot = 0; slot < kSlots;) {
    if (!link.read(kLeases, &beat, 1)) fail("the link is down", slot, sequence);
    slot += last.arrived(region, slot);
  }
  expect("the last word", beat, sequence - 1);
}

// A burst that fits neither the queue nor the staging ring goes out piece by piece, and its words behind its payloads.
void large() {
  Writer writer;
  for (uint32_t sequence = 1; sequence < 40; ++sequence) {
    fake_verbs_delay_writes(sequence < 20 ? 1000 : 0);
    const Burst burst(kSlots, sequence);
    writer.submit(burst);
    for (uint32_t slot = 0; slot < kSlots;) {
      writer.queue.progress();
      for (uint32_t any = 0; any < kSlots; ++any) burst.arrived(writer.region, any);
      slot += burst.arrived(writer.region, slot);
      if (writer.fate.broken()) fail(writer.fate.why().c_str(), slot, sequence);
    }
  }
}

// Who wants to know that all has been acknowledged waits for it, such as a frontend that ends.
void settled() {
  constexpr uint32_t kFew = 16;
  Writer writer;
  fake_verbs_delay_writes(kDelayNs / 1000);
  const uint64_t begin = blink::monotonic_ns();
  const Burst burst(kFew, 1);
  writer.submit(burst);
  if (!writer.queue.settle()) fail(writer.fate.why().c_str(), 0, 0);
  if (blink::monotonic_ns() - begin < kDelayNs) fail("it says too early that all has been acknowledged", 0, 0);
  for (uint32_t slot = 0; slot < kFew; ++slot)
    if (!burst.arrived(writer.region, slot)) fail("it is not all there", slot, 1);
}

// Words that are published one after the other, many more than the queue holds, keep their order. So does what is
// written in between, to one place: behind a word is the payload that was written before it, or a later one.
void order() {
  constexpr uint64_t kPublished = 2000, kPayload = 40;
  Writer writer;
  fake_verbs_delay_writes(1000);
  uint64_t last = 0;
  const auto look = [&] {
    const uint64_t found = shown(writer.region, kLeases);
    if (found < last) fail("a word was overtaken", uint32_t(found), uint32_t(last));
    last = found;
    for (uint64_t at = 0; at < kPayload; ++at)
      if (shown(writer.region, kOutputs + at * 8) < last) fail("a payload was overtaken", 0, uint32_t(last));
  };
  for (uint64_t value = 1; value <= kPublished; ++value) {
    const std::vector<uint64_t> payload(kPayload, value);
    writer.queue.write({kOutputs, payload.data(), kPayload * 8, kPayload * 8});
    writer.queue.publish(kLeases, value);
    look();
  }
  while (last < kPublished) {
    writer.queue.progress();
    look();
    if (writer.fate.broken()) fail(writer.fate.why().c_str(), 0, uint32_t(last));
  }
}

// Where the connection breaks in the middle of a burst, no word arrives without its payload, and nothing is posted any
// more, neither what waited for room nor what comes later (V4).
void broken() {
  for (uint32_t attempt = 0; attempt < 40; ++attempt) {
    Writer writer;
    fake_verbs_break_one_in(100);
    uint32_t sequence = 0;
    while (!writer.fate.broken()) {
      const Burst burst(kSlots, ++sequence);
      writer.submit(burst);
      bool all = false;
      while (!all && !writer.fate.broken()) {
        writer.queue.progress();
        all = true;
        for (uint32_t slot = 0; slot < kSlots; ++slot) all &= burst.arrived(writer.region, slot);
      }
    }
    counts();
    const Burst later(kSlots, sequence + 1);
    writer.submit(later);
    writer.queue.publish(kLeases, 1);
    writer.queue.progress();
    if (writer.queue.settle()) fail("it says that all has been acknowledged", 0, attempt);
    expect("doorbells", counts().doorbells, 0);
    blink_rdma_pairs_close(writer.pairs);
    writer.pairs = nullptr;
    const Burst burst(kSlots, sequence);
    for (uint32_t slot = 0; slot < kSlots; ++slot) burst.arrived(writer.region, slot);
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      if (later.arrived(writer.region, slot)) fail("it was sent over a broken connection", slot, attempt);
  }
}

// Over a link that is down nothing is read, nor asked for.
void down() {
  Ends ends(make_region(), kEnd, true);
  blink_verbs_break(ends.link, "the test wants it");
  counts();
  uint64_t found;
  const uint32_t slot = 0;
  blink_progress entry;
  if (ends.link->link->read(kLeases, &found, 1)) fail("it was read", 0, 0);
  if (ends.link->link->gather(kProgress, &slot, 1, &entry)) fail("it was polled", 0, 0);
  expect("doorbells", counts().doorbells, 0);
}

// A peer that acknowledges nothing breaks the connection after a second, and nobody has waited for it (V6).
void silent() {
  Writer writer;
  fake_verbs_delay_writes(60'000'000);
  const uint64_t begin = blink::monotonic_ns();
  const Burst burst(kSlots, 1);
  for (int i = 0; i < 3; ++i) expect_prompt("a submission waits", [&] { writer.submit(burst); });
  const auto passed = [&] { return blink::monotonic_ns() - begin; };
  while (!writer.fate.broken()) {
    expect_prompt("progress waits", [&] { writer.queue.progress(); });
    if (passed() > 10 * blink::kCompletionDeadlineNs) fail("the connection does not break", 0, 0);
  }
  if (passed() < blink::kCompletionDeadlineNs) fail("the connection broke too early", 0, uint32_t(passed() / 1000));
}

}  // namespace

int main(int, char** arguments) {
  const std::map<std::string, void (*)()> scenarios{{"burst", burst},   {"poll", poll},       {"late", late},
                                                    {"large", large},   {"settled", settled}, {"order", order},
                                                    {"broken", broken}, {"down", down},       {"silent", silent}};
  scenarios.at(arguments[1])();
  return 0;
}
