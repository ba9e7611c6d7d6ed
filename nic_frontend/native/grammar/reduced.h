// An automaton without dead ends, as small as it can be, and what grammar.h's words say of its states and moves.
#ifndef BLINK_GRAMMAR_REDUCED_H
#define BLINK_GRAMMAR_REDUCED_H

#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/automaton.h"
#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

// Removes moves from which no end can be reached. Throws Refused if none can be from the start.
void remove_dead_ends(Automaton& automaton, Budget& budget);

// Merges states that cannot be told apart, and then columns.
Automaton make_small(const Automaton& automaton, Budget& budget);

// Of each state, how many states have to be pushed at least until what was entered can end; more than the stack has
// where it never can. `reserve` is what a state needs whatever follows.
std::vector<uint32_t> needed_room(const Automaton& automaton, const std::vector<uint32_t>& reserve, Budget& budget);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_REDUCED_H
