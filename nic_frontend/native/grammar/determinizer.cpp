#include "nic_frontend/native/grammar/determinizer.h"

#include <algorithm>

namespace blink::grammar {

Determinizer::Determinizer(const Program& program, const Copied& copied, Budget& budget)
    : graph_(program, budget),
      budget_(budget),
      copied_(copied),
      recursive_(program.recursive_rules(budget)),
      rules_(built(graph_)),
      intervals_(graph_),
      fan_(intervals_),
      states_(1) {
  automaton_.n_columns = intervals_.count();
  automaton_.moves.resize(intervals_.count());
  automaton_.accepting.resize(1);
  std::copy(intervals_.of_byte, intervals_.of_byte + 256, automaton_.column_of_byte);
  find_nullable();
}

std::vector<Determinizer::Rule> Determinizer::built(Graph& graph) {
  std::vector<Rule> rules;
  for (const uint32_t node : graph.program().rules) {
    const uint32_t from = graph.add(), to = graph.add();
    graph.build(node, from, to);
    rules.push_back({from, to});
  }
  return rules;
}

void Determinizer::find_nullable() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Rule& rule : rules_)
      if (!rule.nullable && reaches_end(rule)) changed = rule.nullable = true;
  }
}

bool Determinizer::reaches_end(const Rule& rule) {
  const VertexSet found = closure({rule.from});
  return std::binary_search(found.begin(), found.end(), rule.to);
}

// What is reached without a byte. Vertices that lead nowhere but without one are left out.
VertexSet Determinizer::closure(const VertexSet& from) {
  seen_.resize(graph_.vertices.size());
  VertexSet found = from;
  for (const uint32_t vertex : from) seen_[vertex] = true;
  const auto reach = [&](uint32_t vertex) {
    if (seen_[vertex]) return;
    seen_[vertex] = true;
    found.push_back(vertex);
  };
  for (size_t i = 0; i < found.size(); ++i) {
    const Vertex& vertex = graph_.vertices[found[i]];
    budget_.spend(4);
    for (uint32_t h = vertex.hops; h != kNone; h = graph_.hops[h].next) {
      if (graph_.hops[h].when != When::kAlways) throw Refused{BLINK_GRAMMAR_BAD_PROGRAM};
      budget_.spend();
      reach(graph_.hops[h].to);
    }
    for (uint32_t c = vertex.calls; c != kNone; c = graph_.calls[c].next)
      if (rules_[graph_.calls[c].rule].nullable) reach(graph_.calls[c].to);
  }
  for (const uint32_t vertex : found) seen_[vertex] = false;
  const auto only_hops = [&](uint32_t index) {
    const Vertex& vertex = graph_.vertices[index];
    return vertex.hops != kNone && vertex.edges == kNone && vertex.calls == kNone;
  };
  found.erase(std::remove_if(found.begin(), found.end(), only_hops), found.end());
  std::sort(found.begin(), found.end());
  return found;
}

uint32_t Determinizer::state_of(const VertexSet& reached, uint32_t rule) {
  if (reached.empty()) return 0;
  if (const auto known = by_reached_.find(reached); known != by_reached_.end()) return known->second;
  const auto [found, is_new] = by_vertices_.try_emplace(closure(reached), uint32_t(states_.size()));
  budget_.hold(1, reached.size());
  by_reached_.emplace(reached, found->second);
  if (is_new) {
    budget_.check_moves(states_.size() * automaton_.n_columns);
    budget_.hold(2, found->first.size());
    states_.push_back({found->first, rule, false, {}});
    automaton_.moves.resize(automaton_.moves.size() + automaton_.n_columns);
    automaton_.accepting.push_back(false);
    waiting_.push_back(found->second);
  }
  return found->second;
}

uint32_t Determinizer::start_of(uint32_t index) {
  const Level level(budget_);
  Rule& rule = rules_[index];
  if (rule.starting) throw Refused{BLINK_GRAMMAR_LEFT_RECURSION, index};
  if (rule.start == 0) {
    rule.starting = true;
    const uint32_t start = state_of({rule.from}, index);
    make(start);
    rule.start = start;
    rule.starting = false;
  }
  return rule.start;
}

