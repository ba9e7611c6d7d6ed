/* Scripts about what requests leave behind when many or long ones end. One a name:
 *
 *   returns NAME      exits 1 and prints what went wrong
 */
#include "scripted.h"

using namespace simulator;

namespace {

constexpr Sizes kWide{64, 1, 40, 64, 4, 1024, 1024, 40, 0, 0, 16, 0};
constexpr Sizes kDeep{32, 1, 2, 8192, 2, 4096, 8192, 2, 0, 0, 16, 0};

// Watches what one turn of the loop gives back, in sequences and in pages.
struct Returns {
  explicit Returns(ScriptedSimulation& simulation) : w(simulation), zombies(w.c.state->n_zombies), pages(available()) {
    w.meanwhile = [this] {
      if (w.c.state->n_zombies < zombies) sequences = std::max(sequences, zombies - w.c.state->n_zombies);
      if (available() > pages) most_pages = std::max(most_pages, available() - pages);
      zombies = w.c.state->n_zombies, pages = available();
    };
  }
  uint32_t available() const { return blink::PageCounts(w.c).available(); }
  ScriptedSimulation& w;
  uint32_t zombies, pages, sequences = 0, most_pages = 0;
};

// Forty requests end with one step: their sequences come back a few in a turn, and all of them do (S18).
void batch_ends(ScriptedSimulation& w) {
  w.attach();
  for (uint32_t slot = 0; slot < 40; ++slot) w.submit(slot, {5, 6, 7}, 20);
  w.expect(w.until([&] { return w.status(39).count == 19; }), "they do not run");
  Returns returns(w);
  auto all_there = [&] { return returns.available() == w.c.total_pages; };
  w.expect(w.until([&] { return w.completed(0) && all_there(); }), "S1: pages are lost");
  for (uint32_t slot = 0; slot < 40; ++slot) w.expect(w.completed(slot), "they did not end together");
  w.expect(returns.sequences == BLINK_REAPED_SEQUENCES, std::to_string(returns.sequences) + " sequences in a turn");
  w.meanwhile = [] {};
}

// A sequence with thousands of pages gives back so many of them in a turn, and its own place with the last (S18).
void long_one_ends(ScriptedSimulation& w) {
  w.attach();
  w.submit(0, std::vector<uint32_t>(6000, 7), 1);
  w.expect(w.until([&] { return w.c.state->n_active == 1; }), "it does not run");
  Returns returns(w);
  w.expect(w.until([&] { return w.completed(0) && returns.available() == w.c.total_pages; }), "S1: pages are lost");
  w.expect(w.c.state->n_zombies == 0, "S5: a sequence is lost");
  w.expect(returns.most_pages == BLINK_REAPED_PAGES, std::to_string(returns.most_pages) + " pages in a turn");
  w.meanwhile = [] {};
}

constexpr Script kScripts[] = {
    {"batch_ends", batch_ends, kWide},
    {"long_one_ends", long_one_ends, kDeep},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
