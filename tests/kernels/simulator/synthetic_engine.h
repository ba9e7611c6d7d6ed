/* An engine without arithmetic that notices every scheduling mistake.
 *
 * Feeding a token writes a tag of its position, of the salt and of all tokens up to it to its place in the paged KV
 * cache; sampling checks the tags of all positions of the sequence through the block table. A page owned twice, freed
 * early or never filled, shared by sequences that begin differently, a token fed at the wrong position and a lost
 * prefill all show as a wrong tag, and so does a page that was copied wrongly or too late. The sampled token depends on
 * the request, the position, the token before and, where there is one, on the grammar and all tokens of the answer.
 */
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "grammars.h"
#include "kernels/scheduler/state.h"
#include "ringbuffer/extents.h"

namespace simulator {

// Word `i` of what a request with this seed is told of the token at `position`, and of its controls.
inline uint64_t told(uint64_t seed, uint32_t position, uint32_t i) {
  return mix(seed ^ mix(uint64_t(position) << 32 | i));
}
inline uint32_t control(uint64_t seed, uint32_t i) {
  return uint32_t(mix(~seed + i));
}
constexpr uint32_t kControlWords = (kVocab + 31) / 32 + 2 * BLINK_MAX_BIASES + BLINK_MAX_BAN_WORDS +
                                   BLINK_MAX_ASKED_PROCESSORS * BLINK_PROCESSOR_WORDS;

class SyntheticEngine {
 public:
  SyntheticEngine(const blink_tables& tables, const blink_step_set* sets, uint32_t total_pages, uint32_t host_pages = 0)
      : t(tables),
        sets(sets),
        kv(uint64_t(total_pages) * tables.page_size),
        host(uint64_t(host_pages) * tables.page_size) {}

  // Runs the step in `set` and publishes its completion. `now_ns` stamps it.
  void run(uint32_t set_index, uint64_t start_ns, uint64_t done_ns) {
    const blink_step_set& set = sets[set_index];
    blink_step_head& head = *set.head;
    if (head.id != __atomic_load_n(t.completed, __ATOMIC_ACQUIRE) + 1) fail("steps ran out of order");
    tags_.clear();
    const bool copies = head.kind == BLINK_STEP_COPY;
    if (copies) copy(set);
    for (uint32_t i = 0; i < head.n_tokens && !copies; ++i) {
      const uint32_t sequence = set.token_sequence[i], position = set.token_position[i];
      if (exists(sequence, position)) cell(sequence, position) = tag(sequence, position);
      ++fed;
    }
    for (uint32_t batch_slot = 0; batch_slot < head.n_decode; ++batch_slot) {
      if (set.batch_last[batch_slot] != batch_slot || !set.batch_emit[batch_slot])
        fail("the sequences that decode do not come first");
      check_drafts(set, batch_slot);
    }
    for (uint32_t batch_slot = 0; batch_slot < head.batch_size; ++batch_slot) sample(set, batch_slot);
    head.start_ns = start_ns;
    head.done_ns = done_ns;
    __atomic_store_n(t.completed, head.id, __ATOMIC_RELEASE);
  }

  std::string error;
  bool distrusts = false;  // a lease belongs to somebody who gives any controls
  uint64_t fed = 0;        // tokens

 private:
  // Last copy first: no order is promised.
  void copy(const blink_step_set& set) {
    const uint32_t n = set.head->n_tokens, n_pages = (kv.size() + host.size()) / t.page_size;
    std::set<uint32_t> pages;
    for (uint32_t i = n; i-- > 0;) {
      const uint32_t from = set.token_sequence[i], to = set.token_position[i];
      if (from >= n_pages || to >= n_pages) return fail("there is no such page");
      if (in_host(from) == in_host(to)) fail("a copy stays on its side");
      if (!pages.insert(from).second || !pages.insert(to).second) fail("E25: a page is in two copies of a step");
      std::copy_n(first_cell(from), t.page_size, first_cell(to));
    }
  }
  bool in_host(uint32_t page) const { return uint64_t(page) * t.page_size >= kv.size(); }
  uint64_t* first_cell(uint32_t page) {
    const uint64_t at = uint64_t(page) * t.page_size;
    return in_host(page) ? &host[at - kv.size()] : &kv[at];
  }

  bool exists(uint32_t sequence, uint32_t position) {
    if (sequence < t.n_sequences && position < t.max_context) return true;
    return fail("sequence or position out of range"), false;
  }

  // Of a sequence and a position that exist, like `cell`.
  uint64_t tag(uint32_t sequence, uint32_t position) {
    std::vector<uint64_t>& tags = tags_[sequence];
    const uint64_t* salt = t.params[sequence].salt;
    uint64_t last = tags.empty() ? mix(salt[0] ^ mix(salt[1])) : tags.back();
    while (tags.size() <= position) {
      const uint32_t token = t.history[uint64_t(sequence) * t.max_context + tags.size()];
      tags.push_back(last = mix(last ^ mix(token + 77)));
    }
    return tags[position];
  }

