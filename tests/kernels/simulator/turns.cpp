/* Scripts of clients that take turns (S2). One a name:
 *
 *   turns NAME      exits 1 and prints what went wrong
 */
#include <set>

#include "scripted.h"

using namespace simulator;

namespace {

using Tokens = std::vector<uint32_t>;
constexpr uint32_t kPage = 16, kMany = 128, kLength = 2040;
constexpr Sizes kRoomy{144, 1, 16, 4096, kPage, 4096, 512, 8, 0};
constexpr Sizes kNarrow{144, 1, 16, 4096, kPage, 300, 512, 8, 0};
constexpr Sizes kSingle{32, 2, 1, 512, kPage, 64, 512, 4, 0};

Tokens text(uint32_t seed, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(mix(uint64_t(seed) << 32 | i) % kVocab);
  return tokens;
}

void submit(ScriptedSimulation& w, uint32_t slot, uint32_t client, uint32_t length, uint32_t max_tokens) {
  static uint32_t ticket = 0;
  blink_descriptor d = w.descriptor(1, max_tokens);
  d.ticket = ++ticket;
  d.client = client;
  w.write(slot, d, text(slot, length));
  w.request(slot, 1, BLINK_COMMAND_SUBMIT);
}
// Client 1's, in slots from 0 on.
void crowd(ScriptedSimulation& w, uint32_t n, uint32_t length, uint32_t max_tokens) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < n; ++slot) submit(w, slot, 1, length, max_tokens);
}
bool running(ScriptedSimulation& w, uint32_t slot) {
  const uint32_t state = w.status(slot).state;
  return state == BLINK_STATE_PREFILL_PROCESSING || state == BLINK_STATE_DECODE_PROCESSING;
}
uint32_t running_below(ScriptedSimulation& w, uint32_t end) {
  uint32_t n = 0;
  for (uint32_t slot = 0; slot < end; ++slot) n += running(w, slot);
  return n;
}
// Another client's request of 8 tokens: its first token comes within so many steps.
void expect_soon(ScriptedSimulation& w, uint32_t slot, uint32_t client, uint32_t most) {
  const uint64_t before = w.c.state->stats.steps;
  submit(w, slot, client, 8, 2);
  w.expect(w.until([&] { return w.status(slot).count > 0; }), "a request waits for ever");
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= most, "S2: a short request waited for " + std::to_string(steps) + " steps");
}
void finish(ScriptedSimulation& w, uint32_t first, uint32_t end) {
  const bool done = w.until([&] {
    for (uint32_t slot = first; slot < end; ++slot) {
      if (!w.completed(slot)) return false;
    }
    return true;
  });
  w.expect(done, "a request waits for ever");
  for (uint32_t slot = first; slot < end; ++slot)
    w.expect(w.status(slot).reason == BLINK_REASON_LENGTH, "a request failed");
}

// 128 prompts of 2,040 tokens: whenever another client comes, its short request waits for no more than a few steps.
void many_prompts(ScriptedSimulation& w) {
  crowd(w, kMany, kLength, 8);
  for (uint32_t k = 0; k < 10; ++k) {
    w.until([&] { return w.c.state->stats.completed >= 11 * k + 3; });
    expect_soon(w, kMany + k, 2 + k, 4);
  }
  w.expect(!w.completed(kMany - 1), "nobody else waited any more");
  finish(w, 0, kMany + 10);
}

// Answers that fill the batch: one of them gives its place to the client that has none, and goes on later.
void full_batch(ScriptedSimulation& w) {
  crowd(w, 40, 20, 900);
  w.until([&] { return running_below(w, 40) == 16; });
  w.until([&] { return w.status(15).count > 3; });
  for (uint32_t k = 0; k < 3; ++k) {
    expect_soon(w, 40 + k, 2, 4);
    finish(w, 40 + k, 41 + k);
  }
  w.expect(running(w, 0), "S7: the oldest gave way");
  w.expect(w.c.state->stats.preempted == 3, "as many gave way as had to");
  finish(w, 0, 40);
  // What gave way came back with its full pages: of each, at most the last, partial page was computed again.
  const uint64_t computed = w.c.state->stats.prompt_tokens;
  w.expect(computed <= 40 * 20 + 3 * 8 + 3 * kPage, "S16: " + std::to_string(computed) + " tokens were computed");
}

// Where each has one place, nobody gives way.
void one_place_each(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 20; ++slot) submit(w, slot, slot, 20, 100);
  finish(w, 0, 20);
  w.expect(w.c.state->stats.preempted == 0, "somebody gave way");
}

// Pages run out: the client that has most gives way, not the youngest.
void full_pages(ScriptedSimulation& w) {
  crowd(w, 12, 100, 3000);
  w.until([&] { return running_below(w, 12) == 12 && w.status(11).count > 3; });
  submit(w, 12, 2, 20, 900);
  w.until([&] { return w.status(12).count > 0; });
  bool paused = false;
  w.meanwhile = [&] { paused |= w.status(12).state == BLINK_STATE_DECODE_PAUSED; };
  finish(w, 12, 13);
  w.expect(w.c.state->stats.preempted > 0, "there were pages for all");
  w.expect(!paused, "S7: the client that had one place gave way");
  finish(w, 0, 12);
}