// Whether it can be called with its first byte: that byte must not be another call's.
bool Determinizer::is_called(uint32_t call, uint32_t rule) {
  const uint32_t callee = graph_.calls[call].rule;
  if (copied_.rules[callee] || copied_.calls.count({rule, graph_.calls[call].node})) return false;
  const Move* row = automaton_.row(start_of(callee));
  return std::all_of(row, row + automaton_.n_columns, [](const Move& m) { return m.back == 0; });
}

void Determinizer::make(uint32_t state) {
  if (states_[state].done) return;
  states_[state].done = true;
  const uint32_t rule = states_[state].rule;
  VertexSet vertices = states_[state].vertices;
  std::vector<uint32_t> calls = resolve(vertices, rule);
  states_[state].calls = std::move(calls);
  automaton_.accepting[state] = std::binary_search(vertices.begin(), vertices.end(), rules_[rule].to);
  fan_.gather(graph_, vertices, budget_);
  for (uint32_t i = 0, next = 0; i < intervals_.count(); ++i) {
    if (i == 0 || fan_[i] != fan_[i - 1]) next = state_of(fan_[i], rule);
    move(state, i).next = next;
  }
  add_calls(state);
}

// Puts copies in the place of calls that the next byte does not decide, and returns the other calls.
std::vector<uint32_t> Determinizer::resolve(VertexSet& vertices, uint32_t owner) {
  std::vector<bool> is_copied(graph_.calls.size());
  for (;;) {
    std::vector<uint32_t> calls;
    budget_.spend(vertices.size() + is_copied.size() / 64);
    for (const uint32_t vertex : vertices)
      for (uint32_t c = graph_.vertices[vertex].calls; c != kNone; c = graph_.calls[c].next)
        if (c >= is_copied.size() || !is_copied[c]) calls.push_back(c);
    const Set edges = plain(vertices);
    std::vector<uint32_t> undecided;
    for (const uint32_t c : calls) {
      const uint32_t rule = graph_.calls[c].rule;
      bool decided = is_called(c, owner);
      if (decided) {
        budget_.spend(automaton_.n_columns);
        const Set first = moves_of(start_of(rule));
        decided = (first & edges).none();
        for (const uint32_t other : calls) {
          budget_.spend(automaton_.n_columns);
          if (!decided || graph_.calls[other].rule == rule || !is_called(other, owner)) continue;
          decided = (first & moves_of(start_of(graph_.calls[other].rule))).none();
        }
      }
      if (!decided) undecided.push_back(c);
    }
    if (undecided.empty()) return calls;
    for (const uint32_t c : undecided) {
      copy(c, vertices);
      is_copied.resize(graph_.calls.size());
      is_copied[c] = true;
    }
  }
}

void Determinizer::copy(uint32_t call, VertexSet& vertices) {
  if (graph_.calls[call].copy == kNone) {
    const uint32_t from = graph_.add(), to = graph_.calls[call].to;
    graph_.build(graph_.program().rules[graph_.calls[call].rule], from, to);
    graph_.calls[call].copy = from;
  }
  VertexSet all = vertices;
  for (const uint32_t vertex : closure({graph_.calls[call].copy})) all.push_back(vertex);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  vertices = std::move(all);
}

Determinizer::Set Determinizer::plain(const VertexSet& vertices) const {
  Set found;
  for (const uint32_t vertex : vertices)
    for (uint32_t e = graph_.vertices[vertex].edges; e != kNone; e = graph_.edges[e].next) {
      const uint32_t first = intervals_.of_byte[graph_.edges[e].first], last = intervals_.of_byte[graph_.edges[e].last];
      budget_.spend(1 + last - first);
      for (uint32_t i = first; i <= last; ++i) found[i] = true;
    }
  return found;
}

Determinizer::Set Determinizer::moves_of(uint32_t state) const {
  Set found;
  const Move* row = automaton_.row(state);
  for (uint32_t i = 0; i < automaton_.n_columns; ++i) found[i] = row[i].next != 0;
  return found;
}

