/* Scripts of who gives way to a more urgent request when the batch or the KV cache is full (S7). One a name:
 *
 *   places NAME      exits 1 and prints what went wrong
 */
#include "urgent.h"

using namespace simulator;

namespace {

constexpr Sizes kFour{64, 1, 4, 1024, kPage, 1024, 512, 4, 0};
constexpr Sizes kNarrow{64, 1, 8, 1024, kPage, 100, 512, 4, 0};
constexpr Sizes kTight{64, 1, 4, 1024, kPage, 100, 1024, 4, 0};
constexpr Sizes kForgetful{64, 1, 4, 1024, kPage, 1024, 512, 4, 0, 0, 16, 0};

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
  expect_soon(w, 6, before, 4);
  w.expect(paused(w, 3), "S7: another than the youngest gave way");
  answering(w, 6, 7, 90);
  expect_preempted(w, 1);
  const uint64_t computed = w.c.state->stats.prompt_tokens;
  finish_right(w, 6, 7);
  answering(w, 3, 4, w.status(3).count + 1);
  w.expect(w.status(4).count == 0, "S2: a younger one came before the one that gave way");
  const uint64_t again = w.c.state->stats.prompt_tokens - computed;
  w.expect(again < 2 * kPage, "S16: of what gave way, " + std::to_string(again) + " tokens were computed again");
  finish_right(w, 0, 7);
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
  finish_right(w, 0, 4);
  finish_right(w, 10, 14);
}

// Without a prefix cache, one that gave way would begin anew.
void waits_without_a_cache(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit(w, slot, 0, 50, 60 + 20 * slot);
  answering(w, 0, 4, 3);
  submit(w, 4, 0, 50, 60);
  submit(w, 5, -1, 50, 5);
  finish_right(w, 5, 6);
  w.expect(!w.completed(4), "S2: an older, less urgent one came before");
  finish_right(w, 0, 6);
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
  finish_right(w, 0, 7);
  w.expect(
      order.size() > 3 && std::vector<uint32_t>(order.begin(), order.begin() + 3) == std::vector<uint32_t>{2, 1, 0},
      "S7: pages were not taken from the least urgent first");
  w.expect(!gave_way.count(6), "S7: the most urgent one gave way");
}

// As with a single API key: all are of one client, and the more urgent one takes a place.
void of_one_client(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit_of(w, 1, slot, 0, 50, 600);
  answering(w, 0, 4, 20);
  const uint64_t before = w.c.state->stats.steps;
  submit_of(w, 1, 8, -1, 50, 10);
  expect_soon(w, 8, before, 4);
  expect_preempted(w, 1);
  finish_right(w, 0, 4);
  finish_right(w, 8, 9);
}

// A client that has nothing in the batch takes no place for a less urgent request, of whoever has several.
void none_for_the_less_urgent(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit_of(w, 1, slot, 0, 50, 300);
  answering(w, 0, 4, 20);
  submit_of(w, 2, 8, 5, 50, 10);
  w.pass(50'000'000);
  expect_preempted(w, 0);
  submit_of(w, 2, 9, 0, 50, 10);  // as urgent as the others: for this one, one of them gives way
  answering(w, 9, 10, 1);
  expect_preempted(w, 1);
  finish_right(w, 0, 4);
  finish_right(w, 8, 10);
}

// The client of an urgent request has one place more by it, and so it is that client's own other request that leaves,
// not one of a client that would then have none and take it back.
void one_for_one(ScriptedSimulation& w) {
  begin(w);
  submit(w, 5, -2, 50, 600);
  for (uint32_t slot = 0; slot < 3; ++slot) submit(w, slot, 0, 50, 600);
  answering(w, 0, 3, 20);
  submit_of(w, 0, 8, -1, 50, 50);
  answering(w, 8, 9, 1);
  w.pass(20'000'000);
  expect_preempted(w, 1);
  w.expect(paused(w, 0), "S7: another client's request gave way");
  finish_right(w, 0, 3);
  finish_right(w, 5, 6);
  finish_right(w, 8, 9);
}

// While there are not enough pages for the urgent request, nobody gives it a place that it could not use.
void no_place_without_pages(ScriptedSimulation& w) {
  begin(w);
  for (uint32_t slot = 0; slot < 4; ++slot) submit(w, slot, 1, 300, 50 + 10 * slot);
  answering(w, 0, 4, 5);
  submit(w, 8, 0, 1000, 5);  // 63 pages, of which the others have 76 to 100
  w.pass(20'000'000);
  expect_preempted(w, 0);
  finish_right(w, 8, 9);
  finish_right(w, 0, 4);
}

constexpr Script kScripts[] = {
    {"takes_one_place", takes_one_place, kFour},
    {"takes_the_least_urgent", takes_the_least_urgent, kFour},
    {"waits_without_a_cache", waits_without_a_cache, kForgetful},
    {"gives_pages", gives_pages, kNarrow},
    {"of_one_client", of_one_client, kFour},
    {"none_for_the_less_urgent", none_for_the_less_urgent, kFour},
    {"one_for_one", one_for_one, kFour},
    {"no_place_without_pages", no_place_without_pages, kTight},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
