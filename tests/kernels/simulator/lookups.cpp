/* Scripts of look-ups by suffix, in histories of one sequence without a scheduler. One a name:
 *
 *   lookups NAME      exits 1 and prints what went wrong
 */
#include <cstdio>
#include <functional>
#include <string>

#include "looked_up.h"
#include "random.h"

using namespace simulator;

namespace {

constexpr uint32_t kOne = 1 << 16;  // in the units of the configuration's shares
constexpr uint32_t kContext = 1200;

struct Wrong {
  std::string what;
};
void expect(bool holds, const std::string& what) {
  if (!holds) throw Wrong{what};
}

blink_scheduler_config by_suffix(uint32_t longest, uint32_t per_token = kOne, uint32_t share = 0,
                                 uint32_t places = 1 << 16) {
  blink_scheduler_config config{};
  config.max_drafts = BLINK_MAX_DRAFTS;
  config.longest_match = longest;
  config.shortest_match = 1;
  config.drafts_per_matched_token = per_token;
  config.least_share = share;
  config.n_draft_places = places;
  return config;
}

// How many tokens before `at` are those before `end`, up to so many.
uint32_t match_at(const uint32_t* tokens, uint32_t at, uint32_t end, uint32_t longest) {
  uint32_t n = 0;
  while (n < longest && n < at && tokens[at - 1 - n] == tokens[end - 1 - n]) ++n;
  return n;
}
uint32_t longest_of_all(const LookedUp& s, uint32_t longest) {
  uint32_t found = 0;
  for (uint32_t at = 1; at < s.known(); ++at) found = std::max(found, match_at(s.tokens(), at, s.known(), longest));
  return found;
}

// The longest match whose continuation the drafts are and that allows so many; over the last token, which differs, if
// `skipped`. 0: there is none.
uint32_t followed(const LookedUp& s, const blink_scheduler_config& c, uint32_t n, bool skipped) {
  const uint32_t end = s.known();
  uint32_t found = 0;
  for (uint32_t at = 1; at < end; ++at) {
    if (!std::equal(s.tokens() + end, s.tokens() + end + n, s.tokens() + at)) continue;
    const uint32_t match = match_at(s.tokens(), at - skipped, end - skipped, c.longest_match);
    if (uint64_t(n) << 16 <= uint64_t(match) * c.drafts_per_matched_token) found = std::max(found, match);
  }
  return found;
}

// Goes on at random, over so many tokens, and by copies of what stood before.
struct Writer {
  Random& random;
  uint32_t vocabulary, copies;  // of copies, in percent, that go on
  uint32_t from = 0;

