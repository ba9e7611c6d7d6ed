/* Scripts of requests with priorities (S2, S7). One a name:
 *
 *   priorities NAME      exits 1 and prints what went wrong
 */
#include <set>

#include "scripted.h"

using namespace simulator;

namespace {

using Tokens = std::vector<uint32_t>;
constexpr uint32_t kPage = 16;
constexpr Sizes kSingle{32, 2, 1, 512, kPage, 64, 512, 4, 0};
constexpr Sizes kFour{64, 1, 4, 1024, kPage, 1024, 512, 4, 0};
constexpr Sizes kNarrow{64, 1, 8, 1024, kPage, 100, 512, 4, 0};
constexpr Sizes kRoomy{64, 1, 16, 4096, kPage, 4096, 512, 8, 0};
constexpr Sizes kForgetful{64, 1, 4, 1024, kPage, 1024, 512, 4, 0, 0, 16, 0};

Tokens text(uint32_t seed, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(mix(uint64_t(seed) << 32 | i) % kVocab);
  return tokens;
}

blink_descriptor described(ScriptedSimulation& w, uint32_t slot, int8_t priority, uint32_t max_tokens) {
  static uint32_t ticket = 0;
  blink_descriptor d = w.descriptor(1, max_tokens);
  d.ticket = ++ticket;
  d.client = slot;  // nobody gives way because a client has several places
  d.priority = priority;
  return d;
}
void submit(ScriptedSimulation& w, uint32_t slot, int8_t priority, uint32_t length, uint32_t max_tokens) {
  w.write(slot, described(w, slot, priority, max_tokens), text(slot, length));
  w.request(slot, 1, BLINK_COMMAND_SUBMIT);
}
void begin(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
}
bool paused(ScriptedSimulation& w, uint32_t slot) {
  return w.status(slot).state == BLINK_STATE_DECODE_PAUSED;
}
// Waits until each has so many tokens of its answer.
void answering(ScriptedSimulation& w, uint32_t first, uint32_t end, uint32_t count) {
  const bool all = w.until([&] {
    for (uint32_t slot = first; slot < end; ++slot) {
      if (w.status(slot).count < count) return false;
    }
    return true;
  });
  w.expect(all, "a request waits for ever");
}
// Waits until each has ended, with the answer that it would have had alone, whoever gave way meanwhile.
void finish(ScriptedSimulation& w, uint32_t first, uint32_t end) {
  const bool done = w.until([&] {
    for (uint32_t slot = first; slot < end; ++slot) {
      if (!w.completed(slot)) return false;
    }
    return true;
  });
  w.expect(done, "a request waits for ever");
  for (uint32_t slot = first; slot < end; ++slot) {
    const blink_descriptor& d = w.c.descriptors[slot];
    const std::string name = "request " + std::to_string(slot);
    w.expect(w.status(slot).reason == BLINK_REASON_LENGTH && w.status(slot).count == d.max_tokens, name + " failed");
    uint32_t previous = w.ring.prompt(slot, d)[d.prompt_tokens - 1];
    for (uint32_t i = 0; i < w.status(slot).count; ++i) {
      previous = answer(d.seed, i, previous);
      w.expect(w.outputs(slot)[i] == blink::output_record(previous, i, 1),
               "S7: token " + std::to_string(i) + " of " + name + " is wrong");
    }
  }
}
void expect_preempted(ScriptedSimulation& w, uint64_t wanted) {
  const uint64_t preempted = w.c.state->stats.preempted;
  w.expect(preempted == wanted, "S7: " + std::to_string(preempted) + " gave way, not " + std::to_string(wanted));
}
// Waits for all, and returns the slots in the order in which they ended.
std::vector<uint32_t> order_of_ends(ScriptedSimulation& w, uint32_t n) {
  std::vector<uint32_t> order;
  std::set<uint32_t> seen;
  w.meanwhile = [&] {
    for (uint32_t slot = 0; slot < n; ++slot) {
      if (w.completed(slot) && seen.insert(slot).second) order.push_back(slot);
    }
  };
  w.expect(w.until([&] { return order.size() == n; }), "a request waits for ever");
  w.meanwhile = [] {};
  return order;
}

// One at a time: behind the one that runs, each priority in the order of its numbers, from the least to the greatest
// that there are, and those of one priority as they came.
void overtakes(ScriptedSimulation& w) {
  begin(w);
  const int8_t priorities[] = {0, 5, 0, -128, 127, -1, 5, 0, -128, 1};
  const uint32_t wanted[] = {0, 3, 8, 5, 2, 7, 9, 1, 6, 4};
  submit(w, 0, priorities[0], 20, 40);
  answering(w, 0, 1, 2);
  for (uint32_t slot = 1; slot < 10; ++slot) submit(w, slot, priorities[slot], 20, 5);
  const std::vector<uint32_t> order = order_of_ends(w, 10);
  for (uint32_t k = 0; k < 10 && order.size() == 10; ++k)
    w.expect(order[k] == wanted[k], "S2: request " + std::to_string(order[k]) + " was number " + std::to_string(k));
  finish(w, 0, 10);
  expect_preempted(w, 0);  // the only one that runs is the first of all
}

// Those that were staged early are given up for one that is more urgent, and is staged in their place.
void overtakes_staged(ScriptedSimulation& w) {
  begin(w);
  submit(w, 0, 0, 20, 200);
  answering(w, 0, 1, 2);
  for (uint32_t slot = 1; slot < 16; ++slot) submit(w, slot, 1, 20, 5);
  w.expect(w.until([&] { return w.c.state->n_staged == w.c.tables.n_sequences - w.c.max_batch; }), "S13: few staged");
  submit(w, 16, -1, 20, 5);
  finish(w, 16, 17);
  for (uint32_t slot = 1; slot < 16; ++slot) w.expect(!w.completed(slot), "S2: a less urgent one came before");
  finish(w, 0, 17);
}

// The batch is full. Nobody gives way to one that is as urgent or less; to one that is more urgent, the youngest does,
// and nobody else; when it has ended, the other goes on.
void takes_one_place(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit(w, slot, 0, 50, 600);
  answering(w, 0, 4, 20);
  submit(w, 4, 0, 50, 10);
  submit(w, 5, 3, 50, 10);
  w.pass(50'000'000);
  expect_preempted(w, 0);
  const uint64_t before = w.c.state->stats.steps;
  submit(w, 6, -1, 50, 100);
  answering(w, 6, 7, 1);
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 4, "S7: the urgent one waited for " + std::to_string(steps) + " steps");
  w.expect(paused(w, 3), "S7: another than the youngest gave way");
  answering(w, 6, 7, 90);
  expect_preempted(w, 1);
  const uint64_t computed = w.c.state->stats.prompt_tokens;
  finish(w, 6, 7);
  answering(w, 3, 4, w.status(3).count + 1);
  w.expect(w.status(4).count == 0, "S2: a younger one came before the one that gave way");
  const uint64_t again = w.c.state->stats.prompt_tokens - computed;
  w.expect(again < 2 * kPage, "S16: of what gave way, " + std::to_string(again) + " tokens were computed again");
  finish(w, 0, 7);
  expect_preempted(w, 1);
}

