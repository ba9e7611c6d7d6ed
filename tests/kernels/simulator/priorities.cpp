/* Scripts of the order in which requests with priorities are served (S2, S15). One a name:
 *
 *   priorities NAME      exits 1 and prints what went wrong
 */
#include "urgent.h"

using namespace simulator;

namespace {

constexpr Sizes kSingle{32, 2, 1, 512, kPage, 64, 512, 4, 0};
constexpr Sizes kPair{64, 2, 2, 512, kPage, 1024, 512, 4, 0};
constexpr Sizes kRoomy{64, 1, 16, 4096, kPage, 4096, 512, 8, 0};

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
  finish_right(w, 0, 10);
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
  finish_right(w, 16, 17);
  for (uint32_t slot = 1; slot < 16; ++slot) w.expect(!w.completed(slot), "S2: a less urgent one came before");
  finish_right(w, 0, 17);
}

// Long prompts share steps: a more urgent one's first token does not wait for theirs, even of the same client.
void shares_steps(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 8; ++slot) submit(w, slot, 0, 4000, 8);
  w.expect(w.until([&] { return w.c.state->stats.steps == 3; }), "nothing runs");
  submit_of(w, 0, 8, -1, 900, 8);
  const uint64_t before = w.c.state->stats.steps;
  expect_soon(w, 8, before, 5);  // of which its own are two
  finish_right(w, 0, 9);
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

// A backend that does not go by priorities serves a frontend that writes them as it serves others: by turns.
void no_effect(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 16; ++slot) submit_of(w, 1, slot, -128, 20, 20);
  submit_of(w, 2, 16, 127, 20, 20);
  answering(w, 16, 17, 20);
  uint32_t ended = 0;
  for (uint32_t slot = 0; slot < 16; ++slot) ended += w.completed(slot);
  w.expect(ended <= 2, "S2: " + std::to_string(ended) + " were served before, for a priority that there is not");
  finish_right(w, 0, 17);
}

// The next in line, more urgent than a prompt under way, turns out to be wrong. Behind it is one that is as urgent as
// the prompt, and of its client: the prompt comes first.
void wrong_before_an_equal(ScriptedSimulation& w) {
  begin(w);
  submit_of(w, 1, 0, 0, 3000, 4);
  w.expect(w.until([&] { return w.c.state->stats.steps == 2; }), "nothing runs");
  blink_descriptor d = described(w, 2, -1, 4);
  d.top_p = -1;  // there is no such
  w.write(1, d, text(1, 40));
  submit_of(w, 1, 2, 0, 900, 4);
  w.request(1, 1, BLINK_COMMAND_SUBMIT);
  answering(w, 0, 1, 1);
  w.expect(w.completed(1) && w.status(1).reason != BLINK_REASON_LENGTH, "R3: what is wrong was served");
  w.expect(w.status(2).count == 0, "S15: a younger prompt came before the oldest");
  finish_right(w, 0, 1);
  finish_right(w, 2, 3);
}

constexpr Script kScripts[] = {
    {"overtakes", overtakes, kSingle},      {"overtakes_staged", overtakes_staged, kSingle},
    {"shares_steps", shares_steps, kRoomy}, {"torn_priority", torn_priority, kSingle},
    {"no_effect", no_effect, kPair},        {"wrong_before_an_equal", wrong_before_an_equal, kRoomy},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
