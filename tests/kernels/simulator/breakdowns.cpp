/* Scripts in which the machine breaks down or stands still, one a name:
 *
 *   breakdowns NAME [ARGUMENT]      exits 1 and prints what went wrong
 */
#include "scripted.h"

using namespace simulator;

namespace {

constexpr Sizes kLong{32, 1, 4, 256, 4, 256, 64, 4, 0};
constexpr Sizes kArmed{32, 1, 4, 256, 4, 256, 64, 4, 200'000};

// Breaks the engine in the middle of an answer, with the script's argument as control word: the scheduler ends, says
// what broke, and says so to every client (S10).
void fault(ScriptedSimulation& w, blink_fault expected, const std::function<void()>& break_down) {
  w.attach();
  w.submit(0, {5, 6, 7}, 200);
  w.until([&] { return w.status(0).count == 5; });
  for (uint32_t slot = 1; slot < 8; ++slot) w.submit(slot, {9}, 200);  // more than run together
  w.until([&] { return w.status(7).state == BLINK_STATE_PREFILL_PENDING && w.status(3).count > 0; });
  w.control(w.argument);
  break_down();
  w.expect(w.until([&] { return w.ended; }, w.c.step_timeout_ns + 1'000'000'000), "S10: the scheduler goes on");
  w.expect(w.c.header->phase == BLINK_PHASE_FAILED, "S10: it ended in phase " + std::to_string(w.c.header->phase));
  w.expect(w.c.header->fault == expected, "S10: the fault is " + std::to_string(w.c.header->fault));
  for (uint32_t slot = 0; slot < 8; ++slot)
    w.expect(w.completed(slot) && w.status(slot).reason == BLINK_REASON_ENGINE_FAULT, "S10: a client was not told");
}

void launch_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_LAUNCH, [&] { w.refusal = 719; });
}
void step_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_STEP, [&] { w.hangs = true; });
}
// The running step says that it is in a logits processor: in both, of which either may be the one that does not end.
void processor_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_PROCESSOR, [&] {
    w.hangs = true;
    for (uint32_t set = 0; set < BLINK_STEP_SETS; ++set) w.c.sets[set].head->processing[5] = 2;
  });
  w.expect(w.c.header->fault_detail == 5, "S10: another processor is blamed");
}
void gate_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_GATE, [&] { w.gate_fails = true; });
}
void relaunch_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_RELAUNCH, [&] { w.relaunch_refusal = 1; });
}
void token_fault(ScriptedSimulation& w) {
  fault(w, BLINK_FAULT_TOKEN, [&] { w.c.tables.vocab_size = 1; });
}

// Nobody runs for a while: the machine was suspended, or the process stopped. Nobody is to blame, and nothing is lost.
void everybody_stood_still(ScriptedSimulation& w) {
  w.attach();
  w.step_ns = 1'000'000;
  w.submit(0, {5, 6, 7}, 200);
  w.until([&] { return w.status(0).count == 5; });
  w.submit(1, {5, 6, 7}, 10, true);
  w.until([&] { return w.c.state->stats.torn_payloads > 0; });
  w.clock += w.c.step_timeout_ns + 2 * BLINK_LEASE_TIMEOUT_NS;
  w.pass(1'000'000);
  w.write(1, w.descriptor(1, 10), {5, 6, 7});  // it was about to be
  w.expect(w.until([&] { return w.ended || (w.completed(0) && w.completed(1)); }), "a request waits for ever");
  for (uint32_t slot : {0u, 1u})
    w.expect(w.status(slot).reason == BLINK_REASON_LENGTH, "S10: a client was blamed, or the engine");
  w.expect(w.c.state->stats.leases_reclaimed == 0, "R6: a frontend was blamed");
}

// The frontends stand still just as long as what they asked for, the script's argument, allows; and then longer.
void frontends_stand_still(ScriptedSimulation& w) {
  const uint64_t least = BLINK_LEASE_TIMEOUT_NS, most = BLINK_LONGEST_LEASE_NS;
  const uint64_t kept = std::min(std::max(w.argument, least), most);
  for (uint32_t i = 0; i < w.c.n_leases; ++i) w.c.leases[i].timeout_ns = w.argument;
  w.attach();
  w.submit(0, {5, 6, 7}, 200);
  w.silent = true;
  const uint64_t last_beat = w.c.state->leases[0].changed_ns;
  w.pass(last_beat + kept - 1'000'000 - w.clock);
  w.expect(w.completed(0), "nothing runs for a frontend that stands still");
  w.expect(w.c.state->stats.leases_reclaimed == 0, "R6: a lease was taken back early");
  w.expect(w.c.lease_acks[0].word == blink::pair_word(1, BLINK_LEASE_GRANTED), "R6: a lease was taken back early");
  w.expect(w.until([&] { return w.c.state->stats.leases_reclaimed == w.c.n_leases; }, 50'000'000),
           "R6: a lease outlives its frontend");
}

// A request of 200 tokens whose first five are there.
void begin(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  w.submit(0, {5, 6, 7}, 200);
  w.expect(w.until([&] { return w.status(0).count == 5; }), "no answer begins");
}

// The request of `begin` ends as if nothing had happened, and no lease was taken back.
void expect_unharmed(ScriptedSimulation& w) {
  const uint64_t& reclaimed = w.c.state->stats.leases_reclaimed;
  w.expect(w.until([&] { return w.ended || reclaimed || w.completed(0); }), "a request waits for ever");
  w.expect(reclaimed == 0, "R6: a frontend was blamed");
  w.expect(w.status(0).reason == BLINK_REASON_LENGTH && w.status(0).count == 200,
           "S10: it ended with reason " + std::to_string(w.status(0).reason));
}

