#include "nic_frontend/native/grammar/plain.h"

#include <algorithm>

#include "nic_frontend/native/grammar/utf8.h"
#include "ringbuffer/grammar.h"

namespace blink::grammar {

namespace {

// A walk within one character.
struct Place {
  uint32_t state, back;  // `back` was pushed, or 0
  bool operator==(const Place& other) const { return state == other.state && back == other.back; }
};

// One sequence of bytes from a state. False if some of its characters die, or push more than one state.
bool follow(const Automaton& automaton, uint32_t from, const ByteSequence& sequence, PlainStep& step) {
  std::vector<Place> places{{from, 0}};
  for (const ByteRange& range : sequence) {
    std::vector<Place> next;
    for (const Place& place : places)
      for (uint32_t byte = range.first; byte <= range.last; ++byte) {
        const uint32_t column = automaton.column_of_byte[byte];
        if (byte > range.first && column == automaton.column_of_byte[byte - 1]) continue;
        const Move move = automaton.row(place.state)[column];
        if (move.next == 0 || (move.back && place.back)) return false;
        step.pushes = step.pushes || move.back;
        const Place to{move.next, move.back ? move.back : place.back};
        if (std::find(next.begin(), next.end(), to) == next.end()) next.push_back(to);
      }
    places = std::move(next);
  }
  for (const Place& place : places) {
    const Move* row = automaton.row(place.state);
    const bool returns = automaton.accepting[place.state] &&
                         std::all_of(row, row + automaton.n_columns, [](const Move& move) { return move.next == 0; });
    if (place.back && !returns) return false;
    const uint32_t to = place.back ? place.back : place.state;
    if (std::find(step.to.begin(), step.to.end(), to) == step.to.end()) step.to.push_back(to);
  }
  return true;
}

}  // namespace

std::vector<PlainStep> plain_steps(const Automaton& automaton, Budget& budget) {
  std::vector<ByteSequence> all;
  for (const auto& [first, last] : {std::pair{0x20u, 0x21u}, {0x23u, 0x5bu}, {0x5du, 0x10ffffu}})
    for (const ByteSequence& sequence : utf8_sequences(first, last)) all.push_back(sequence);
  std::vector<PlainStep> steps(automaton.n_states());
  steps[0].dies = true;
  for (uint32_t state = 1; state < automaton.n_states(); ++state) {
    budget.spend(8 * all.size());
    for (const ByteSequence& sequence : all)
      if (!follow(automaton, state, sequence, steps[state])) {
        steps[state] = {true, false, {}};
        break;
      }
  }
  return steps;
}

std::vector<uint32_t> plain_characters(const std::vector<PlainStep>& steps, const std::vector<uint32_t>& room) {
  const uint32_t n = uint32_t(steps.size());
  std::vector<uint32_t> count(n, BLINK_GRAMMAR_ANY_PLAIN), waiting;
  std::vector<std::vector<uint32_t>> before(n);
  for (uint32_t state = 0; state < n; ++state) {
    bool dies = steps[state].dies;
    for (const uint32_t to : steps[state].to) {
      before[to].push_back(state);
      dies = dies || room[to] > room[state];
    }
    if (!dies) continue;
    count[state] = 0;
    waiting.push_back(state);
  }
  for (size_t i = 0; i < waiting.size(); ++i)  // the nearest to death first
    for (const uint32_t from : before[waiting[i]])
      if (count[from] == BLINK_GRAMMAR_ANY_PLAIN) {
        count[from] = std::min(count[waiting[i]] + 1, BLINK_GRAMMAR_ANY_PLAIN - 1);
        waiting.push_back(from);
      }
  return count;
}

}  // namespace blink::grammar
