/* Scripts about the payloads of requests: where they lie in their lease's heaps, and how they are read when they are
 * long. One a name:
 *
 *   payloads NAME [ARGUMENT]      exits 1 and prints what went wrong
 */
#include "scripted.h"

using namespace simulator;

namespace {

constexpr Sizes kSmall{32, 2, 4, 64, 4, 64, 64, 4, 0};
constexpr Sizes kSliced{32, 2, 4, 1024, 16, 256, 64, 4, 0, 0, 16, 1, 0, 100};  // a hundred words of payloads a turn
constexpr Sizes kScarce{32, 2, 4, 1024, 16, 90, 64, 4, 0, 0, 16, 0, 0, 100};
constexpr Sizes kThin{32, 2, 4, 1024, 16, 256, 64, 4, 0, 0, 16, 1, 0, 1};
constexpr uint32_t kOther = 16;  // the first slot of the second lease

// Ranges that reach out of the lease's part of a heap into the next one's, or further, by the script's argument:
// nothing there is read or written, and the request is told (R5). Another's is served.
void out_of_range(ScriptedSimulation& w) {
  w.attach();
  const std::vector<uint32_t> prompt(20, 7);
  blink_descriptor d = w.descriptor(1, 30);
  w.ring.place(0, d);
  switch (w.argument) {
    case 0:
      d.prompt_offset = w.c.prompt_heap - d.prompt_room + 1;
      break;
    case 1:
      d.prompt_offset = ~0u - 20;
      break;  // the sum with the room passes 2^32
    case 2:
      d.prompt_room = ~0u;
      break;
    case 3:
      d.prompt_room = prompt.size() - 1;
      break;
    case 4:
      d.output_offset = w.c.output_heap - d.output_room + 1;
      break;
    case 5:
      d.output_offset = ~0u - 20;
      break;
    case 6:
      d.output_room = ~0u;
      break;
    default:
      d.output_room = 0;
  }
  bool strayed = false;
  w.touched = [&](const void* p) {
    strayed |= p >= w.c.prompts + w.c.prompt_heap && p < w.c.prompts + 2 * w.c.prompt_heap;
    strayed |= p >= w.c.outputs + w.c.output_heap && p < w.c.outputs + 2 * w.c.output_heap;
  };
  d.prompt_tokens = prompt.size();
  if (w.argument >= 4) std::copy(prompt.begin(), prompt.end(), w.ring.prompt(0, d));
  d.crc32c = reference_crc(d, prompt.data());
  w.c.descriptors[0] = d;
  w.request(0, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.completed(0); }, 2 * BLINK_TORN_PAYLOAD_TIMEOUT_NS), "R4: it waits for ever");
  w.touched = [](auto) {};
  w.expect(!strayed, "R5: another's part of a heap was touched");
  w.expect(w.status(0).reason == BLINK_REASON_BAD_RANGE,
           "R7: it ended with reason " + std::to_string(w.status(0).reason));
  w.submit(kOther, {8, 9}, 5);
  w.expect(w.until([&] { return w.completed(kOther); }) && w.status(kOther).reason == BLINK_REASON_LENGTH,
           "R7: others suffer");
}

// An answer ends where its range does, and not one record is written behind it.
void range_ends_answer(ScriptedSimulation& w) {
  w.attach();
  blink_descriptor d = w.descriptor(1, 60);
  w.ring.place(kOther, d);
  d.output_room = 7;
  w.write(kOther, d, {5, 6, 7});
  w.request(kOther, 1, BLINK_COMMAND_SUBMIT);
  w.expect(w.until([&] { return w.completed(kOther); }), "it waits for ever");
  w.expect(w.status(kOther).count == 7 && w.status(kOther).reason == BLINK_REASON_LENGTH, "its range was not its end");
  w.expect(w.outputs(kOther)[6] != 0 && w.outputs(kOther)[7] == 0, "R5: a record lies behind the range");
}

// ------------------------------------------------------------ payloads in slices (S18)

std::vector<uint32_t> long_prompt(uint32_t n = 1000) {
  std::vector<uint32_t> prompt(n);
  for (uint32_t i = 0; i < n; ++i) prompt[i] = 2 + i * 7919 % 900;
  return prompt;
}

bool between_slices(ScriptedSimulation& w) {
  return w.c.state->staging.arrival != 0 && w.c.state->staging.done > 300;
}

// Two sequences decode, and the other lease's first slot has a payload of which some slices have been read.
void begin_slices(ScriptedSimulation& w) {
  w.attach();
  for (uint32_t slot : {0u, 1u}) w.submit(slot, {5, 6, 7}, 900);
  w.until([&] { return w.status(1).count > 0; });
  w.submit(kOther, long_prompt(), 5);
  w.expect(w.until([&] { return between_slices(w); }), "S18: it is not read in slices");
}

