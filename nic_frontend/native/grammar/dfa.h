// A language without calls as an automaton of its own: what "not", "and" and anchors of regular expressions need.
#ifndef BLINK_GRAMMAR_DFA_H
#define BLINK_GRAMMAR_DFA_H

#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

class Dfa {
 public:
  // The language of a node. Throws Refused.
  Dfa(const Program& program, uint32_t node, Budget& budget);

  // It leads from one vertex of a graph to another.
  void put(Graph& graph, uint32_t from, uint32_t to) const;

 private:
  void make_deterministic(const Program& program, uint32_t node, Budget& budget);
  // What is in `a`, and in `b` if `in_second`, else not in `b`.
  void combine(const Dfa& a, const Dfa& b, bool in_second, Budget& budget);
  void make_small(Budget& budget);
  void remove_dead_ends(Budget& budget);

  uint32_t next(uint32_t state, uint32_t interval) const { return moves_[size_t(state) * first_.size() + interval]; }
  uint32_t n_states() const { return uint32_t(accepting_.size()); }

  // State 0 is dead, state 1 the start.
  std::vector<uint8_t> first_;   // bytes: of each interval
  std::vector<uint32_t> moves_;  // by state and interval
  std::vector<bool> accepting_;
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_DFA_H
