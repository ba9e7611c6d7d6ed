/* Scripts in which pages of the prefix cache go to host memory and come back (S19), one a name:
 *
 *   host_pages NAME      exits 1 and prints what went wrong
 */
#include "scripted.h"

using namespace simulator;

namespace {

constexpr uint32_t kPage = 4, kPrompt = 100, kCached = 96;  // tokens: all full pages of a prompt are found again

// 64 pages on the device and 256 in host memory, of which a step copies 8.
Sizes sizes(uint32_t host_pages = 256, uint32_t mixed_share = 4) {
  Sizes z{32, 1, 4, 256, kPage, 64, 32, 4, 200'000};
  z.mixed_share = mixed_share;
  z.host_pages = host_pages;
  z.copied_pages = 8;
  return z;
}

std::vector<uint32_t> prompt(uint32_t number) {
  std::vector<uint32_t> tokens(kPrompt);
  for (uint32_t i = 0; i < kPrompt; ++i) tokens[i] = 2 + (number * 131 + i * 7) % (kVocab - 2);
  return tokens;
}

// Serves prompt `number` in a slot that was not used yet. How many of its tokens were found.
uint32_t serve(ScriptedSimulation& w, uint32_t slot, uint32_t number) {
  w.submit(slot, prompt(number), 3);
  w.expect(w.until([&] { return w.completed(slot); }), "a request waits for ever");
  w.expect(w.status(slot).reason == BLINK_REASON_LENGTH, "a request fails");
  return blink::high(w.c.progress[slot].prefix);
}

// Prompts whose pages no longer fit the device: 25 pages each.
void serve_others(ScriptedSimulation& w, uint32_t first, uint32_t n) {
  for (uint32_t i = first; i < first + n; ++i) w.expect(serve(w, i, i) == 0, "another prompt was found");
}

// A prompt is found again after the device has had no room for it, and no page of it is computed twice.
void come_back(ScriptedSimulation& w) {
  w.attach();
  serve(w, 0, 0);
  serve_others(w, 1, 6);
  w.expect(w.c.state->brought_back == 0, "something came back for nothing");
  const uint64_t fed = w.engine.fed;
  const uint32_t found = serve(w, 7, 0);
  w.expect(found == kCached, "only " + std::to_string(found) + " tokens were found again");
  w.expect(w.c.state->brought_back > 0, "nothing came back");
  w.expect(w.engine.fed - fed == kPrompt - kCached + 2, "what came back was computed too");
}

// What came back has its copy still: it is evicted and comes back again without being written again.
void come_back_twice(ScriptedSimulation& w) {
  come_back(w);
  serve_others(w, 8, 4);
  const uint64_t before = w.c.state->brought_back;
  w.expect(serve(w, 12, 0) == kCached, "it did not come back again");
  w.expect(w.c.state->brought_back > before, "nothing came back again");
  w.expect(w.c.state->host_copies < 12 * kPrompt / kPage, "pages were written twice");
}

// Host memory for less than one prompt: what is oldest there makes room, and what is computed anew is right.
void make_room(ScriptedSimulation& w) {
  w.attach();
  for (uint32_t i = 0; i < 12; ++i) serve(w, i, i % 4);
  w.expect(w.c.state->host_copies > w.c.host_pages, "no host page was used twice");
}

// A rest that a mixed step takes in for next to nothing is computed, whatever host memory has (S19).
void compute_what_is_short(ScriptedSimulation& w) {
  w.attach();
  serve(w, 0, 0);
  serve_others(w, 1, 6);
  serve(w, 7, 0);
  w.expect(w.c.state->host_copies > 0, "nothing was written");
  w.expect(w.c.state->brought_back == 0, "a short prompt waited for copies");
}

// While an answer is written, a prompt that comes back delays none of its tokens by more than one copy step.
void delay_no_answer(ScriptedSimulation& w) {
  w.attach();
  serve(w, 0, 0);
  serve_others(w, 1, 6);
  w.submit(8, {5, 6, 7}, 100);
  w.until([&] { return w.status(8).count > 10; });
  uint64_t longest = 0, since = w.clock;
  uint32_t count = w.status(8).count;
  w.meanwhile = [&] {
    if (w.status(8).count != count)
      count = w.status(8).count, longest = std::max(longest, w.clock - since), since = w.clock;
  };
  w.expect(serve(w, 9, 0) == kCached, "it did not come back");
  w.expect(w.c.state->brought_back > w.c.shapes[w.c.copy_shape].tokens, "one step brought everything back");
  w.meanwhile = [] {};
  w.expect(longest < 3 * w.step_ns, "S19: a token waited for " + std::to_string(longest) + " ns");
}

const Script kScripts[] = {
    {"come_back", come_back, sizes()},
    {"come_back_twice", come_back_twice, sizes()},
    {"make_room", make_room, sizes(20)},
    {"compute_what_is_short", compute_what_is_short, sizes(256, kPrompt)},
    {"delay_no_answer", delay_no_answer, sizes()},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
