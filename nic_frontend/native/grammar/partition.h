// Which states of an automaton cannot be told apart.
#ifndef BLINK_GRAMMAR_PARTITION_H
#define BLINK_GRAMMAR_PARTITION_H

#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

struct Transition {
  uint32_t from, label, to;
};

// The coarsest partition in which states of one part have the same colour, and transitions of the same labels to the
// same parts. Returns each state's part; the parts are numbered from 0, by their first states.
std::vector<uint32_t> partition(const std::vector<uint32_t>& colours, std::vector<Transition> transitions,
                                Budget& budget);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_PARTITION_H
