/* Plays texts as if a model said exactly them, and looks drafts up on the way, with the scheduler's own source.
 *
 *   lookups DRAFTS LONGEST SHORTEST DRAFTS_PER_MATCHED_TOKEN LEAST_SHARE PLACES < TEXTS
 *
 * Numbers are as in blink_scheduler_config. A text is words of 32 bits: how many tokens are its prompt's, how many are
 * said, and these tokens. Prints, for each text, a line: tokens, steps, drafts, and drafts that were right.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/kernels/simulator/looked_up.h"

namespace {

bool read(std::vector<uint32_t>& words) {
  return fread(words.data(), sizeof(uint32_t), words.size(), stdin) == words.size();
}

void play(const blink_scheduler_config& config, const std::vector<uint32_t>& text, uint32_t n_prompt) {
  simulator::LookedUp sequence(config, text.size());
  for (uint32_t i = 0; i < n_prompt; ++i) sequence.tell(text[i]);
  unsigned long long steps = 0, drafts = 0, right = 0;
  while (sequence.known() < text.size()) {
    // A step finds one token more than its drafts.
    drafts += sequence.look_up(std::min<uint32_t>(config.max_drafts, text.size() - sequence.known() - 1));
    right += sequence.step(text.data() + sequence.known());
    ++steps;
  }
  printf("%zu %llu %llu %llu\n", text.size() - n_prompt, steps, drafts, right);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  blink_scheduler_config config{};
  uint32_t* const numbers[] = {&config.max_drafts,     &config.longest_match,
                               &config.shortest_match, &config.drafts_per_matched_token,
                               &config.least_share,    &config.n_draft_places};
  for (int i = 1; i < argc; ++i) *numbers[i - 1] = strtoul(argv[i], nullptr, 10);
  for (std::vector<uint32_t> sizes(2); read(sizes);) {
    std::vector<uint32_t> text(sizes[0] + sizes[1]);
    if (!read(text)) return 2;
    play(config, text, sizes[0]);
  }
  return 0;
}
