/* Scripts of prompts that begin alike: what they share is computed once, and found by nobody who must not. One a name:
 *
 *   prefixes NAME      exits 1 and prints what went wrong
 */
#include "texts.h"

using namespace simulator;

namespace {

constexpr Sizes kRoomy{32, 1, 16, 2048, kPage, 2048, 512, 8, 0};
constexpr Sizes kArmed{32, 1, 16, 2048, kPage, 2048, 512, 8, 5000};
constexpr Sizes kNarrow{32, 1, 4, 512, kPage, 32, 512, 4, 0};

Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

uint32_t cached(ScriptedSimulation& w, uint32_t slot) {
  return blink::high(w.c.progress[slot].prefix);
}
Tokens answer(ScriptedSimulation& w, uint32_t slot) {
  Tokens tokens;
  for (uint32_t i = 0; i < w.status(slot).count; ++i) tokens.push_back(blink::low(w.outputs(slot)[i]));
  return tokens;
}
void expect_cached(ScriptedSimulation& w, uint32_t slot, uint32_t wanted) {
  w.expect(cached(w, slot) == wanted, "S16: request " + std::to_string(slot) + " found " +
                                          std::to_string(cached(w, slot)) + " tokens, not " + std::to_string(wanted));
}

// A burst of one beginning, longer than a step: it is computed once, also by those in the same step.
void burst(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  const Tokens beginning = text(1, 1600);
  for (uint32_t slot = 0; slot < 8; ++slot) w.submit(slot, joined(beginning, text(10 + slot, 20)), 3);
  finish(w, 0, 7);
  const uint64_t computed = w.c.state->stats.prompt_tokens;
  w.expect(computed == 1620 + 7 * 20, "S16: " + std::to_string(computed) + " tokens were computed");
  expect_cached(w, 0, 0);
  for (uint32_t slot = 1; slot < 8; ++slot) expect_cached(w, slot, 1600);
  const blink_stats& stats = w.c.state->stats;
  w.expect(stats.prefix_lookups >= 8, std::to_string(stats.prefix_lookups) + " look-ups were counted");
  // The first prompt's 101 full pages, and of each of the others the one behind the common beginning.
  w.expect(stats.prefix_insertions == 101 + 7, std::to_string(stats.prefix_insertions) + " insertions were counted");
}

// Equal prompts: each computes its last token, or there would be nothing to sample from.
void equal(ScriptedSimulation& w) {
  w.attach();
  for (uint32_t slot = 0; slot < 4; ++slot) w.submit(slot, text(1, 10 * kPage), 40);
  finish(w, 0, 3);
  for (uint32_t slot = 1; slot < 4; ++slot) expect_cached(w, slot, 9 * kPage);
}

// The next turn of a conversation finds the turn before, its answer included. The answer's last token was never fed.
void conversation(ScriptedSimulation& w) {
  w.attach();
  Tokens history = text(1, 100);
  uint32_t known = 0;
  for (uint32_t slot = 0; slot < 6; ++slot) {
    w.submit(slot, history, 50);
    finish(w, slot, slot);
    expect_cached(w, slot, known);
    known = (history.size() + 49) / kPage * kPage;
    history = joined(joined(history, answer(w, slot)), text(10 + slot, 30));
  }
}

// Another salt's pages are never found, although every token is equal.
void salts(ScriptedSimulation& w) {
  w.attach();
  for (uint32_t slot = 0; slot < 6; ++slot) {
    blink_descriptor d = w.descriptor(1, 3);
    d.ticket = slot + 1;
    d.salt[slot % 2] = slot / 2;
    w.write(slot, d, text(1, 100));
    w.request(slot, 1, BLINK_COMMAND_SUBMIT);
    finish(w, slot, slot);
    expect_cached(w, slot, slot == 1 ? 96 : 0);  // the first two have none
  }
}

// Pages make room oldest first, a sequence's last page first.
void eviction(ScriptedSimulation& w) {
  w.attach();
  const Tokens first = text(1, 10 * kPage + 1), second = text(2, 10 * kPage + 1);
  w.submit(0, first, 1);
  finish(w, 0, 0);
  w.submit(1, second, 1);
  finish(w, 1, 1);
  w.submit(2, text(3, 15 * kPage + 1), 1);  // of 32 pages, 12 are free
  finish(w, 2, 2);
  w.expect(w.c.state->stats.prefix_evictions == 4, "S16: not as many pages made room as were needed");
  w.submit(3, second, 1);
  finish(w, 3, 3);
  expect_cached(w, 3, 10 * kPage);
  w.submit(4, first, 1);
  finish(w, 4, 4);
  expect_cached(w, 4, 6 * kPage);
}

// Submits a request, and waits until it has ended.
void ask(ScriptedSimulation& w, uint32_t slot, blink_descriptor d, uint64_t seed, const Tokens& prompt) {
  d.prompt_tokens = prompt.size();
  d.seed = seed;
  w.ring.place(slot, d);
  d.crc32c = reference_crc(d, prompt.data());
  std::copy(prompt.begin(), prompt.end(), w.ring.prompt(slot, d));
  w.c.descriptors[slot] = d;
  w.request(slot, d.sequence, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.status(slot).sequence == d.sequence && w.completed(slot); }),
           "a request waits for ever");
}
// The same in slot 0, of one whose answer soon comes to where there is no token.
void end_in_fault(ScriptedSimulation& w, uint32_t ticket, const Tokens& prompt) {
  blink_descriptor d = w.descriptor(1, 200);
  d.ticket = ticket;
  ask(w, 0, d, 1ull << 62, prompt);
  w.expect(w.status(0).reason == BLINK_REASON_NUMERICAL_FAULT, "there was always a token");
}