void expect_served(ScriptedSimulation& w, uint32_t slot, const std::vector<uint32_t>& prompt) {
  w.expect(w.until([&] { return w.status(slot).state == BLINK_STATE_PREFILL_PROCESSING; }), "it waits for ever");
  const uint32_t* history = w.c.tables.history + uint64_t(w.c.requests[slot].sequence_index) * w.c.tables.max_context;
  w.expect(std::equal(prompt.begin(), prompt.end(), history), "S18: what it is fed is not its prompt");
  w.expect(w.until([&] { return w.completed(slot); }), "it waits for ever");
  w.expect(w.status(slot).reason == BLINK_REASON_LENGTH,
           "it ended with reason " + std::to_string(w.status(slot).reason));
}

// No turn reads more than it may, steps go on, and a younger request is not served before.
void slices(ScriptedSimulation& w) {
  begin_slices(w);
  const uint64_t steps = w.c.state->stats.steps;
  w.submit(2, {8, 9}, 5);
  bool overtaken = false;
  w.meanwhile = [&] {
    overtaken |=
        w.status(2).state >= BLINK_STATE_PREFILL_PROCESSING && w.status(kOther).state == BLINK_STATE_PREFILL_PENDING;
  };
  expect_served(w, kOther, long_prompt());
  w.expect(w.until([&] { return w.completed(2); }), "a request waits for ever");
  w.expect(!overtaken, "S2: it was overtaken");
  w.expect(w.c.state->stats.steps > steps + 2, "S18: the sequences that decode stood still");
  const uint64_t allowed = w.c.stage_words + sizeof(blink_descriptor) / 4 + 8;  // those of the intake and of commits
  w.expect(w.most_loads <= allowed, "S18: a turn read " + std::to_string(w.most_loads) + " words");
  w.expect(w.most_loads >= w.c.stage_words, "S18: slices are smaller than they may be");
}

// The slot's next request is read from its beginning.
void cancelled_between_slices(ScriptedSimulation& w) {
  begin_slices(w);
  w.request(kOther, 1, BLINK_COMMAND_RELEASE);
  w.expect(w.until([&] { return w.status(kOther).state == BLINK_STATE_EMPTY; }, 1'000'000), "a cancel is not seen");
  std::vector<uint32_t> other = long_prompt(900);
  std::reverse(other.begin(), other.end());
  w.write(kOther, w.descriptor(2, 5), other);
  w.request(kOther, 2, BLINK_COMMAND_SUBMIT);
  expect_served(w, kOther, other);
}

// The frontend is gone, and the next one that holds its lease uses slot and range at once.
void lease_lost_between_slices(ScriptedSimulation& w) {
  begin_slices(w);
  w.take_over(1, 2);
  std::vector<uint32_t> other = long_prompt(900);
  std::reverse(other.begin(), other.end());
  blink_descriptor d = w.descriptor(2, 5);
  d.epoch = 2;
  w.write(kOther, d, other);
  w.request(kOther, 2, BLINK_COMMAND_SUBMIT, 2);
  expect_served(w, kOther, other);
  w.expect(!w.completed(0), "R6: another lease suffered");
}

// How far a payload has been read outlives the execution of the kernel (S8).
void relaunch_between_slices(ScriptedSimulation& w) {
  uint32_t between = 0;
  w.between_executions = [&] { between += between_slices(w); };
  begin_slices(w);
  expect_served(w, kOther, long_prompt());
  w.expect(between > 0, "S8: the scheduler was not launched again meanwhile");
}

// What has been read already changes: it is found to be torn, and read again.
void torn_between_slices(ScriptedSimulation& w) {
  begin_slices(w);
  uint32_t* words = w.ring.prompt(kOther, w.c.descriptors[kOther]);
  words[w.c.state->staging.done + 5] ^= 1;
  w.expect(w.until([&] { return w.c.state->stats.torn_payloads > 0; }), "R4: it is not noticed");
  const std::vector<uint32_t> prompt = long_prompt();
  std::copy(prompt.begin(), prompt.end(), words);
  expect_served(w, kOther, prompt);
}

