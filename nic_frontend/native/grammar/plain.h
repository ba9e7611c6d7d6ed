// Plain characters (grammar.h) in an automaton: all of Unicode but controls, the double quote and the backslash.
#ifndef BLINK_GRAMMAR_PLAIN_H
#define BLINK_GRAMMAR_PLAIN_H

#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/automaton.h"
#include "nic_frontend/native/grammar/budget.h"

namespace blink::grammar {

// What a plain character does in a state.
struct PlainStep {
  bool dies = false;         // some of them
  bool pushes = false;       // some of them push a state while they are read
  std::vector<uint32_t> to;  // states behind it
};

std::vector<PlainStep> plain_steps(const Automaton& automaton, Budget& budget);

// Of each state, how many may follow in any choice. `room` is what each state needs of the stack.
std::vector<uint32_t> plain_characters(const std::vector<PlainStep>& steps, const std::vector<uint32_t>& room);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_PLAIN_H