// A request whose keys and values may be no numbers leaves nothing behind that others could find.
void fault(ScriptedSimulation& w) {
  w.attach();
  const Tokens prompt = text(1, 5 * kPage);
  end_in_fault(w, 1, prompt);
  w.submit(1, prompt, 3);
  finish(w, 1, 1);
  expect_cached(w, 1, 0);
}

// The same while another request, which goes on, uses the same pages.
void fault_shared(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  const Tokens prompt = text(1, 5 * kPage + 1);
  w.submit(1, prompt, 900);
  w.until([&] { return w.status(1).count > 0; });
  end_in_fault(w, 100, prompt);
  expect_cached(w, 0, 5 * kPage);
  w.submit(2, prompt, 3);
  finish(w, 2, 2);
  w.expect(!w.completed(1), "nobody else used the pages any more");
  expect_cached(w, 2, 0);
}

// Of a request that comes to where there is no token in the step behind one that has filled a page: steps so short that
// the results of two are there at once.
void fault_behind_a_page(ScriptedSimulation& w) {
  w.step_ns = 100;
  w.attach();
  auto serve = [&](uint32_t slot, uint32_t sequence, const Tokens& prompt, uint64_t seed, uint32_t max_tokens) {
    blink_descriptor d = w.descriptor(sequence, max_tokens);
    d.ticket = 2 * sequence + slot;
    ask(w, slot, d, seed, prompt);
  };
  uint32_t faults = 0;
  for (uint32_t k = 1; k <= 400; ++k) {
    Tokens prompt = text(k, 1 + k % (kPage - 1));
    serve(0, k, prompt, 1ull << 62, 200);
    faults += w.status(0).reason == BLINK_REASON_NUMERICAL_FAULT;
    for (uint32_t token : answer(w, 0)) prompt.push_back(token);
    for (uint32_t token : text(1000 + k, kPage)) prompt.push_back(token);
    serve(1, k, prompt, 1, 1);
    expect_cached(w, 1, 0);
    for (uint32_t slot : {0, 1}) w.request(slot, k, BLINK_COMMAND_RELEASE);
    w.until([&] { return w.status(0).state == BLINK_STATE_EMPTY && w.status(1).state == BLINK_STATE_EMPTY; });
  }
  w.expect(faults > 300, "only " + std::to_string(faults) + " requests came to where there was no token");
}

// One prompt is asked again and again, while others come and go: looking for what is absent must not become longer, let
// alone endless, for what was evicted in between.
void hot_prompt(ScriptedSimulation& w) {
  w.attach();
  uint32_t sequence = 0;
  auto serve = [&](const Tokens& prompt) {
    blink_descriptor d = w.descriptor(++sequence, 1);
    d.ticket = sequence;
    w.write(0, d, prompt);
    w.request(0, sequence, BLINK_COMMAND_SUBMIT);
    w.expect(w.until([&] { return w.completed(0); }), "a request waits for ever");
    w.request(0, sequence, BLINK_COMMAND_RELEASE);
    w.expect(w.until([&] { return w.status(0).state == BLINK_STATE_EMPTY; }), "a slot is not given back");
  };
  for (uint32_t k = 0; k < 200; ++k) {
    serve(text(1, 10 * kPage + 1));
    serve(text(100 + k, 12 * kPage + 1));
  }
  uint32_t in_use = 0;
  for (uint32_t i = 0; i < w.c.n_index; ++i) in_use += w.c.page_index[i] != 0;
  w.expect(in_use <= w.c.total_pages, "S16: " + std::to_string(in_use) + " places for fewer pages");
}

constexpr Script kScripts[] = {
    {"burst", burst, kRoomy},
    {"equal", equal, kRoomy},
    {"conversation", conversation, kRoomy},
    {"salts", salts, kRoomy},
    {"eviction", eviction, kNarrow},
    {"hot_prompt", hot_prompt, kNarrow},
    {"fault", fault, kRoomy},
    {"fault_shared", fault_shared, kRoomy},
    {"fault_behind_a_page", fault_behind_a_page, kArmed},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
