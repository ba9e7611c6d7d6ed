/* Scripts that break what others rely on, one a name:
 *
 *   scripted NAME [ARGUMENT]      exits 1 and prints what went wrong
 */
#include "scripted.h"

#include <set>

using namespace simulator;

namespace {

constexpr Sizes kSmall{32, 2, 4, 64, 4, 64, 64, 4, 0};
constexpr Sizes kTight{32, 2, 4, 64, 4, 18, 64, 4, 0};  // pages for one long sequence
constexpr Sizes kLong{32, 1, 4, 256, 4, 256, 64, 4, 0};
constexpr Sizes kShared{32, 2, 4, 256, 4, 256, 64, 4, 0};
constexpr Sizes kArmed{32, 1, 4, 256, 4, 256, 64, 4, 200'000};
constexpr Sizes kMixed{32, 1, 8, 1024, 16, 1024, 512, 4, 0};
constexpr Sizes kLengthy{32, 1, 8, 8192, 16, 2048, 1024, 4, 0};
constexpr Sizes kShare{32, 1, 8, 1024, 16, 1024, 512, 4, 0, 520, 300};
constexpr uint32_t kOther = 16;  // the first slot of the second lease

// A word with a command that there is not changes nothing, for nobody (R3).
void unknown_command(ScriptedSimulation& w) {
  w.attach();
  w.submit(0, {5, 6, 7}, 3);  // its sequence and its pages are what the words below could be taken for
  w.expect(w.until([&] { return w.completed(0); }), "the first request did not end");
  for (uint32_t command : {BLINK_COMMAND_NONE + 0u, BLINK_COMMAND_RELEASE + 1u, 9u, 255u}) {
    w.request(kOther, 1, command);
    w.pass(1'000'000);
    w.expect(w.c.progress[kOther].status == 0, "R3: a word without a command was answered");
  }
  w.submit(1, {8, 9}, 5);
  w.submit(kOther, {8, 9}, 5);
  w.expect(w.until([&] { return w.completed(1) && w.completed(kOther); }), "R3: a request waits for ever");
  w.expect(w.c.state->n_waiting == 0 && w.c.state->n_active == 0, "S3: somebody is still counted");
  w.expect(w.until([&] { return blink::PageCounts(w.c).available() == w.c.total_pages; }, 1'000'000),
           "S1: pages are lost");
}

// Two requests outgrow the pages. Lets `meddle` act when the second lease's is paused; that one alone may notice.
void resume(ScriptedSimulation& w, const std::function<void()>& meddle) {
  w.attach();
  w.submit(0, {5, 6, 7, 8}, 59);
  w.until([&] { return w.status(0).count >= 1; });
  w.submit(kOther, {9, 9, 9, 9}, 59);
  w.expect(w.until([&] { return w.status(kOther).state == BLINK_STATE_DECODE_PAUSED; }), "nobody was paused");
  meddle();
  w.expect(w.until([&] { return w.completed(0) && w.completed(kOther); }), "a request waits for ever");
  w.expect(w.status(0).reason == BLINK_REASON_LENGTH && w.status(0).count == 59, "R7: the other request suffered");
  w.expect(w.status(kOther).reason == BLINK_REASON_BAD_CHECKSUM, "it went on from what was not admitted");
}

// A paused request's payload gives way to another that is valid, and longer than its sequence (S13).
void longer_prompt(ScriptedSimulation& w) {
  resume(w, [&] { w.write(kOther, w.descriptor(1, 59), std::vector<uint32_t>(60, 3)); });
}

void other_prompt(ScriptedSimulation& w) {
  resume(w, [&] { w.write(kOther, w.descriptor(1, 59), {9, 9, 9, 8}); });
}

// What it has answered is overwritten by what is no token, or with a record of elsewhere.
void foreign_token(ScriptedSimulation& w) {
  resume(w, [&] { *w.outputs(kOther) = blink::output_record(kVocab, 0, 1); });
}

void foreign_record(ScriptedSimulation& w) {
  resume(w, [&] { *w.outputs(kOther) = blink::output_record(5, 1, 1); });
}

// The last step of an execution takes long, and the next one is planned: the ring is still looked at.
void long_last_step(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  w.submit(0, {5, 6, 7}, 200);
  w.expect(w.until([&] { return w.c.state->stats.launches == BLINK_LAUNCH_WINDOW - 1; }),
           "no step is the last but one");
  w.step_ns = 5'000'000'000;
  w.until([&] { return w.c.state->stats.launches == BLINK_LAUNCH_WINDOW; });
  w.pass(1'000'000'000);
  const uint64_t beat = w.c.header->heartbeat;
  w.request(0, 1, BLINK_COMMAND_CANCEL);
  w.pass(10'000'000);
  w.expect(w.c.state->stats.steps < BLINK_LAUNCH_WINDOW, "the step was not long");
  w.expect(w.c.header->heartbeat != beat, "S10: the scheduler seems dead");
  w.expect(w.completed(0), "a cancel is not seen");
}

// A lease submits what is refused as fast as it can: each scan brings something to stage, and nothing to run (S14).
void refused_without_end(ScriptedSimulation& w) {
  w.attach();
  std::vector<uint32_t> sequences(kOther);
  w.meanwhile = [&] {
    for (uint32_t i = 0; i < kOther; ++i) {
      const uint32_t slot = kOther + i;
      if (w.completed(slot)) w.request(slot, sequences[i], BLINK_COMMAND_RELEASE);
      if (w.status(slot).state != BLINK_STATE_EMPTY || w.status(slot).sequence != sequences[i]) continue;
      blink_descriptor d = w.descriptor(++sequences[i], 5);
      d.top_p = 0;
      w.write(slot, d, {5});
      w.request(slot, sequences[i], BLINK_COMMAND_SUBMIT);
    }
  };
  w.pass(10'000'000);
  w.expect(w.c.state->stats.failed > 100, "too few were refused");
  w.submit(0, {8, 9}, 5);
  w.expect(w.until([&] { return w.status(0).count > 0; }, 2 * BLINK_GATHER_NS), "S14: a step waits for ever");
}

// A lease of payloads that are never whole does not make the scheduler read them at every step, and each is refused in
// time (R4).
void torn_without_end(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  w.submit(0, {8, 9}, 200);
  w.until([&] { return w.status(0).count == 10; });
  const uint64_t loads = w.loads, before = w.clock;
  const std::vector<uint32_t> prompt(250, 7);
  for (uint32_t i = 0; i < kOther; ++i) w.submit(kOther + i, prompt, 5, true);
  w.until([&] { return w.status(0).count == 190; });
  const uint64_t payloads = (w.loads - loads) / (prompt.size() + sizeof(blink_descriptor) / 4);
  w.expect(w.clock - before < BLINK_TORN_PAYLOAD_TIMEOUT_NS && w.clock - before > 150'000'000,
           "the steps took as long");
  w.expect(payloads < 40 * kOther, "R4: " + std::to_string(payloads) + " payloads were read in 180 steps");
  w.submit(1, {8, 9}, 5);
  w.expect(w.until([&] { return w.completed(1); }, 20'000'000), "S2: it waited for what is torn");
  w.expect(
      w.until([&] { return w.completed(kOther) && w.completed(2 * kOther - 1); }, 2 * BLINK_TORN_PAYLOAD_TIMEOUT_NS),
      "R4: a torn payload waits for ever");
  w.expect(w.status(kOther).reason == BLINK_REASON_BAD_CHECKSUM, "R4: it was served");
}

void expect_order(ScriptedSimulation& w, std::initializer_list<uint32_t> slots) {
  uint64_t last = 0;
  for (uint32_t slot : slots) {
    w.expect(w.until([&] { return w.completed(slot); }), "a request waits for ever");
    const uint64_t arrival = w.c.requests[slot].arrival;
    w.expect(arrival > last, "S2: slot " + std::to_string(slot) + " was overtaken");
    last = arrival;
  }
}

// A frontend submits where a scan has been and then where it will come to, and does so again in the next scan: nobody
// overtakes (S2).
void submitted_behind_a_scan(ScriptedSimulation& w) {
  w.attach();
  uint32_t scans = 0;
  w.at = [&](uint32_t slot) {
    if (slot != 8 || scans == 3) return;
    ++scans;
    w.submit(2 * scans, {8, 9}, 5);
    w.submit(20 + 2 * scans, {8, 9}, 5);
  };
  w.until([&] { return scans == 3; });
  expect_order(w, {2, 22, 4, 24, 6, 26});
}

// What lies in the place of a payload that is not there yet says nothing of the order of others (S2, R4).
void ticket_of_another(ScriptedSimulation& w) {
  w.attach();
  w.c.descriptors[0].ticket = 1000;
  w.request(0, 1, BLINK_COMMAND_SUBMIT);
  w.until([&] { return w.c.state->claims == 1; });
  w.submit(20, {8, 9}, 5);
  w.submit(2, {8, 9}, 5);
  expect_order(w, {20, 2});
}

// What steps took in of prompts: tokens of the step that had most, and in how many steps.
struct Taken {
  uint32_t most = 0;
  std::set<uint64_t> steps;
};

// The slots from `first` to `last` get prompts of `n` tokens and answers of one, one after the other.
Taken taken_in(ScriptedSimulation& w, uint32_t first, uint32_t last, uint32_t n = 500) {
  Taken taken;
  w.meanwhile = [&] {
    for (const auto& run : w.runs) {
      const blink_step_head& head = *w.c.sets[run.set].head;
      const uint32_t tokens = head.n_tokens - head.n_decode;
      taken.most = std::max(taken.most, tokens);
      if (tokens) taken.steps.insert(head.id);
    }
  };
  for (uint32_t slot = first; slot <= last; ++slot) {
    w.submit(slot, std::vector<uint32_t>(n, 100 + slot), 1);
    w.expect(w.until([&] { return w.completed(slot); }), "a prompt waits for ever");
  }
  w.meanwhile = [] {};
  return taken;
}
void seven_decode(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  for (uint32_t slot = 0; slot < 7; ++slot) w.submit(slot, {5, 6, 7}, 900);
  w.until([&] { return w.status(6).count > 0; });
}
void expect_tokens(ScriptedSimulation& w, uint32_t tokens, uint32_t wanted) {
  w.expect(tokens == wanted,
           "S15: a step took in " + std::to_string(tokens) + " tokens, not " + std::to_string(wanted));
}

// With what requests usually are a small mixed step, of 260 tokens, is more than enough. After many of long prompts and
// short answers a prompt comes in whole (S15).
void prompts_in_balance(ScriptedSimulation& w) {
  seven_decode(w);
  expect_tokens(w, taken_in(w, 10, 10).most, 253);
  taken_in(w, 11, 25);
  expect_tokens(w, taken_in(w, 26, 26).most, 500);
  w.expect(w.status(0).count > 40, "S15: the sequences that decode stood still");
  w.c.state->ended_prompts = 1u << 30, w.c.state->ended_outputs = 1u << 20;
  w.pass(20'000'000);
  w.expect(w.c.state->ended_prompts + w.c.state->ended_outputs <= BLINK_USUAL_MEMORY, "S15: nothing is forgotten");
}

// A quarter of a prompt is taken in at least, from its first step to its last, and the shape that this needs is filled.
// A long prompt that is in, whose sequence decodes, changes nothing for others.
void prompts_of_length(ScriptedSimulation& w) {
  seven_decode(w);
  expect_tokens(w, taken_in(w, 10, 10, 1000).most, 509);
  const Taken shorter = taken_in(w, 11, 11, 2000), longer = taken_in(w, 12, 12, 2400);
  expect_tokens(w, shorter.most, 509);
  expect_tokens(w, longer.most, 1024);
  w.expect(shorter.steps.size() == 4, "S15: 2,000 tokens took " + std::to_string(shorter.steps.size()) + " steps");
  w.expect(longer.steps.size() == 3, "S15: 2,400 tokens took " + std::to_string(longer.steps.size()) + " steps");
  w.submit(7, std::vector<uint32_t>(2400, 7), 900);
  w.until([&] { return w.status(7).count > 0; });
  w.expect(taken_in(w, 13, 13, 900).most < 600, "S15: a sequence that decodes counts as a prompt");
}

// What a model's weights hide is taken in at least.
void prompts_in_share(ScriptedSimulation& w) {
  seven_decode(w);
  expect_tokens(w, taken_in(w, 10, 10).most, 500);
}

// Requests that were given up before their answer began say nothing of what requests are.
void prompts_given_up(ScriptedSimulation& w) {
  seven_decode(w);
  for (uint32_t slot = 10; slot < 26; ++slot) {
    w.submit(slot, std::vector<uint32_t>(500, 100 + slot), 1);
    w.until([&] { return w.status(slot).state == BLINK_STATE_PREFILL_PROCESSING; });
    w.request(slot, 1, BLINK_COMMAND_CANCEL);
    w.expect(w.until([&] { return w.completed(slot); }), "a cancel is not seen");
  }
  w.expect(w.c.state->stats.cancelled == 16, "they were not given up");
  expect_tokens(w, taken_in(w, 26, 26).most, 253);
}

// A sequence whose last token is on its way gives its pages back soon. Nobody gives way meanwhile: neither that one,
// nor one that is younger.
void expect_no_preemption(ScriptedSimulation& w, std::initializer_list<uint32_t> outputs, uint32_t ends_first) {
  w.step_ns = 1'000'000;
  w.attach();
  uint32_t slot = 0;
  for (const uint32_t n : outputs) w.submit(slot++, {5, 6, 7, 8 + n}, n);
  w.expect(w.until([&] { return w.completed(ends_first); }), "a request waits for ever");
  w.pass(2'000'000);
  w.expect(w.c.state->stats.preempted == 0, "S7: a sequence gave way, though pages were about to come back");
}
void pages_of_the_youngest_return(ScriptedSimulation& w) {
  expect_no_preemption(w, {59, 33}, 1);
}
void pages_of_another_return(ScriptedSimulation& w) {
  expect_no_preemption(w, {59, 13, 40}, 1);
}
constexpr Sizes kTightArmed{32, 1, 4, 64, 4, 18, 64, 4, 200'000};
constexpr Sizes kTighterArmed{32, 1, 4, 64, 4, 12, 64, 4, 200'000};

constexpr Script kScripts[] = {
    {"unknown_command", unknown_command, kSmall},
    {"longer_prompt", longer_prompt, kTight},
    {"other_prompt", other_prompt, kTight},
    {"foreign_token", foreign_token, kTight},
    {"foreign_record", foreign_record, kTight},
    {"long_last_step", long_last_step, kArmed},
    {"refused_without_end", refused_without_end, kSmall},
    {"torn_without_end", torn_without_end, kShared},
    {"submitted_behind_a_scan", submitted_behind_a_scan, kLong},
    {"ticket_of_another", ticket_of_another, kLong},
    {"prompts_in_balance", prompts_in_balance, kMixed},
    {"prompts_in_share", prompts_in_share, kShare},
    {"prompts_of_length", prompts_of_length, kLengthy},
    {"prompts_given_up", prompts_given_up, kMixed},
    {"pages_of_the_youngest_return", pages_of_the_youngest_return, kTightArmed},
    {"pages_of_another_return", pages_of_another_return, kTighterArmed},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
