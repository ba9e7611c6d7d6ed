// Makes the automaton of a program: sets of vertices of its graph become states.
//
// A call of a rule stays one, which pushes a state, where the next byte decides that it is this rule and nothing else.
// Where it does not, the rule's graph is copied in the place of the call: then both ways are followed at once. A rule
// that may go on with a byte that may also follow it is copied, too: wherever it is called, or if it calls itself where
// that byte may follow. Where that has no end, it stays a call, and the rule takes what it can.
#ifndef BLINK_GRAMMAR_DETERMINIZER_H
#define BLINK_GRAMMAR_DETERMINIZER_H

#include <bitset>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "nic_frontend/native/grammar/automaton.h"
#include "nic_frontend/native/grammar/fan.h"
#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

// What is not called but copied.
struct Copied {
  std::vector<bool> rules;
  std::set<std::pair<uint32_t, uint32_t>> calls;  // nodes, in the graphs of rules: (rule, node)
};

class Determinizer {
 public:
  // Throws Refused.
  Determinizer(const Program& program, const Copied& copied, Budget& budget);

  // Runs once. The automaton, with a column for each interval. Throws Refused.
  Automaton run();

  // Behind `run`: adds what may go on with a byte that may also follow it. False if there is nothing.
  bool add_unclear_ends(Copied& copied) const;

 private:
  using Set = std::bitset<256>;  // of intervals

  struct Rule {
    uint32_t from, to;  // vertices
    bool nullable = false;
    bool starting = false;  // its start is being made
    uint32_t start = 0;     // its state, or 0 when nothing called it yet
  };
  struct State {
    VertexSet vertices;  // that are reached without a byte
    uint32_t rule;
    bool done = false;
    std::vector<uint32_t> calls;  // those that stay
  };

  static std::vector<Rule> built(Graph& graph);
  void find_nullable();
  bool reaches_end(const Rule& rule);
  VertexSet closure(const VertexSet& from);
  uint32_t state_of(const VertexSet& reached, uint32_t rule);
  uint32_t start_of(uint32_t rule);
  bool is_called(uint32_t call, uint32_t rule);
  void make(uint32_t state);
  std::vector<uint32_t> resolve(VertexSet& vertices, uint32_t rule);
  void copy(uint32_t call, VertexSet& vertices);
  Set plain(const VertexSet& vertices) const;
  Set moves_of(uint32_t state) const;
  void add_calls(uint32_t state);
  VertexSet returns_of(uint32_t state, uint32_t rule) const;
  std::vector<Set> followers() const;

  Move& move(uint32_t state, uint32_t interval) { return automaton_.row(state)[interval]; }

  Graph graph_;
  Budget& budget_;
  const Copied& copied_;
  std::vector<bool> recursive_;  // rules that call themselves
  std::vector<Rule> rules_;
  Intervals intervals_;
  Fan fan_;
  BySet<uint32_t> by_reached_, by_vertices_;
  std::vector<State> states_;
  std::vector<uint32_t> waiting_;
  std::vector<bool> seen_;
  Automaton automaton_;
};

// The whole way: again with copies of what turns out to be in need of them. Throws Refused.
Automaton make_deterministic(const Program& program, Budget& budget);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_DETERMINIZER_H
