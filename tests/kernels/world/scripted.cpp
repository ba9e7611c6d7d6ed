/* Scripts that break what others rely on, one a name:
 *
 *   scripted NAME      exits 1 and prints what went wrong
 */
#include "scripted.h"

using namespace world;

namespace {

constexpr Sizes kSmall{32, 2, 4, 64, 4, 64, 64, 4, 0};
constexpr Sizes kTight{32, 2, 4, 64, 4, 18, 64, 4, 0};  // pages for one long sequence
constexpr uint32_t kOther = 16;                         // the first slot of the second lease

// A word with a command that there is not changes nothing, for nobody (R3).
void unknown_command(ScriptedWorld& w) {
  w.attach();
  w.submit(0, {5, 6, 7}, 3);  // its row and its pages are what the words below could be taken for
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
  w.expect(w.until([&] { return w.c.state->n_free_pages == w.c.total_pages; }, 1'000'000), "S1: pages are lost");
}

// Two requests outgrow the pages. Lets `meddle` act when the second lease's is paused; that one alone may notice.
void resume(ScriptedWorld& w, const std::function<void()>& meddle) {
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

// A paused request's payload gives way to another that is valid, and longer than its row (S13).
void longer_prompt(ScriptedWorld& w) {
  resume(w, [&] { w.write(kOther, w.descriptor(1, 59), std::vector<uint32_t>(60, 3)); });
}

void other_prompt(ScriptedWorld& w) {
  resume(w, [&] { w.write(kOther, w.descriptor(1, 59), {9, 9, 9, 8}); });
}

// What it has answered is overwritten by what is no token, or with a record of elsewhere.
void foreign_token(ScriptedWorld& w) {
  resume(w, [&] { *w.outputs(kOther) = blink::output_record(kVocab, 0, 1); });
}

void foreign_record(ScriptedWorld& w) {
  resume(w, [&] { *w.outputs(kOther) = blink::output_record(5, 1, 1); });
}

struct Named {
  const char* name;
  void (*script)(ScriptedWorld&);
  Sizes sizes;
};
constexpr Named kScripts[] = {
    {"unknown_command", unknown_command, kSmall}, {"longer_prompt", longer_prompt, kTight},
    {"other_prompt", other_prompt, kTight},       {"foreign_token", foreign_token, kTight},
    {"foreign_record", foreign_record, kTight},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Named& named : kScripts) {
    if (argc != 2 || std::string(argv[1]) != named.name) continue;
    ScriptedWorld w(named.sizes);
    const std::string failure = w.play(named.script);
    if (!failure.empty()) std::printf("%s\n", failure.c_str());
    return failure.empty() ? 0 : 1;
  }
  return 2;
}