// Those of one rule return to all the places where any of them does.
void Determinizer::add_calls(uint32_t state) {
  const std::vector<uint32_t> calls = states_[state].calls;
  for (const uint32_t first : calls) {
    const uint32_t rule = graph_.calls[first].rule;
    budget_.spend(calls.size() + intervals_.count());
    const uint32_t to = state_of(returns_of(state, rule), states_[state].rule), start = start_of(rule);
    for (uint32_t i = 0; i < intervals_.count(); ++i)
      if (const Move inner = move(start, i); inner.next) move(state, i) = {inner.next, to};
  }
}

Automaton Determinizer::run() {
  automaton_.start = start_of(0);
  while (!waiting_.empty()) {
    const uint32_t state = waiting_.back();
    waiting_.pop_back();
    make(state);
  }
  return automaton_;
}

// Intervals that may come behind each rule.
std::vector<Determinizer::Set> Determinizer::followers() const {
  std::vector<Set> found(rules_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t state = 1; state < states_.size(); ++state) {
      const Move* row = automaton_.row(state);
      budget_.spend(2 * automaton_.n_columns);
      for (uint32_t i = 0; i < automaton_.n_columns; ++i) {
        if (row[i].back == 0 || (i && row[i].next == row[i - 1].next && row[i].back == row[i - 1].back)) continue;
        budget_.spend(automaton_.n_columns);
        Set& follow = found[states_[row[i].next].rule];
        const Set before = follow;
        follow |= moves_of(row[i].back);
        if (automaton_.accepting[row[i].back]) follow |= found[states_[state].rule];
        changed = changed || follow != before;
      }
    }
  }
  return found;
}

bool Determinizer::add_unclear_ends(Copied& copied) const {
  const std::vector<Set> follow = followers();
  std::vector<Set> goes_on(rules_.size());  // intervals with which a rule goes on where it may end
  for (uint32_t state = 1; state < states_.size(); ++state) {
    budget_.spend(automaton_.n_columns);
    if (automaton_.accepting[state]) goes_on[states_[state].rule] |= moves_of(state);
  }
  bool found = false;
  for (uint32_t state = 1; state < states_.size(); ++state)
    for (const uint32_t c : states_[state].calls) {
      const Call& call = graph_.calls[c];
      budget_.spend(states_[state].calls.size() + 2 * automaton_.n_columns);
      if (graph_.program().greedy[call.rule]) continue;
      const uint32_t back = by_reached_.at(returns_of(state, call.rule));
      Set behind = moves_of(back);
      if (automaton_.accepting[back]) behind |= follow[states_[state].rule];
      if ((goes_on[call.rule] & behind).none()) continue;
      if (recursive_[call.rule]) {
        found = copied.calls.insert({states_[state].rule, call.node}).second || found;
      } else {
        found = found || !copied.rules[call.rule];
        copied.rules[call.rule] = true;
      }
    }
  return found;
}

// The vertices to which calls of a rule in a state return.
VertexSet Determinizer::returns_of(uint32_t state, uint32_t rule) const {
  VertexSet back;
  for (const uint32_t c : states_[state].calls)
    if (graph_.calls[c].rule == rule) back.push_back(graph_.calls[c].to);
  std::sort(back.begin(), back.end());
  back.erase(std::unique(back.begin(), back.end()), back.end());
  return back;
}

Automaton make_deterministic(const Program& program, Budget& budget) {
  Copied copied{std::vector<bool>(program.rules.size()), {}};
  for (bool copies_calls = true;;) {
    Budget round = copied.calls.empty() ? budget.again() : budget.part();
    try {
      Determinizer determinizer(program, copied, round);
      Automaton automaton = determinizer.run();
      Copied more = copied;
      if (!determinizer.add_unclear_ends(more)) return automaton;
      if (!copies_calls) more.calls.clear();
      if (!copies_calls && more.rules == copied.rules) return automaton;
      copied = std::move(more);
    } catch (const Refused&) {
      if (copied.calls.empty()) throw;
      copied.calls.clear();
      copies_calls = false;
    }
  }
}

}  // namespace blink::grammar
