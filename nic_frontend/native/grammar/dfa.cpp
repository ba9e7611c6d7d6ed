#include "nic_frontend/native/grammar/dfa.h"

#include <algorithm>
#include <map>

#include "nic_frontend/native/grammar/closure.h"
#include "nic_frontend/native/grammar/partition.h"

namespace blink::grammar {

Dfa::Dfa(const Program& program, uint32_t node, Budget& budget) {
  const Level level(budget);
  const Node& from = program.nodes[node];
  const uint32_t* a = from.arguments;
  if (from.op == BLINK_GRAMMAR_OP_BOTH || from.op == BLINK_GRAMMAR_OP_EXCEPT)
    combine(Dfa(program, a[0], budget), Dfa(program, a[1], budget), from.op == BLINK_GRAMMAR_OP_BOTH, budget);
  else
    make_deterministic(program, from.op == BLINK_GRAMMAR_OP_CLOSED ? a[0] : node, budget);
  remove_dead_ends(budget);
  make_small(budget);
}

void Dfa::make_deterministic(const Program& program, uint32_t node, Budget& budget) {
  Graph graph(program, budget);
  const uint32_t from = graph.add(), to = graph.add();
  graph.build(node, from, to);
  if (!graph.calls.empty()) throw Refused{BLINK_GRAMMAR_BAD_PROGRAM};
  const Intervals intervals(graph);
  first_ = intervals.first;
  std::vector<bool> seen(graph.vertices.size());
  std::vector<VertexSet> states{{}, closure(graph, {from}, true, false, seen, budget)};
  BySet<uint32_t> known{{states[0], 0}};  // the start is no other's target: there an anchor may hold
  Fan fan(intervals);
  for (uint32_t state = 0; state < states.size(); ++state) {
    const VertexSet ends = closure(graph, states[state], state == 1, true, seen, budget);
    accepting_.push_back(std::binary_search(ends.begin(), ends.end(), to));
    fan.gather(graph, states[state], budget);
    for (uint32_t i = 0; i < intervals.count(); ++i) {
      if (i && fan[i] == fan[i - 1]) {
        moves_.push_back(moves_.back());
        continue;
      }
      const auto [found, is_new] =
          known.try_emplace(closure(graph, fan[i], false, false, seen, budget), uint32_t(states.size()));
      if (is_new) {
        budget.hold(2, found->first.size());
        budget.check_moves(states.size() * first_.size());
        states.push_back(found->first);
      }
      moves_.push_back(found->second);
    }
  }
}

void Dfa::combine(const Dfa& a, const Dfa& b, bool in_second, Budget& budget) {
  std::vector<uint32_t> of_a, of_b;  // intervals of each, by those of this
  for (uint32_t byte = 0, i = 0, k = 0; byte < 256; ++byte) {
    const bool begins_a = i < a.first_.size() && a.first_[i] == byte,
               begins_b = k < b.first_.size() && b.first_[k] == byte;
    i += begins_a;
    k += begins_b;
    if (!begins_a && !begins_b) continue;
    first_.push_back(uint8_t(byte));
    of_a.push_back(i - 1);
    of_b.push_back(k - 1);
  }
  std::vector<std::pair<uint32_t, uint32_t>> states{{0, 0}, {1, 1}};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> known{{{0, 0}, 0}, {{1, 1}, 1}};
  for (uint32_t state = 0; state < states.size(); ++state) {
    budget.spend(4 * first_.size());
    const auto [x, y] = states[state];
    accepting_.push_back(a.accepting_[x] && b.accepting_[y] == in_second);
    for (uint32_t i = 0; i < first_.size(); ++i) {
      const uint32_t to_x = a.next(x, of_a[i]), to_y = b.next(y, of_b[i]);
      if (to_x == 0 || (in_second && to_y == 0)) {
        moves_.push_back(0);
        continue;
      }
      const auto [found, is_new] = known.try_emplace({to_x, to_y}, uint32_t(states.size()));
      if (is_new) {
        budget.check_moves(states.size() * first_.size());
        states.push_back(found->first);
      }
      moves_.push_back(found->second);
    }
  }
}

// Moves to states from which no text is accepted lead to state 0 instead.
void Dfa::remove_dead_ends(Budget& budget) {
  const size_t width = first_.size();
  budget.spend(4 * moves_.size());
  std::vector<std::vector<uint32_t>> before(n_states());
  for (uint32_t state = 0; state < n_states(); ++state)
    for (uint32_t i = 0; i < width; ++i)
      if (i == 0 || next(state, i) != next(state, i - 1)) before[next(state, i)].push_back(state);
  std::vector<bool> lives = accepting_;
  std::vector<uint32_t> waiting;
  for (uint32_t state = 0; state < n_states(); ++state)
    if (lives[state]) waiting.push_back(state);
  while (!waiting.empty()) {
    const uint32_t state = waiting.back();
    waiting.pop_back();
    for (const uint32_t from : before[state])
      if (!lives[from]) {
        lives[from] = true;
        waiting.push_back(from);
      }
  }
  for (uint32_t& to : moves_)
    if (!lives[to]) to = 0;
}

void Dfa::make_small(Budget& budget) {
  const size_t width = first_.size();
  budget.spend(4 * moves_.size());
  std::vector<uint32_t> colours(n_states());
  std::vector<Transition> transitions;
  for (uint32_t state = 0; state < n_states(); ++state) {
    colours[state] = state == 0 ? 0 : 1 + accepting_[state];
    for (uint32_t i = 0; i < width; ++i)
      if (next(state, i)) transitions.push_back({state, i, next(state, i)});
  }
  const std::vector<uint32_t> parts = partition(colours, std::move(transitions), budget);
  const uint32_t n_parts = 1 + *std::max_element(parts.begin(), parts.end());
  std::vector<uint32_t> moves(n_parts * width);
  std::vector<bool> accepting(n_parts);
  for (uint32_t state = 0; state < n_states(); ++state) {
    accepting[parts[state]] = accepting_[state];
    for (uint32_t i = 0; i < width; ++i) moves[parts[state] * width + i] = parts[next(state, i)];
  }
  moves_ = std::move(moves);
  accepting_ = std::move(accepting);
}

void Dfa::put(Graph& graph, uint32_t from, uint32_t to) const {
  const size_t width = first_.size();
  std::vector<uint32_t> at(n_states());
  for (uint32_t state = 1; state < n_states(); ++state) at[state] = graph.add();
  graph.hop(from, at[1]);
  for (uint32_t state = 1; state < n_states(); ++state) {
    if (accepting_[state]) graph.hop(at[state], to);
    for (uint32_t i = 0, begin = 0; i < width; ++i) {
      if (i + 1 < width && next(state, i + 1) == next(state, i)) continue;
      const uint8_t last = i + 1 < width ? uint8_t(first_[i + 1] - 1) : uint8_t(255);
      if (next(state, i)) graph.edge(at[state], first_[begin], last, at[next(state, i)]);
      begin = i + 1;
    }
  }
}

}  // namespace blink::grammar
