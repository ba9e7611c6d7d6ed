/* What the scripts of priorities share: requests, and answers that are right whoever gave way meanwhile. */
#pragma once

#include <set>

#include "texts.h"

namespace simulator {

inline blink_descriptor described(ScriptedSimulation& w, uint32_t client, int8_t priority, uint32_t max_tokens) {
  static uint32_t ticket = 0;
  blink_descriptor d = w.descriptor(1, max_tokens);
  d.ticket = ++ticket;
  d.client = client;
  d.priority = priority;
  return d;
}
inline void submit_of(ScriptedSimulation& w, uint32_t client, uint32_t slot, int8_t priority, uint32_t length,
                      uint32_t max_tokens) {
  w.write(slot, described(w, client, priority, max_tokens), text(slot, length));
  w.request(slot, 1, BLINK_COMMAND_SUBMIT);
}
// Each of a client of its own, so that nobody gives way because a client has several places.
inline void submit(ScriptedSimulation& w, uint32_t slot, int8_t priority, uint32_t length, uint32_t max_tokens) {
  submit_of(w, slot, slot, priority, length, max_tokens);
}
inline void begin(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.c.priorities = 1;
  w.attach();
}
inline bool paused(ScriptedSimulation& w, uint32_t slot) {
  return w.status(slot).state == BLINK_STATE_DECODE_PAUSED;
}
// Waits until each has so many tokens of its answer.
inline void answering(ScriptedSimulation& w, uint32_t first, uint32_t end, uint32_t count) {
  const bool all = w.until([&] {
    for (uint32_t slot = first; slot < end; ++slot) {
      if (w.status(slot).count < count) return false;
    }
    return true;
  });
  w.expect(all, "a request waits for ever");
}
// Waits for the first token of an urgent request, which comes at most so many steps behind `before`.
inline void expect_soon(ScriptedSimulation& w, uint32_t slot, uint64_t before, uint64_t most) {
  answering(w, slot, slot + 1, 1);
  const uint64_t steps = w.c.state->stats.steps - before;
  w.expect(steps <= most, "S7, S15: the urgent one waited for " + std::to_string(steps) + " steps");
}
// Waits until each has ended, with the answer that it would have had alone, whoever gave way meanwhile.
inline void finish_right(ScriptedSimulation& w, uint32_t first, uint32_t end) {
  finish(w, first, end - 1);
  for (uint32_t slot = first; slot < end; ++slot) {
    const blink_descriptor& d = w.c.descriptors[slot];
    const std::string name = "request " + std::to_string(slot);
    w.expect(w.status(slot).count == d.max_tokens, name + " failed");
    uint32_t previous = w.ring.prompt(slot, d)[d.prompt_tokens - 1];
    for (uint32_t i = 0; i < w.status(slot).count; ++i) {
      previous = answer(d.seed, i, previous);
      w.expect(w.outputs(slot)[i] == blink::output_record(previous, i, 1),
               "S7: token " + std::to_string(i) + " of " + name + " is wrong");
    }
  }
}
inline void expect_preempted(ScriptedSimulation& w, uint64_t wanted) {
  const uint64_t preempted = w.c.state->stats.preempted;
  w.expect(preempted == wanted, "S7: " + std::to_string(preempted) + " gave way, not " + std::to_string(wanted));
}
// Waits for all, and returns the slots in the order in which they ended.
inline std::vector<uint32_t> order_of_ends(ScriptedSimulation& w, uint32_t n) {
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

}  // namespace simulator