// Each of several urgent ones takes one place, of those who are least urgent first; the first of all keeps its own.
void takes_the_least_urgent(ScriptedSimulation& w) {
  begin(w);
  const int8_t running[] = {2, 0, 1, 0};
  for (uint32_t slot = 0; slot < 4; ++slot) submit(w, slot, running[slot], 50, 900);
  answering(w, 0, 4, 3);
  const uint32_t victims[] = {0, 2, 3};
  for (uint32_t k = 0; k < 3; ++k) {
    submit(w, 10 + k, -1, 50, 700);
    answering(w, 10 + k, 11 + k, 1);
    expect_preempted(w, k + 1);
    w.expect(paused(w, victims[k]), "S7: another gave way than request " + std::to_string(victims[k]));
  }
  submit(w, 13, -1, 50, 5);  // the others are as urgent, but for the one that is left
  answering(w, 13, 14, 1);
  expect_preempted(w, 4);
  w.expect(paused(w, 1), "S7: the one that was left keeps its place");
  finish(w, 0, 4);
  finish(w, 10, 14);
}

// Without a prefix cache, one that gave way would begin anew.
void waits_without_a_cache(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit(w, slot, 0, 50, 60 + 20 * slot);
  answering(w, 0, 4, 3);
  submit(w, 4, 0, 50, 60);
  submit(w, 5, -1, 50, 5);
  finish(w, 5, 6);
  w.expect(!w.completed(4), "S2: an older, less urgent one came before");
  finish(w, 0, 6);
  expect_preempted(w, 0);
}

