/* Scripts of prompts beside others: a step's work is bounded, and none waits long behind longer ones. One a name:
 *
 *   prompts NAME [ARGUMENT]      exits 1 and prints what went wrong
 */
#include <set>

#include "texts.h"

using namespace simulator;

namespace {

constexpr Sizes kNarrow{32, 1, 4, 512, kPage, 32, 64, 4, 0};
constexpr Sizes kMany{64, 1, 32, 1024, kPage, 4096, 1024, 16, 0};
constexpr Sizes kLong{32, 1, 8, 16384, kPage, 4096, 1024, 4, 0};
constexpr Sizes kLongest{32, 1, 8, 131072, kPage, 20000, 1024, 4, 0};

// Sequences that decode, and two prompts of `argument` tokens before one of 100: it is answered within 4 steps (S15).
void short_behind_long(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 3; ++slot) w.submit(slot, text(slot, 20), 900);
  w.until([&] { return w.status(2).count > 0; });
  w.submit(3, text(3, w.argument), 4);
  w.submit(4, text(4, w.argument), 4);
  w.until([&] { return w.status(4).state == BLINK_STATE_PREFILL_PROCESSING; });
  w.expect(!w.completed(3), "no long prompt was under way any more");
  const uint64_t before = w.c.state->stats.steps;
  w.submit(5, text(5, 100), 4);
  w.expect(w.until([&] { return w.status(5).count > 0; }), "a prompt waits for ever");
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 4, "S15: a short prompt waited for " + std::to_string(steps) + " steps");
  finish(w, 3, 4);
}

// A very long prompt of one client, with a target of `argument` microseconds (0: none) into which its parts fit:
// another client's prompt of 500 tokens, and one behind it, are in the steps between these parts (S15).
void short_behind_very_long(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.c.target_itl_ns = uint64_t(w.argument) * 1000;
  w.attach();
  for (uint32_t slot = 0; slot < 3; ++slot) w.submit(slot, text(slot, 20), 900);
  w.until([&] { return w.status(2).count > 0; });
  w.submit(3, text(3, 120'000), 4, false, 1);
  w.until([&] { return w.status(3).state == BLINK_STATE_PREFILL_PROCESSING; });
  w.pass(20'000'000);
  const uint64_t before = w.c.state->stats.steps;
  w.submit(4, text(4, 500), 4, false, 2);
  w.submit(5, text(5, 500), 4, false, 2);
  w.expect(w.until([&] { return w.status(4).count > 0 && w.status(5).count > 0; }), "a prompt waits for ever");
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 8, "S15: short prompts waited for " + std::to_string(steps) + " steps");
  w.expect(w.status(3).count == 0, "the very long prompt was in before");
  finish(w, 3, 3);
}

// Beside sequences that decode, the keys that a step's prompt tokens see are bounded too (S15).
void bounded_work(ScriptedSimulation& w) {
  w.c.attention_keys = 1000;
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 3; ++slot) w.submit(slot, text(slot, 20), 900);
  w.until([&] { return w.status(2).count > 0; });
  double most = 0;
  std::set<uint64_t> steps;
  w.meanwhile = [&] {
    for (const auto& run : w.runs) {
      const blink_step_set& set = w.c.sets[run.set];
      const uint32_t n = set.head->n_tokens - set.head->n_decode;
      if (n == 0) continue;
      steps.insert(set.head->id);
      most = std::max(most, n * (1 + set.token_position[set.head->n_tokens - 1] / 1000.0));
    }
  };
  w.submit(3, text(3, 15000), 4);
  finish(w, 3, 3);
  w.expect(most > 900 && most < 1100, "S15: a step had the work of " + std::to_string(most) + " tokens");
  w.expect(steps.size() > 100 && steps.size() < 160, "S15: it took " + std::to_string(steps.size()) + " steps");
}

