/* Scripts of drafts (S23): they make answers come in fewer steps and change nothing else. One a name:
 *
 *   drafts NAME      exits 1 and prints what went wrong
 *
 * A request repeats itself, so that its drafts are often right, if its slot is a multiple of three: the slot is its
 * seed (synthetic_answer.h).
 */
#include "kernels/scheduler/pages.h"
#include "texts.h"

using namespace simulator;

namespace {

constexpr Sizes speculating(Sizes sizes, uint32_t max_drafts, uint32_t verify_rows) {
  sizes.max_drafts = max_drafts;
  sizes.verify_rows = verify_rows;
  return sizes;
}
constexpr Sizes by_suffix(Sizes sizes) {
  sizes.suffix = 1;
  return sizes;
}
constexpr uint64_t kArmMargin = 5000;
constexpr uint32_t kTightPages = 200;
constexpr Sizes kPlain{96, 1, 8, 1024, 1, 4096, 512, 8, kArmMargin};
constexpr Sizes kRoomy = speculating(kPlain, BLINK_MAX_DRAFTS, 64);
constexpr Sizes kFew = speculating(kPlain, BLINK_MAX_DRAFTS, 5);
constexpr Sizes kPairs = speculating({96, 1, 8, 1024, 2, 2048, 512, 8, kArmMargin}, BLINK_MAX_DRAFTS, 64);
constexpr Sizes kWide = speculating({96, 1, 8, 1024, kPage, 512, 512, 8, kArmMargin}, BLINK_MAX_DRAFTS, 64);
constexpr Sizes kTight = speculating({96, 1, 2, 256, 1, kTightPages, 512, 2, kArmMargin}, BLINK_MAX_DRAFTS, 64);

// What the request in this slot answers, if nothing ends it.
Tokens answer_to(uint32_t slot, const Tokens& prompt, uint32_t n) {
  Tokens tokens;
  for (uint32_t i = 0; i < n; ++i) tokens.push_back(answer(slot, i, i ? tokens.back() : prompt.back()));
  return tokens;
}
Tokens published(ScriptedSimulation& w, uint32_t slot) {
  Tokens tokens;
  for (uint32_t i = 0; i < w.status(slot).count; ++i) tokens.push_back(blink::low(w.outputs(slot)[i]));
  return tokens;
}
// The slot's answer so far is right, and nothing stands behind it.
void expect_answer(ScriptedSimulation& w, uint32_t slot, const Tokens& prompt) {
  const uint32_t n = w.status(slot).count;
  w.expect(published(w, slot) == answer_to(slot, prompt, n), "S23: request " + std::to_string(slot) + " answers wrong");
  w.expect(w.outputs(slot)[n] == 0, "S23: request " + std::to_string(slot) + " has a token behind its end");
}
bool verifies(ScriptedSimulation& w, const ScriptedSimulation::Run& run) {
  return w.c.shapes[w.c.sets[run.set].head->shape].verifies;
}
// Each step is seen once, when it has just been launched.
void watch_steps(ScriptedSimulation& w, std::function<void(ScriptedSimulation::Run&)> seen) {
  w.meanwhile = [&w, seen, last = uint64_t(0)]() mutable {
    for (ScriptedSimulation::Run& run : w.runs) {
      const uint64_t id = w.c.sets[run.set].head->id;
      if (id <= last) continue;
      last = id;
      seen(run);
    }
  };
}

// One request alone: each step finds its token and those behind the drafts that are right, of which there are most.
void right(ScriptedSimulation& w) {
  w.attach();
  const Tokens prompt = text(1, 50);
  w.submit(0, prompt, 400);
  finish(w, 0, 0);
  expect_answer(w, 0, prompt);
  const blink_stats& stats = w.c.state->stats;
  w.expect(1 + stats.decode_steps + stats.accepted_tokens == 400, "S23: tokens do not add up");
  w.expect(stats.decode_steps < 200, "S23: it took " + std::to_string(stats.decode_steps) + " steps");
}

// Requests that end with a token that their drafts have, too, and right ones behind it, which are not published.
void ends_within(ScriptedSimulation& w, const std::function<void(blink_descriptor&, uint32_t)>& end, uint32_t reason) {
  w.attach();
  uint32_t dropped = 0;
  for (uint32_t slot = 0; slot < 96; slot += 3) {
    const Tokens prompt = text(slot, 20), all = answer_to(slot, prompt, 200);
    blink_descriptor d = w.descriptor(1, 200);
    d.ticket = slot + 1;
    d.min_tokens = 40 + slot % 7;
    const uint32_t token = all[d.min_tokens + 5];
    const uint32_t last = std::find(all.begin() + d.min_tokens - 1, all.end(), token) - all.begin();
    end(d, token);
    uint64_t rows = 0;   // of the last step
    uint32_t known = 0;  // of the answer, when it began
    watch_steps(w, [&](ScriptedSimulation::Run& run) {
      rows = w.c.sets[run.set].head->n_decode;
      known = w.status(slot).count;
    });
    w.write(slot, d, prompt);
    w.request(slot, 1, BLINK_COMMAND_SUBMIT);
    w.expect(w.until([&] { return w.completed(slot); }), "a request waits for ever");
    w.expect(w.status(slot).reason == reason && w.status(slot).count == last + 1, "it ends elsewhere");
    expect_answer(w, slot, prompt);
    w.until([&] { return w.runs.empty(); });
    const uint32_t* drafts = w.c.tables.history + uint64_t(w.c.sets[0].batch_sequence[0]) * w.c.tables.max_context;
    dropped += known + rows > last + 1 && drafts[prompt.size() + last + 1] == all[last + 1];
  }
  w.expect(dropped > 3, std::to_string(dropped) + " right drafts stood behind an end");
}
void stop_id_within(ScriptedSimulation& w) {
  ends_within(w, [](blink_descriptor& d, uint32_t token) { d.stop_ids[d.n_stop_ids++] = token; }, BLINK_REASON_STOP_ID);
}
void end_within(ScriptedSimulation& w) {
  ends_within(
      w,
      [&w](blink_descriptor& d, uint32_t token) {
        d.flags &= ~BLINK_FLAG_IGNORE_EOS;
        w.c.tables.eos[0] = token;
      },
      BLINK_REASON_EOS);
}

// Two sequences that by and by come to need more pages than there are: one leaves only when there is none for a token
// that is known, however many its drafts could have.
void short_of_pages(ScriptedSimulation& w) {
  w.attach();
  const blink_stats& stats = w.c.state->stats;
  uint64_t left = 0;
  uint32_t there = 0;  // pages, before
  w.meanwhile = [&] {
    w.expect(stats.preempted == left || there < 2, "S23: one left when there were " + std::to_string(there) + " pages");
    left = stats.preempted;
    there = blink::PageCounts(w.c).available();
  };
  uint32_t without = 0, with = 0;  // pairs of which one left
  for (uint32_t slot = 0; slot < 96; slot += 3) {
    const Tokens first = text(slot, 20), second = text(slot + 1, 4 + slot);
    const uint64_t before = stats.preempted;
    w.submit(slot, first, 100);
    w.submit(slot + 1, second, 60);
    finish(w, slot, slot + 1);
    expect_answer(w, slot, first);
    expect_answer(w, slot + 1, second);
    (stats.preempted == before ? without : with) += 1;
  }
  w.expect(without > 5 && with > 5, "one left of " + std::to_string(with) + " pairs");
  w.expect(stats.accepted_tokens > 500, "hardly any draft was right");
}

// The next turn of a conversation finds the turn before with its answer: all pages that the steps have filled, of which
// one with drafts may fill several.
void conversation(ScriptedSimulation& w) {
  w.attach();
  Tokens history = text(1, 31);
  uint32_t found = 0;
  for (uint32_t slot = 0; slot < 30; slot += 3) {
    w.submit(slot, history, 50);
    finish(w, slot, slot);
    const uint32_t cached = blink::high(w.c.progress[slot].prefix);
    w.expect(cached == found, "S16: request " + std::to_string(slot) + " found " + std::to_string(cached) +
                                  " tokens, not " + std::to_string(found));
    expect_answer(w, slot, history);
    found = (history.size() + 49) / w.c.tables.page_size * w.c.tables.page_size;
    for (uint32_t token : published(w, slot)) history.push_back(token);
    for (uint32_t token : text(10 + slot, 7)) history.push_back(token);
  }
  const blink_stats& stats = w.c.state->stats;
  w.expect(stats.prefix_insertions == found / w.c.tables.page_size, "S16: pages were linked twice or not at all");
  w.expect(stats.accepted_tokens > 100, "hardly any draft was right");
}

// Cancelled while a step checks its drafts: what that step finds is dropped, and the pages come back behind it.
void cancel(ScriptedSimulation& w) {
  w.step_ns = 1'000'000;
  w.attach();
  const Tokens prompt = text(1, 50);
  for (uint32_t slot = 0; slot < 12; slot += 3) {
    w.submit(slot, prompt, 900);
    w.until([&] { return w.status(slot).count > 20; });
    w.expect(w.until([&] { return !w.runs.empty() && verifies(w, w.runs[0]) && w.runs[0].done > w.clock + 500'000; }),
             "there are no drafts");
    const uint32_t rows = w.c.sets[w.runs[0].set].head->n_decode, known = w.status(slot).count;
    const uint64_t dropped = w.c.state->stats.zombie_rows;
    w.expect(rows > 1, "there are no drafts");
    w.request(slot, 1, BLINK_COMMAND_CANCEL);
    w.expect(w.until([&] { return w.completed(slot); }, 400'000), "a cancel is not seen");
    w.expect(w.status(slot).reason == BLINK_REASON_CANCELLED, "it was not cancelled");
    w.expect(w.runs.size() == 1, "S5: the step was over");
    w.expect(blink::PageCounts(w.c).available() < w.c.total_pages, "S5: pages came back while a step used them");
    w.pass(3'000'000);
    w.expect(w.c.state->stats.zombie_rows == dropped + rows, "S6: not all rows were dropped");
    w.expect(blink::PageCounts(w.c).available() == w.c.total_pages, "S5: pages do not come back");
    w.expect(w.status(slot).count == known, "S23: a token was published behind the end");
    expect_answer(w, slot, prompt);
  }
}

// Sequences that want many more rows than a step with drafts has, as their numbers become smaller.
void few_rows(ScriptedSimulation& w) {
  w.attach();
  uint32_t most = 0, several = 0;
  watch_steps(w, [&](ScriptedSimulation::Run& run) {
    const blink_step_set& set = w.c.sets[run.set];
    if (!verifies(w, run)) return;
    const uint32_t n = std::set<uint32_t>(set.batch_sequence, set.batch_sequence + set.head->n_decode).size();
    most = std::max(most, set.head->n_decode);
    several += n > 1 && set.head->n_decode > n;
  });
  std::vector<Tokens> prompts;
  for (uint32_t slot = 0; slot < 12; ++slot) prompts.push_back(text(slot, 20));
  for (uint32_t slot = 0; slot < 12; ++slot) w.submit(slot, prompts[slot], 60 + 20 * slot);
  finish(w, 0, 11);
  for (uint32_t slot = 0; slot < 12; ++slot) expect_answer(w, slot, prompts[slot]);
  w.expect(most > w.c.max_batch && most <= w.c.max_verify_rows, "S23: a step has " + std::to_string(most) + " rows");
  w.expect(several > 20, "S23: only " + std::to_string(several) + " steps of several sequences had drafts");
}

// Steps with drafts that may have fewer rows than there are sequences: where many decode, none has drafts.
void fewer_rows_than_sequences(ScriptedSimulation& w) {
  w.c.max_verify_rows = 5;
  w.attach();
  uint32_t drafted = 0, most = 0;
  watch_steps(w, [&](ScriptedSimulation::Run& run) {
    const blink_step_head& head = *w.c.sets[run.set].head;
    most = std::max(most, head.n_decode);
    if (!head.has_drafts) return;
    ++drafted;
    w.expect(head.n_decode <= 5, "S23: a step with drafts has " + std::to_string(head.n_decode) + " rows");
  });
  std::vector<Tokens> prompts;
  for (uint32_t slot = 0; slot < 8; ++slot) prompts.push_back(text(slot, 20));
  for (uint32_t slot = 0; slot < 8; ++slot) w.submit(slot, prompts[slot], 60 + 20 * slot);
  finish(w, 0, 7);
  for (uint32_t slot = 0; slot < 8; ++slot) expect_answer(w, slot, prompts[slot]);
  w.expect(most == w.c.max_batch, "they did not decode together");
  w.expect(drafted > 5, "S23: only " + std::to_string(drafted) + " steps had drafts");
}

// How many of the steps were launched while another ran, of one request.
uint64_t armed_of(ScriptedSimulation& w, const Tokens& prompt, uint32_t n) {
  w.attach();
  uint64_t armed = 0;
  watch_steps(w, [&](ScriptedSimulation::Run& run) {
    armed += w.runs.size() > 1;
    if (verifies(w, run)) run.done += 2 * w.step_ns;
  });
  w.submit(1, prompt, n);
  finish(w, 1, 1);
  expect_answer(w, 1, prompt);
  return armed;
}
// Where no look-up finds anything, a step waits for one now and then, and the others are planned early.
void nothing_found(ScriptedSimulation& w) {
  w.c.shortest_match = 3;
  const uint64_t armed = armed_of(w, text(1, 20), 400);
  w.expect(w.c.state->stats.drafts == 0, "something was found");
  w.expect(armed > 330, "S23: only " + std::to_string(armed) + " of 400 steps were launched early");
}
// Nor do steps wait where all that look-ups find is wrong, and checking it takes long.
void nothing_right(ScriptedSimulation& w) {
  std::vector<uint32_t> places(4096 * w.c.tables.n_sequences);  // for all of the prompt's tokens
  w.c.n_draft_places = 4096;
  w.c.draft_places = places.data();
  const uint64_t armed = armed_of(w, text(1, 400), 400);
  const blink_stats& stats = w.c.state->stats;
  w.expect(stats.drafts > 2, "nothing was found");
  w.expect(armed > 300, "S23: only " + std::to_string(armed) + " of 400 steps were launched early, " +
                            std::to_string(stats.drafts) + " had drafts");
}

// A frontend is shown a step's tokens behind the launch of the next one, but for the last step's, and where the next
// one waits for a relaunch.
void shown_late(ScriptedSimulation& w) {
  w.attach();
  const Tokens prompt = text(1, 50);
  uint32_t behind = 0, before = 0;
  w.touched = [&](const void* p) {
    const bool goes_on = w.c.requests[0].state == BLINK_STATE_DECODE_PROCESSING && w.status(0).count;
    if (p == &w.c.progress[0].status && goes_on) (w.runs.empty() ? before : behind) += 1;
  };
  w.submit(0, prompt, 400);
  finish(w, 0, 0);
  expect_answer(w, 0, prompt);
  const blink_stats& stats = w.c.state->stats;
  w.expect(behind + before + 1 == stats.decode_steps && before <= stats.relaunches,
           "S24: of " + std::to_string(stats.decode_steps) + " steps " + std::to_string(before) +
               " were shown before the next launch, and " + std::to_string(behind) + " behind it");
}

// The place of a request that has ended is in the very next step another's, as long as others wait.
void places_come_back(ScriptedSimulation& w) {
  w.attach();
  uint32_t full = 0, empty = 0;
  watch_steps(w, [&](ScriptedSimulation::Run& run) {
    const blink_step_set& set = w.c.sets[run.set];
    const std::set<uint32_t> in(set.batch_sequence, set.batch_sequence + set.head->batch_size);
    if (w.c.state->n_waiting) (in.size() == w.c.max_batch ? full : empty) += 1;
  });
  std::vector<Tokens> prompts;
  for (uint32_t slot = 0; slot < 48; ++slot) prompts.push_back(text(slot, 20));
  for (uint32_t slot = 0; slot < 48; ++slot) w.submit(slot, prompts[slot], 20 + 7 * (slot % 5));
  finish(w, 0, 47);
  for (uint32_t slot = 0; slot < 48; ++slot) expect_answer(w, slot, prompts[slot]);
  w.expect(full > 40 && empty <= 1, "S24: " + std::to_string(empty) + " steps had places left while requests waited");
}

// Requests that come shortly before a step ends, and with it the only request that was answered: the ring is scanned
// again, so the next step has all of their prompts.
void burst_behind_the_end(ScriptedSimulation& w) {
  w.step_ns = 4'000'000;
  w.attach();
  uint32_t ends = 0;
  for (uint32_t slot = 0; slot < 96; slot += 6) {
    const blink_request& r = w.c.requests[slot];
    const auto may_be_last = [&] {
      if (w.runs.size() != 1 || w.runs[0].done > w.clock + 150'000) return false;
      const blink_step_head& head = *w.c.sets[w.runs[0].set].head;
      return head.has_drafts && r.max_outputs - r.generated <= head.n_decode;
    };
    w.submit(slot, text(slot, 50), 100 + slot);
    w.until([&] { return may_be_last() || w.completed(slot); });
    if (w.completed(slot)) continue;
    const uint64_t id = w.c.sets[w.runs[0].set].head->id, end = w.runs[0].done;
    w.submit(slot + 1, text(slot + 1, 40), 3);
    w.until([&] { return w.clock + 40'000 >= end; });
    w.submit(slot + 2, text(slot + 2, 40), 3);
    w.submit(slot + 4, text(slot + 4, 40), 3);
    w.until([&] { return !w.runs.empty() && w.c.sets[w.runs[0].set].head->id > id; });
    if (w.completed(slot)) {
      ++ends;
      const uint32_t prompts = w.c.sets[w.runs[0].set].head->batch_size;
      w.expect(prompts == 3, "S14: the step behind the end has " + std::to_string(prompts) + " of 3 prompts");
    }
    finish(w, slot, slot + 2);
    finish(w, slot + 4, slot + 4);
  }
  w.expect(ends > 0, "no request ended so");
}

constexpr Script kScripts[] = {
    {"right", right, kRoomy},
    {"right_by_suffix", right, by_suffix(kRoomy)},
    {"stop_id_within", stop_id_within, kRoomy},
    {"end_within", end_within, kRoomy},
    {"short_of_pages", short_of_pages, kTight},
    {"conversation_of_tokens", conversation, kRoomy},
    {"conversation_of_pairs", conversation, kPairs},
    {"conversation_of_pages", conversation, kWide},
    {"conversation_by_suffix", conversation, by_suffix(kWide)},
    {"cancel", cancel, kRoomy},
    {"few_rows", few_rows, kFew},
    {"fewer_rows_than_sequences", fewer_rows_than_sequences, kFew},
    {"nothing_found", nothing_found, kRoomy},
    {"nothing_right", nothing_right, kRoomy},
    {"shown_late", shown_late, kRoomy},
    {"places_come_back", places_come_back, kRoomy},
    {"burst_behind_the_end", burst_behind_the_end, kRoomy},
};

}  // namespace

int main(int argc, char** argv) {
  return play_one(kScripts, argc, argv);
}
