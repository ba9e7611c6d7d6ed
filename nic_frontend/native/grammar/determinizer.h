// Makes the automaton of a program: sets of vertices of its graph become states.
//
// A call of a rule stays one, which pushes a state, where the next byte decides that it is this rule and nothing else.
// Where it does not, the rule's graph is copied in the place of the call: then both ways are followed at once. A rule
// that may go on with a byte that may also follow it is copied wherever it is called, unless it calls itself: then it
// takes what it can.
#ifndef BLINK_GRAMMAR_DETERMINIZER_H
#define BLINK_GRAMMAR_DETERMINIZER_H

#include <bitset>
#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/automaton.h"
#include "nic_frontend/native/grammar/fan.h"
#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

class Determinizer {
 public:
  // `copied`: rules that are never called. Throws Refused.
  Determinizer(const Program& program, const std::vector<bool>& copied, Budget& budget);

  // Runs once. The automaton, with a column for each interval. Throws Refused.
  Automaton run();

  // Behind `run`: rules that may go on with a byte that may also follow them, and do not call themselves.
  std::vector<uint32_t> unclear_ends() const;

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
  };

  static std::vector<Rule> built(Graph& graph);
  void find_nullable();
  bool reaches_end(const Rule& rule);
  VertexSet closure(const VertexSet& from);
  uint32_t state_of(const VertexSet& reached, uint32_t rule);
  uint32_t start_of(uint32_t rule);
  bool is_called(uint32_t rule);
  void make(uint32_t state);
  std::vector<uint32_t> resolve(VertexSet& vertices);
  void copy(uint32_t call, VertexSet& vertices);
  Set plain(const VertexSet& vertices) const;
  Set moves_of(uint32_t state) const;
  void add_calls(uint32_t state, const std::vector<uint32_t>& calls);
  std::vector<Set> followers() const;
  bool calls_itself(uint32_t rule) const;

  Move& move(uint32_t state, uint32_t interval) { return automaton_.row(state)[interval]; }

  Graph graph_;
  Budget& budget_;
  const std::vector<bool>& copied_;
  std::vector<Rule> rules_;
  Intervals intervals_;
  Fan fan_;
  BySet<uint32_t> by_reached_, by_vertices_;
  std::vector<State> states_;
  std::vector<uint32_t> waiting_;
  std::vector<bool> seen_;
  Automaton automaton_;
};

// The whole way: again with copies of the rules that turn out to be in need of them. Throws Refused.
Automaton make_deterministic(const Program& program, Budget& budget);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_DETERMINIZER_H