// Beside rows that decode, prompts at once come in by quarters up to BLINK_PROMPT_SHARE, then by thirty-seconds, where
// requests usually have long answers (S15): 8,000 tokens by the small mixed shape, of 528, and 40,000 by the large one.
void many_at_once(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.c.state->ended_outputs = BLINK_USUAL_MEMORY / 2;
  w.attach();
  for (uint32_t slot = 0; slot < 7; ++slot) w.submit(slot, text(slot, 20), 900);
  w.until([&] { return w.status(6).count > 0; });
  uint32_t most = 0;
  w.meanwhile = [&] {
    for (const auto& run : w.runs) most = std::max(most, w.c.sets[run.set].head->n_tokens);
  };
  for (uint32_t slot = 7; slot < 23; ++slot) w.submit(slot, text(slot, 500), 1);
  finish(w, 7, 22);
  w.expect(most == 528, "S15: few prompts came in by steps of " + std::to_string(most) + " tokens");
  for (uint32_t slot = 23; slot < 63; ++slot) w.submit(slot, text(slot, 1000), 1);
  finish(w, 23, 62);
  w.expect(most > 1000, "S15: many prompts came in by steps of " + std::to_string(most) + " tokens");
}

// A very long prompt that only waits, as its client has places already, makes no step larger for the others' prompts.
void waits_for_a_place(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.c.state->ended_outputs = BLINK_USUAL_MEMORY / 2;
  w.attach();
  for (uint32_t slot = 0; slot < 7; ++slot) w.submit(slot, text(slot, 20), 900);
  w.until([&] { return w.status(6).count > 0; });
  for (uint32_t slot = 8; slot < 14; ++slot) w.submit(slot, text(slot, 1000), 4, false, slot);
  w.submit(7, text(7, 60'000), 4);
  uint32_t most = 0;
  w.meanwhile = [&] {
    const uint32_t i = w.c.requests[7].sequence_index;
    if (i != BLINK_NO_SEQUENCE && w.c.sequences[i].use == BLINK_SEQUENCE_ACTIVE) return;
    for (const auto& run : w.runs) most = std::max(most, w.c.sets[run.set].head->n_tokens);
  };
  finish(w, 8, 13);
  w.expect(w.status(7).count == 0, "it did not wait for the others");
  w.expect(most <= 528, "S15: others' prompts came in by steps of " + std::to_string(most) + " tokens");
  w.meanwhile = [] {};
  finish(w, 7, 7);
}

// A prompt for which there are not yet enough pages begins with those that are there, and ends when others have ended.
void long_before_there_is_room(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  w.submit(0, text(1, 12 * kPage), 60);
  w.until([&] { return w.status(0).count > 0; });
  w.submit(1, text(2, 31 * kPage - 20), 10);  // 32 pages, of which the first has at least 13
  w.expect(w.until([&] { return w.status(1).state == BLINK_STATE_PREFILL_PROCESSING; }, 30'000'000),
           "it does not begin");
  w.expect(!w.completed(0), "nobody else had pages any more");
  finish(w, 0, 1);
}

// While a prompt waits for more pages, a younger one takes none, even if there are enough for it to begin (S15).
void only_the_oldest_holds_pages(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  w.submit(0, text(1, 12 * kPage), 60);
  w.until([&] { return w.status(0).count > 0; });
  w.submit(1, text(2, 22 * kPage), 10);
  w.expect(w.until([&] { return w.status(1).state == BLINK_STATE_PREFILL_PROCESSING; }, 30'000'000),
           "it does not begin");
  w.submit(2, text(3, 28 * kPage), 10);
  bool early = false;
  w.meanwhile = [&] {
    const uint32_t older = w.c.requests[1].sequence_index, younger = w.c.requests[2].sequence_index;
    if (older == BLINK_NO_SEQUENCE || younger == BLINK_NO_SEQUENCE) return;
    early |= w.c.sequences[older].n_pages < 22 && w.c.sequences[younger].n_pages > 0;
  };
  finish(w, 0, 2);
  w.expect(!early, "S15: a younger prompt took pages while the older one still needed some");
}

constexpr Script kScripts[] = {
    {"short_behind_long", short_behind_long, kLongest},
    {"short_behind_very_long", short_behind_very_long, kLongest},
    {"bounded_work", bounded_work, kLong},
    {"many_at_once", many_at_once, kMany},
    {"waits_for_a_place", waits_for_a_place, kLongest},
    {"long_before_there_is_room", long_before_there_is_room, kNarrow},
    {"only_the_oldest_holds_pages", only_the_oldest_holds_pages, kNarrow},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