// One at a time: three clients with four requests each, submitted client by client, of two frontends.
void one_at_a_time(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  const uint32_t slots[] = {0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21};
  for (uint32_t k = 0; k < 12; ++k) submit(w, slots[k], k / 4, 20, 3);
  std::vector<uint32_t> order;
  std::set<uint32_t> seen;
  w.meanwhile = [&] {
    for (uint32_t k = 0; k < 12; ++k) {
      if (w.completed(slots[k]) && seen.insert(k).second) order.push_back(k);
    }
  };
  w.expect(w.until([&] { return order.size() == 12; }), "a request waits for ever");
  for (uint32_t k = 0; k < 12; ++k)
    w.expect(order[k] % 4 == k / 3, "S2: request " + std::to_string(order[k]) + " was number " + std::to_string(k));
}

// New clients come without end: the one that has many requests is served among them.
void newcomers(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 8; ++slot) submit(w, slot, 1, 20, 3);
  uint32_t sequence = 0, served = 0;
  while (w.failure.empty() && !w.completed(7) && served < 200) {
    // Two others wait at any time.
    for (uint32_t slot : {16u, 17u}) {
      const blink::Status status = w.status(slot);
      if (status.state == BLINK_STATE_DECODE_COMPLETED) {
        w.request(slot, status.sequence, BLINK_COMMAND_RELEASE);
        ++served;
      }
      if (status.state != BLINK_STATE_EMPTY) continue;
      blink_descriptor d = w.descriptor(status.sequence + 1, 3);
      d.client = 100 + sequence++;
      d.ticket = sequence;
      w.write(slot, d, text(100 + sequence, 20));
      w.request(slot, status.sequence + 1, BLINK_COMMAND_SUBMIT);
    }
    w.pass(300'000);
  }
  w.expect(w.completed(7), "S2: a client with many requests waits for ever");
  w.expect(served >= 7, "S2: newcomers waited for more than their turn: " + std::to_string(served));
}

// Client 1 has the batch and most of the line. Nobody gives way to a request that cannot run.
void expect_nobody_gave_way(ScriptedSimulation& w, bool torn) {
  crowd(w, 40, 20, 3000);
  w.until([&] { return w.status(15).count > 3; });
  for (uint32_t k = 1; k <= 10; ++k) {
    blink_descriptor d = w.descriptor(k, 5);
    d.ticket = 100 + k;
    d.client = 1 + k;
    if (!torn) d.top_p = 0;  // which is refused
    w.write(50, d, text(50, 20), torn);
    w.request(50, k, BLINK_COMMAND_SUBMIT);
    w.expect(w.until([&] { return w.completed(50); }), "a request that cannot run waits for ever");
    w.request(50, k, BLINK_COMMAND_RELEASE);
    w.expect(w.until([&] { return w.status(50).state == BLINK_STATE_EMPTY; }), "a slot is not given back");
  }
  const uint64_t preempted = w.c.state->stats.preempted;
  w.expect(preempted == 0, "S7: " + std::to_string(preempted) + " gave way to what cannot run");
}
void refused(ScriptedSimulation& w) {
  expect_nobody_gave_way(w, false);
}
void never_whole(ScriptedSimulation& w) {
  expect_nobody_gave_way(w, true);
}

// A payload that is torn when it is first read, in whose descriptor another client still stands: once it is whole, its
// request has the turn of its own client.
void torn_client(ScriptedSimulation& w) {
  crowd(w, 20, 20, 900);
  w.until([&] { return w.status(15).count > 3; });
  blink_descriptor d = w.descriptor(1, 2);
  d.ticket = 100;
  d.client = 1;
  w.write(50, d, text(50, 8), true);
  w.request(50, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.c.state->stats.torn_payloads > 0; }), "R4: it is not noticed");
  d.client = 2;
  w.write(50, d, text(50, 8));
  const uint64_t before = w.c.state->stats.steps;
  w.expect(w.until([&] { return w.status(50).count > 0; }), "a request waits for ever");
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= 8, "S2: it waited for " + std::to_string(steps) + " steps, as if it were another client's");
}

constexpr Script kScripts[] = {
    {"many_prompts", many_prompts, kRoomy},
    {"full_batch", full_batch, kRoomy},
    {"one_place_each", one_place_each, kRoomy},
    {"full_pages", full_pages, kNarrow},
    {"one_at_a_time", one_at_a_time, kSingle},
    {"newcomers", newcomers, kSingle},
    {"refused", refused, kRoomy},
    {"never_whole", never_whole, kRoomy},
    {"torn_client", torn_client, kRoomy},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
