/* Scripts of prompts: what begins alike is computed once, and none waits long behind others. One a name:
 *
 *   prompts NAME [ARGUMENT]      exits 1 and prints what went wrong
 */
#include <set>

#include "scripted.h"

using namespace simulator;

namespace {

using Tokens = std::vector<uint32_t>;
constexpr uint32_t kPage = 16;
constexpr Sizes kRoomy{32, 1, 16, 2048, kPage, 2048, 512, 8, 0};
constexpr Sizes kNarrow{32, 1, 4, 512, kPage, 32, 512, 4, 0};
constexpr Sizes kMany{64, 1, 32, 1024, kPage, 4096, 1024, 16, 0};
constexpr Sizes kLong{32, 1, 8, 16384, kPage, 4096, 1024, 4, 0};
constexpr Sizes kLongest{32, 1, 8, 131072, kPage, 20000, 1024, 4, 0};

Tokens text(uint32_t seed, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(mix(uint64_t(seed) << 32 | i) % kVocab);
  return tokens;
}
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
void finish(ScriptedSimulation& w, uint32_t first, uint32_t last) {
  const bool done = w.until([&] {
    for (uint32_t slot = first; slot <= last; ++slot) {
      if (!w.completed(slot)) return false;
    }
    return true;
  });
  w.expect(done, "a request waits for ever");
  for (uint32_t slot = first; slot <= last; ++slot)
    w.expect(w.status(slot).reason == BLINK_REASON_LENGTH, "a request failed");
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

// A request whose keys and values may be no numbers leaves nothing behind that others could find.
void fault(ScriptedSimulation& w) {
  w.attach();
  blink_descriptor d = w.descriptor(1, 200);
  const Tokens prompt = text(1, 5 * kPage);
  d.ticket = 1;
  d.prompt_tokens = prompt.size();
  d.seed = 1ull << 62;  // its answer soon comes to where there is no token
  w.ring.place(0, d);
  d.crc32c = reference_crc(d, prompt.data());
  std::copy(prompt.begin(), prompt.end(), w.ring.prompt(0, d));
  w.c.descriptors[0] = d;
  w.request(0, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.completed(0); }), "a request waits for ever");
  w.expect(w.status(0).reason == BLINK_REASON_NUMERICAL_FAULT, "there was always a token");
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
  blink_descriptor d = w.descriptor(1, 200);
  d.ticket = 100;
  d.prompt_tokens = prompt.size();
  w.ring.place(0, d);
  d.seed = 1ull << 62;
  d.crc32c = reference_crc(d, prompt.data());
  std::copy(prompt.begin(), prompt.end(), w.ring.prompt(0, d));
  w.c.descriptors[0] = d;
  w.request(0, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.completed(0); }), "a request waits for ever");
  w.expect(w.status(0).reason == BLINK_REASON_NUMERICAL_FAULT, "there was always a token");
  expect_cached(w, 0, 5 * kPage);
  w.submit(2, prompt, 3);
  finish(w, 2, 2);
  w.expect(!w.completed(1), "nobody else used the pages any more");
  expect_cached(w, 2, 0);
}

// Sequences that decode, and two prompts of `argument` tokens before one of 20: it is answered within 4 steps (S15).
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
  w.submit(5, text(5, 20), 4);
  w.expect(w.until([&] { return w.status(5).count > 0; }), "a prompt waits for ever");
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 4, "S15: a short prompt waited for " + std::to_string(steps) + " steps");
  finish(w, 3, 4);
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

// Beside rows that decode, prompts at once come in by eighths up to BLINK_PROMPT_SHARE, then by thirty-seconds, where
// requests usually have long answers (S15): 8,000 tokens by the small mixed shape, of 528, and 20,000 by the large one.
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
  for (uint32_t slot = 23; slot < 63; ++slot) w.submit(slot, text(slot, 500), 1);
  finish(w, 23, 62);
  w.expect(most > 1000, "S15: many prompts came in by steps of " + std::to_string(most) + " tokens");
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

constexpr Sizes kNarrowChunks{32, 1, 4, 512, kPage, 32, 64, 4, 0};

constexpr Script kScripts[] = {
    {"burst", burst, kRoomy},
    {"equal", equal, kRoomy},
    {"conversation", conversation, kRoomy},
    {"salts", salts, kRoomy},
    {"eviction", eviction, kNarrow},
    {"hot_prompt", hot_prompt, kNarrow},
    {"fault", fault, kRoomy},
    {"fault_shared", fault_shared, kRoomy},
    {"short_behind_long", short_behind_long, kLongest},
    {"bounded_work", bounded_work, kLong},
    {"many_at_once", many_at_once, kMany},
    {"long_before_there_is_room", long_before_there_is_room, kNarrowChunks},
    {"only_the_oldest_holds_pages", only_the_oldest_holds_pages, kNarrowChunks},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
