#include "nic_frontend/native/grammar/reduced.h"

#include <algorithm>
#include <map>

#include "nic_frontend/native/grammar/partition.h"
#include "ringbuffer/grammar.h"

namespace blink::grammar {

namespace {

// A move's target and column, seen from where it leads to.
struct Source {
  uint32_t state, column;
};

// The moves that lead to each state, or return to it.
std::vector<std::vector<Source>> sources(const Automaton& automaton, Budget& budget) {
  budget.spend(4 * automaton.moves.size());
  std::vector<std::vector<Source>> found(automaton.n_states());
  for (uint32_t state = 1; state < automaton.n_states(); ++state)
    for (uint32_t column = 0; column < automaton.n_columns; ++column) {
      const Move move = automaton.row(state)[column];
      if (move.next == 0) continue;
      found[move.next].push_back({state, column});
      if (move.back) found[move.back].push_back({state, column});
    }
  return found;
}

}  // namespace

void remove_dead_ends(Automaton& automaton, Budget& budget) {
  const std::vector<std::vector<Source>> before = sources(automaton, budget);
  std::vector<bool> lives = automaton.accepting;
  std::vector<uint32_t> waiting;
  for (uint32_t state = 1; state < automaton.n_states(); ++state)
    if (lives[state]) waiting.push_back(state);
  const auto leads_on = [&](const Move& move) { return lives[move.next] && (move.back == 0 || lives[move.back]); };
  while (!waiting.empty()) {
    const uint32_t state = waiting.back();
    waiting.pop_back();
    for (const auto& [from, column] : before[state])
      if (!lives[from] && leads_on(automaton.row(from)[column])) {
        lives[from] = true;
        waiting.push_back(from);
      }
  }
  if (!lives[automaton.start]) throw Refused{BLINK_GRAMMAR_EMPTY_LANGUAGE};
  for (Move& move : automaton.moves)
    if (move.next && !leads_on(move)) move = {};
}

namespace {

// States that a walk can come to, in the order in which a search finds them: neighbours lie together.
std::vector<uint32_t> reachable(const Automaton& automaton) {
  std::vector<bool> seen(automaton.n_states());
  std::vector<uint32_t> found{automaton.start};
  seen[automaton.start] = true;
  for (size_t i = 0; i < found.size(); ++i)
    for (uint32_t column = 0; column < automaton.n_columns; ++column) {
      const Move move = automaton.row(found[i])[column];
      for (const uint32_t to : {move.next, move.back})
        if (to && !seen[to]) {
          seen[to] = true;
          found.push_back(to);
        }
    }
  return found;
}

// Columns that are equal in all states become one.
void merge_columns(Automaton& automaton, Budget& budget) {
  budget.spend(4 * automaton.moves.size());
  std::vector<uint32_t> column_of(automaton.n_columns), kept;
  std::map<std::vector<uint64_t>, uint32_t> known;
  for (uint32_t column = 0; column < automaton.n_columns; ++column) {
    std::vector<uint64_t> content(automaton.n_states());
    for (uint32_t state = 0; state < automaton.n_states(); ++state) {
      const Move move = automaton.row(state)[column];
      content[state] = uint64_t(move.next) << 32 | move.back;
    }
    const auto [found, is_new] = known.try_emplace(std::move(content), uint32_t(kept.size()));
    if (is_new) kept.push_back(column);
    column_of[column] = found->second;
  }
  std::vector<Move> moves;
  moves.reserve(size_t(automaton.n_states()) * kept.size());
  for (uint32_t state = 0; state < automaton.n_states(); ++state)
    for (const uint32_t column : kept) moves.push_back(automaton.row(state)[column]);
  automaton.moves = std::move(moves);
  automaton.n_columns = uint32_t(kept.size());
  for (uint8_t& column : automaton.column_of_byte) column = uint8_t(column_of[column]);
}

}  // namespace

Automaton make_small(const Automaton& automaton, Budget& budget) {
  budget.spend(4 * automaton.moves.size());
  const std::vector<uint32_t> states = reachable(automaton);
  std::vector<uint32_t> number(automaton.n_states()), colours(states.size());
  for (uint32_t i = 0; i < states.size(); ++i) number[states[i]] = i;
  std::vector<Transition> transitions;
  for (uint32_t i = 0; i < states.size(); ++i) {
    colours[i] = automaton.accepting[states[i]];
    for (uint32_t column = 0; column < automaton.n_columns; ++column) {
      const Move move = automaton.row(states[i])[column];
      if (move.next) transitions.push_back({i, 2 * column, number[move.next]});
      if (move.back) transitions.push_back({i, 2 * column + 1, number[move.back]});
    }
  }
  const std::vector<uint32_t> parts = partition(colours, std::move(transitions), budget);
  Automaton small;
  small.n_columns = automaton.n_columns;
  std::copy(automaton.column_of_byte, automaton.column_of_byte + 256, small.column_of_byte);
  const uint32_t n = 2 + *std::max_element(parts.begin(), parts.end());  // with the dead one
  small.moves.resize(size_t(n) * small.n_columns);
  small.accepting.resize(n);
  const auto renamed = [&](uint32_t state) { return state ? 1 + parts[number[state]] : 0; };
  small.start = renamed(automaton.start);
  for (uint32_t i = 0; i < states.size(); ++i) {
    small.accepting[1 + parts[i]] = automaton.accepting[states[i]];
    for (uint32_t column = 0; column < small.n_columns; ++column) {
      const Move move = automaton.row(states[i])[column];
      small.row(1 + parts[i])[column] = {renamed(move.next), renamed(move.back)};
    }
  }
  merge_columns(small, budget);
  return small;
}

std::vector<uint32_t> needed_room(const Automaton& automaton, const std::vector<uint32_t>& reserve, Budget& budget) {
  constexpr uint32_t kNever = BLINK_GRAMMAR_MAX_STACK + 1;
  const std::vector<std::vector<Source>> before = sources(automaton, budget);
  std::vector<uint32_t> room(automaton.n_states(), kNever);
  uint32_t settled = 1;
  for (uint32_t wanted = 0; wanted < kNever && settled < room.size(); ++wanted) {  // states that need no less
    std::vector<uint32_t> waiting;
    const auto settle = [&](uint32_t state) {
      if (room[state] != kNever || reserve[state] > wanted) return;
      budget.spend(automaton.n_columns);
      bool ends = automaton.accepting[state];
      for (uint32_t column = 0; column < automaton.n_columns && !ends; ++column) {
        const Move move = automaton.row(state)[column];
        if (move.next == 0) continue;
        ends = move.back ? room[move.next] < wanted && room[move.back] <= wanted : room[move.next] <= wanted;
      }
      if (!ends) return;
      room[state] = wanted;
      ++settled;
      waiting.push_back(state);
    };
    for (uint32_t state = 1; state < automaton.n_states(); ++state) settle(state);
    while (!waiting.empty()) {
      const uint32_t state = waiting.back();
      waiting.pop_back();
      for (const Source& source : before[state]) settle(source.state);
    }
  }
  return room;
}

}  // namespace blink::grammar