// Pages run out: the least urgent give way, though they are the oldest, and the most urgent never does, though it is
// the youngest.
void gives_pages(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 6; ++slot) submit(w, slot, slot < 3 ? 1 : 0, 50, 700);
  submit(w, 6, -1, 50, 900);
  std::set<uint32_t> gave_way;
  std::vector<uint32_t> order;
  w.meanwhile = [&] {
    for (uint32_t slot = 0; slot < 7; ++slot) {
      if (paused(w, slot) && gave_way.insert(slot).second) order.push_back(slot);
    }
  };
  finish(w, 0, 7);
  w.expect(
      order.size() > 3 && std::vector<uint32_t>(order.begin(), order.begin() + 3) == std::vector<uint32_t>{2, 1, 0},
      "S7: pages were not taken from the least urgent first");
  w.expect(!gave_way.count(6), "S7: the most urgent one gave way");
}

// Long prompts share steps: a more urgent one's first token does not wait for theirs, even of the same client.
void shares_steps(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 8; ++slot) submit(w, slot, 0, 4000, 8);
  w.expect(w.until([&] { return w.c.state->stats.steps == 3; }), "nothing runs");
  blink_descriptor d = described(w, 8, -1, 8);
  d.client = 0;
  w.write(8, d, text(8, 900));
  w.request(8, 1, BLINK_COMMAND_SUBMIT);
  const uint64_t before = w.c.state->stats.steps;
  answering(w, 8, 9, 1);
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 5, "S15: an urgent prompt of two steps waited for " + std::to_string(steps));
  finish(w, 0, 9);
}

// A payload that is torn when it is first read, in whose descriptor another priority still stands.
void torn_priority(ScriptedSimulation& w) {
  begin(w);
  submit(w, 0, 0, 20, 300);
  answering(w, 0, 1, 2);
  for (uint32_t slot = 1; slot < 4; ++slot) submit(w, slot, 0, 20, 5);
  blink_descriptor d = described(w, 4, 100, 5);
  w.write(4, d, text(4, 20), true);
  w.request(4, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.c.state->stats.torn_payloads > 0; }), "R4: it is not noticed");
  d.priority = -100;
  w.write(4, d, text(4, 20));
  const std::vector<uint32_t> order = order_of_ends(w, 5);
  w.expect(order == std::vector<uint32_t>{0, 4, 1, 2, 3}, "S2: it was served by the priority that was torn");
}

constexpr Script kScripts[] = {
    {"overtakes", overtakes, kSingle},
    {"overtakes_staged", overtakes_staged, kSingle},
    {"takes_one_place", takes_one_place, kFour},
    {"takes_the_least_urgent", takes_the_least_urgent, kFour},
    {"waits_without_a_cache", waits_without_a_cache, kForgetful},
    {"gives_pages", gives_pages, kNarrow},
    {"shares_steps", shares_steps, kRoomy},
    {"torn_priority", torn_priority, kSingle},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
