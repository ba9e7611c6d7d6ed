// What calls of the link over RDMA post to the fabric in memory (fake_ibverbs.cpp), and what they do when it is slow
// or breaks. `link_calls SCENARIO` exits 1 with a message when a scenario goes wrong.
#include <map>
#include <string>

#include "nic_frontend/native/link.h"
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

// A burst of submissions to slots 0 to n - 1, and what it refers to.
struct Burst {
  explicit Burst(uint32_t n) : prompts(n), descriptors(n), submissions(n) {
    for (uint32_t slot = 0; slot < n; ++slot) {
      prompts[slot].assign(kPrompt, 1 + slot);
      place(descriptors[slot], slot);
      submissions[slot].prompt = {kPrompts + descriptors[slot].prompt_offset * 4, prompts[slot].data(), kPrompt * 4,
                                  kPrompt * 4};
      submissions[slot].descriptor = {kDescriptors + slot * sizeof(blink_descriptor), &descriptors[slot],
                                      sizeof(blink_descriptor), sizeof(blink_descriptor)};
      submissions[slot].word_offset = kWords + slot * 8;
      submissions[slot].word = blink::request_word(1, BLINK_COMMAND_SUBMIT, kEpoch);
    }
  }
  std::vector<std::vector<uint32_t>> prompts;
  std::vector<blink_descriptor> descriptors;
  std::vector<blink::Submission> submissions;
};

// A burst rings the doorbell once: its payloads, one READ behind them, and its words (V3).
void burst() {
  constexpr uint32_t kBurst = 48;
  Ends ends(make_region(), kEnd, true);
  Burst burst(kBurst);
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

}  // namespace

int main(int, char** arguments) {
  const std::map<std::string, void (*)()> scenarios{{"burst", burst}, {"poll", poll}};
  scenarios.at(arguments[1])();
  return 0;
}