// A paused request's answer is read in slices, too, and goes on where it was.
void paused_between_slices(ScriptedSimulation& w) {
  w.attach();
  w.submit(0, long_prompt(500), 500);
  w.until([&] { return w.status(0).count > 0; });
  w.submit(kOther, long_prompt(500), 500);
  w.expect(w.until([&] { return w.status(kOther).state == BLINK_STATE_DECODE_PAUSED; }), "nobody was paused");
  bool read_in_slices = false;
  w.meanwhile = [&] { read_in_slices |= w.c.state->staging.done > 600; };
  w.expect(w.until([&] { return w.completed(0) && w.completed(kOther); }), "a request waits for ever");
  w.expect(read_in_slices, "S18: its answer was not read in slices");
  for (uint32_t slot : {0u, kOther}) w.expect(w.status(slot).count == 500, "S7: tokens are lost");
}

// ------------------------------------------------------------ payloads of an earlier epoch of the lease (R4)

constexpr uint32_t kEarlier = ScriptedSimulation::kEpoch;

// The lease has another frontend, which has submitted `prompt`; but in the slot lies a whole payload that its
// predecessor wrote for a request of the same sequence.
blink_descriptor submit_behind_earlier(ScriptedSimulation& w, const std::vector<uint32_t>& prompt, uint32_t epoch) {
  w.attach();
  w.take_over(1, epoch);
  blink_descriptor d = w.descriptor(1, 5);
  d.client = 7;
  d.ticket = 9;
  w.write(kOther, d, prompt);
  w.request(kOther, 1, BLINK_COMMAND_SUBMIT, epoch);
  d.epoch = epoch;
  d.client = 8;
  d.ticket = 1;
  return d;
}

// It is not served, whatever its request word could say of the epoch, and the right one is as soon as it is there.
void earlier_epoch(ScriptedSimulation& w) {
  const std::vector<uint32_t> earlier = long_prompt(w.argument ? 1000 : 40);
  const std::vector<uint32_t> prompt(earlier.rbegin(), earlier.rend());
  const blink_descriptor d = submit_behind_earlier(w, earlier, kEarlier + BLINK_EPOCH_MASK + 1);
  for (uint32_t slot : {0u, 1u}) w.submit(slot, {5, 6, 7}, 900);
  bool served = false;
  w.meanwhile = [&] { served |= w.status(kOther).state >= BLINK_STATE_PREFILL_PROCESSING; };
  w.pass(BLINK_TORN_PAYLOAD_TIMEOUT_NS / 2);
  w.meanwhile = [] {};
  w.expect(!served, "R4: a payload of an earlier epoch was served");
  if (served) return;
  w.expect(w.status(kOther).state == BLINK_STATE_PREFILL_PENDING, "its request was not seen");
  w.expect(!w.c.requests[kOther].placed, "R4: the place of an earlier epoch's request was taken for its own");
  w.expect(w.c.state->stats.torn_payloads > 1, "R4: it was not read again");
  w.write(kOther, d, prompt);
  expect_served(w, kOther, prompt);
  w.expect(w.c.requests[kOther].client == d.client, "S2: it had the turn of an earlier epoch's client");
}

// The right one never comes: the request ends, and the slot is of use again.
void earlier_epoch_only(ScriptedSimulation& w) {
  submit_behind_earlier(w, long_prompt(40), kEarlier + 1);
  w.expect(w.until([&] { return w.completed(kOther); }, 2 * BLINK_TORN_PAYLOAD_TIMEOUT_NS), "R4: it waits for ever");
  w.expect(w.status(kOther).reason == BLINK_REASON_BAD_CHECKSUM,
           "R7: it ended with reason " + std::to_string(w.status(kOther).reason));
  w.request(kOther, 1, BLINK_COMMAND_RELEASE, kEarlier + 1);
  w.expect(w.until([&] { return w.status(kOther).state == BLINK_STATE_EMPTY; }), "a slot is not given back");
  blink_descriptor d = w.descriptor(2, 5);
  d.epoch = kEarlier + 1;
  w.write(kOther, d, {8, 9});
  w.request(kOther, 2, BLINK_COMMAND_SUBMIT, d.epoch);
  expect_served(w, kOther, {8, 9});
}

constexpr Script kScripts[] = {
    {"out_of_range", out_of_range, kSmall},
    {"range_ends_answer", range_ends_answer, kSmall},
    {"slices", slices, kSliced},
    {"cancelled_between_slices", cancelled_between_slices, kSliced},
    {"lease_lost_between_slices", lease_lost_between_slices, kSliced},
    {"relaunch_between_slices", relaunch_between_slices, kThin},
    {"torn_between_slices", torn_between_slices, kSliced},
    {"paused_between_slices", paused_between_slices, kScarce},
    {"earlier_epoch", earlier_epoch, kSliced},
    {"earlier_epoch_only", earlier_epoch_only, kSliced},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