  uint32_t next(const LookedUp& s) {
    if (!random.chance(copies) || from == 0) from = s.known() && random.chance(30) ? 1 + random() % s.known() : 0;
    if (from && from < s.known()) return s.tokens()[from++];
    return 1 + random() % vocabulary;
  }
};

// Random histories: the drafts are what followed an earlier place of the last tokens, or of those before the last one,
// and no more than its match allows, even if the index is filled with anything at all.
void follow_a_match(bool garbage) {
  Random random(1);
  uint32_t exact = 0, skipped = 0, shorter = 0;
  for (uint32_t round = 0; round < 60; ++round) {
    const uint32_t vocabularies[] = {1, 2, 5, 50, 1000, 100'000}, factors[] = {kOne / 2, kOne, 3 * kOne, 14 * kOne};
    const uint32_t depths[] = {1, 2, 5, 23, 63};
    const auto config = by_suffix(depths[random() % 5], factors[random() % 4], random() % (kOne + 1),
                                  garbage ? 1 << (3 + random() % 8) : 1 << 16);
    LookedUp s(config, kContext);
    Writer writer{random, vocabularies[round % 6], uint32_t(50 + random() % 50)};
    for (uint32_t i = 0; i < 2; ++i) s.tell(writer.next(s));
    while (s.known() + BLINK_MAX_DRAFTS < kContext) {
      const uint32_t most = random() % (BLINK_MAX_DRAFTS + 1);
      if (garbage && random.chance(20))
        for (uint32_t& place : s.places) place = random.chance(80) ? random() % (s.known() + 20) : uint32_t(random());
      const uint32_t n = s.look_up(most);
      expect(n <= most, "there are more drafts than asked for");
      const uint32_t match = followed(s, config, n, false);
      exact += n && match;
      skipped += n && !match;
      shorter += n && match < longest_of_all(s, config.longest_match);
      expect(n == 0 || match || followed(s, config, n, true),
             "round " + std::to_string(round) + ": drafts at " + std::to_string(s.known()) + " follow nothing");
      uint32_t says[BLINK_MAX_DRAFTS + 1];
      for (uint32_t k = 0; k <= n; ++k) says[k] = s.tokens()[s.known() + k];
      says[n] = writer.next(s);  // drafts are right but for some
      if (n && random.chance(50)) says[random() % n] = writer.next(s);
      s.step(says);
    }
  }
  expect(exact > 2000, "only " + std::to_string(exact) + " drafts followed a match");
  expect(skipped > 20, "only " + std::to_string(skipped) + " drafts followed a match over a changed token");
  if (!garbage) expect(shorter < exact / 10, std::to_string(shorter) + " of " + std::to_string(exact) + " were short");
}
void random_histories() {
  follow_a_match(false);
}
void any_index() {
  follow_a_match(true);
}

// Of six places that match as long, five go on alike, and the last one does not.
void tell_six(LookedUp& s, uint32_t seed) {
  uint32_t other = 1000 + 1000 * seed;  // tokens that never come again
  for (uint32_t next : {7, 7, 7, 7, 7, 8}) {
    for (uint32_t i = 0; i < 1 + seed % 9; ++i) s.tell(++other);
    for (uint32_t token : {1, 2, 3, 4}) s.tell(token);
    for (uint32_t i = 0; i < 4; ++i) s.tell(next + 10 * i);
  }
  s.tell(++other);
  for (uint32_t token : {1, 2, 3, 4}) s.tell(token);
}
// The index may have forgotten some of the six, so what holds for most texts is asked for.
void most_decide() {
  uint32_t majority = 0, none = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    LookedUp any(by_suffix(23), kContext), strict(by_suffix(23, kOne, kOne * 9 / 10), kContext);
    tell_six(any, seed);
    tell_six(strict, seed);
    const uint32_t n = any.look_up(5);
    expect(n == 4, "four tokens match, and there are " + std::to_string(n) + " drafts");
    bool sevens = true;
    for (uint32_t k = 0; k < n; ++k) sevens &= any.tokens()[any.known() + k] == 7 + 10 * k;
    majority += sevens;
    none += strict.look_up(5) == 0;
  }
  expect(majority > 90, "what followed most often was drafted in only " + std::to_string(majority) + " texts");
  expect(none > 90, "fewer agree than asked for, and " + std::to_string(100 - none) + " texts have drafts");
}

// A text is copied, and one word of it changed for one that never was there.
void copied_with_a_change() {
  LookedUp s(by_suffix(23), kContext);
  for (uint32_t token = 1; token <= 100; ++token) s.tell(token);
  for (uint32_t token = 1; token <= 6; ++token) s.tell(token);
  expect(s.look_up(5) == 5 && s.tokens()[s.known()] == 7, "a copy is not found");
  const uint32_t says[] = {999};
  expect(s.step(says) == 0, "a draft that is wrong was taken");
  expect(s.look_up(14) == 6, "six tokens match before the changed one");
  for (uint32_t k = 0; k < 6; ++k) expect(s.tokens()[s.known() + k] == 8 + k, "drafts do not go on behind the change");
  s.step(says);
  expect(s.look_up(14) == 1 && s.tokens()[s.known()] == 999, "a new match is found, behind the word that is repeated");
}

// A text that repeats itself goes on doing so, over its end.
void repeated() {
  LookedUp s(by_suffix(23), kContext);
  for (uint32_t i = 0; i < 20; ++i) s.tell(1 + i % 3);
  expect(s.look_up(14) == 14, "a repetition is not found");
  for (uint32_t k = 0; k < 14; ++k) expect(s.tokens()[s.known() + k] == 1 + (s.known() + k) % 3, "it breaks off");
}

struct Script {
  const char* name;
  std::function<void()> play;
};
const Script kScripts[] = {
    {"random_histories", random_histories},         {"any_index", any_index}, {"most_decide", most_decide},
    {"copied_with_a_change", copied_with_a_change}, {"repeated", repeated},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Script& script : kScripts) {
    if (argc != 2 || std::string(argv[1]) != script.name) continue;
    try {
      script.play();
    } catch (const Wrong& wrong) {
      std::printf("%s\n", wrong.what.c_str());
      return 1;
    }
    return 0;
  }
  return 2;
}