  uint64_t& cell(uint32_t sequence, uint32_t position) {
    static uint64_t nowhere;
    const uint64_t page = t.block_table[uint64_t(sequence) * t.pages_per_sequence + position / t.page_size];
    if (page * t.page_size >= kv.size()) return fail("page out of range"), nowhere;
    return kv[page * t.page_size + position % t.page_size];
  }

  void sample(const blink_step_set& set, uint32_t batch_slot) {
    const uint32_t sequence = set.batch_sequence[batch_slot], position = set.token_position[set.batch_last[batch_slot]];
    if (!exists(sequence, position)) return;
    if (set.token_sequence[set.batch_last[batch_slot]] != sequence ||
        set.token_sequence[set.batch_first[batch_slot]] != sequence)
      fail("batch slot and tokens disagree");
    for (uint32_t q = 0; q <= position; ++q) {
      if (cell(sequence, q) != tag(sequence, q))
        return fail("the KV cache of sequence " + std::to_string(sequence) + " is wrong at position " +
                    std::to_string(q));
    }
    const blink_descriptor& d = t.params[sequence];
    check_slot(set, batch_slot, sequence, position);
    if (set.batch_emit[batch_slot] == BLINK_EMIT_NOTHING) return;
    const bool is_prompt = set.batch_emit[batch_slot] == BLINK_EMIT_LOGPROBS;
    for (uint32_t i = 0; i < (is_prompt ? d.prompt_logprob_words : d.logprob_words); ++i)
      set.out_logprobs[uint64_t(batch_slot) * BLINK_LOGPROB_WORDS + i] = told(d.seed, position + 1, i);
    if (is_prompt) return;
    uint32_t* history = t.history + uint64_t(sequence) * t.max_context;
    const blink::Sequence of = blink::sequence_of(set, t, batch_slot);
    const uint32_t token = d.grammar_words ? constrained(of, batch_slot >= set.head->n_decode)
                                           : answer(d.seed, of.answered(), history[position]);
    blink::put_token(set, t, of, batch_slot, token);
  }

  uint32_t constrained(const blink::Sequence& of, bool begins) {
    const auto good = book().by_crc.find(of.params.grammar_crc32c);
    const uint32_t* words = t.grammars + t.grammar_at[of.index];
    if (good == book().by_crc.end() || !std::equal(good->second.begin(), good->second.end(), words))
      return fail("S21: it does not find the grammar of a sequence"), kEos;
    blink_grammar_state& now = blink::state_at(t, of, of.answered());
    blink::find_state(t, of, begins, now);
    const uint32_t previous = of.tokens[of.length - 1];
    return answer_in(blink::Grammar(words), now, of.params.seed, of.answered(), previous);
  }

  // E27: a sequence's rows are consecutive, and so are their positions; all but the last are checked.
  void check_drafts(const blink_step_set& set, uint32_t batch_slot) {
    const uint32_t first = set.batch_first[batch_slot];
    if (first != batch_slot && (first > batch_slot || set.batch_first[batch_slot - 1] != first ||
                                set.batch_sequence[batch_slot - 1] != set.batch_sequence[batch_slot] ||
                                set.token_position[batch_slot - 1] + 1 != set.token_position[batch_slot]))
      fail("E27: the rows of a sequence are not in order");
    const bool ends = batch_slot + 1 == set.head->n_decode || set.batch_first[batch_slot + 1] == batch_slot + 1;
    if (set.batch_emit[batch_slot] != (ends ? BLINK_EMIT_TOKEN : BLINK_EMIT_CHECKED))
      fail("E27: a row is checked if another follows");
  }

  // Whether a batch slot is what the scheduler says that it is for, and its request's controls are there.
  void check_slot(const blink_step_set& set, uint32_t batch_slot, uint32_t sequence, uint32_t position) {
    const blink_descriptor& d = t.params[sequence];
    const uint32_t emit = set.batch_emit[batch_slot];
    if (emit == BLINK_EMIT_LOGPROBS && (position + 1 >= d.prompt_tokens || d.prompt_logprob_words == 0))
      fail("S22: nobody asked how likely a token is");
    if (set.batch_first[batch_slot] > set.batch_last[batch_slot] &&
        (set.batch_first[batch_slot] != set.batch_last[batch_slot] + 1 || emit != BLINK_EMIT_LOGPROBS))
      fail("a batch slot has no tokens");
    for (uint32_t i = 0; !distrusts && i < blink::control_words(d, kVocab); ++i)
      if (t.controls[uint64_t(sequence) * t.control_words + i] != control(d.seed, i))
        return fail("the controls of a sequence are wrong");
  }

  void fail(const std::string& what) {
    if (error.empty()) error = "engine: " + what;
  }

  const blink_tables& t;
  const blink_step_set* sets;
  std::vector<uint64_t> kv, host;
  std::map<uint32_t, std::vector<uint64_t>> tags_;  // of the step that runs
};

}  // namespace simulator