// A launch is refused twice, and between the two attempts the scheduler stands still for longer than it retries.
void stall_between_refusals(ScriptedSimulation& w) {
  begin(w);
  const uint64_t before = w.c.state->stats.refused_launches;
  w.meanwhile = [&] {
    if (w.c.state->stats.refused_launches == before + 1) w.clock += 2 * BLINK_LAUNCH_RETRY_NS;
    if (w.c.state->stats.refused_launches == before + 2) w.refusal = 0;
  };
  w.refusal = 1;
  w.until([&] { return w.ended || w.refusal == 0; });
  w.expect(w.c.state->stats.refused_launches == before + 2, "S9: it was not tried again");
  expect_unharmed(w);
}

// The machine is suspended between two executions of the kernel.
void stall_between_executions(ScriptedSimulation& w) {
  w.between_executions = [&] { w.clock += 3 * BLINK_LEASE_TIMEOUT_NS; };
  begin(w);
  w.submit(1, {5, 6, 7}, 10, true);
  w.expect(w.until([&] { return w.c.state->stats.relaunches == 1; }), "there is only one execution");
  w.write(1, w.descriptor(1, 10), {5, 6, 7});  // it was about to be
  expect_unharmed(w);
  w.expect(w.until([&] { return w.completed(1); }), "a request waits for ever");
  w.expect(w.status(1).reason == BLINK_REASON_LENGTH, "R4: a payload was blamed");
}

// The next execution's multiprocessor has a clock that is a little behind: it reads less than what was saved.
void clock_behind_between_executions(ScriptedSimulation& w) {
  w.between_executions = [&] { w.turn_back(w.clock - w.c.state->leases[0].changed_ns + 100); };
  begin(w);
  expect_unharmed(w);
  w.expect(w.c.state->stats.relaunches > 0, "there is only one execution");
}

// The clock goes back by the script's argument, just when a lease has beaten.
void clock_goes_back(ScriptedSimulation& w) {
  w.clock = 20'000'000'000;
  begin(w);
  const uint64_t beat = w.c.state->leases[0].changed_ns;
  bool done = false;
  w.meanwhile = [&] {
    if (!done && w.c.state->leases[0].changed_ns != beat) done = true, w.turn_back(w.argument);
  };
  w.until([&] { return done; });
  const uint64_t before = w.c.header->heartbeat;
  w.pass(5'000'000);
  w.expect(w.c.header->heartbeat != before, "S10: the scheduler seems dead");
  expect_unharmed(w);
  for (uint64_t ns : w.c.state->plan_ns) w.expect(ns < 1'000'000, "planning seems to take for ever");
}

// The gate of the armed step gives up, so that it runs beside the step before it and completes first: nothing that
// either has left behind is published.
void gate_gives_up_early(ScriptedSimulation& w) {
  begin(w);
  w.until([&] { return w.runs.size() == 2; });
  w.hangs = true;
  const uint32_t count = w.status(0).count;
  blink_step_head& armed = *w.c.sets[w.runs[1].set].head;
  armed.fault = 1;
  // With an argument, the step before it completes too, before anybody looks.
  __atomic_store_n(w.c.tables.completed, armed.id - w.argument, __ATOMIC_RELEASE);
  w.expect(w.until([&] { return w.ended; }, 1'000'000), "S10: the scheduler goes on");
  w.expect(w.c.header->fault == BLINK_FAULT_GATE, "S10: the fault is " + std::to_string(w.c.header->fault));
  w.expect(w.c.header->fault_detail == armed.id, "S10: another step is blamed");
  w.expect(w.status(0).count == count, "E2: a step that did not run alone was published");
}

// A prompt that takes the argument's time to read is the longest turn so far, unless the loop stood still meanwhile.
void turn_takes_long(ScriptedSimulation& w) {
  const uint64_t before = w.c.state->stats.longest_turn_ns;
  w.attach();
  bool late = false;
  w.touched = [&](const void* p) {
    if (late || p < w.c.prompts || p >= w.c.prompts + w.c.prompt_heap) return;
    late = true;
    w.clock += w.argument;
  };
  w.submit(0, {5, 6, 7}, 3);
  w.expect(w.until([&] { return w.completed(0); }), "S10: it waits for ever");
  w.touched = [](auto) {};
  w.expect(late, "no prompt was read");
  const uint64_t longest = w.c.state->stats.longest_turn_ns;
  const bool counts = w.argument <= BLINK_STALL_NS;
  w.expect(counts == (longest >= w.argument), "S18: the longest turn took " + std::to_string(longest));
  w.expect(longest > before && longest < (counts ? w.argument : 0) + 100'000, "S18: " + std::to_string(longest));
}

constexpr Script kScripts[] = {
    {"launch_fault", launch_fault, kLong},
    {"step_fault", step_fault, kLong},
    {"processor_fault", processor_fault, kLong},
    {"gate_fault", gate_fault, kLong},
    {"relaunch_fault", relaunch_fault, kLong},
    {"token_fault", token_fault, kLong},
    {"everybody_stood_still", everybody_stood_still, kLong},
    {"frontends_stand_still", frontends_stand_still, kLong},
    {"stall_between_refusals", stall_between_refusals, kLong},
    {"stall_between_executions", stall_between_executions, kLong},
    {"clock_behind_between_executions", clock_behind_between_executions, kLong},
    {"clock_goes_back", clock_goes_back, kLong},
    {"gate_gives_up_early", gate_gives_up_early, kArmed},
    {"turn_takes_long", turn_takes_long, kLong},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
