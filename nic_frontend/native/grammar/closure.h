// Vertices of a graph that are reached without a byte.
#ifndef BLINK_GRAMMAR_CLOSURE_H
#define BLINK_GRAMMAR_CLOSURE_H

#include <vector>

#include "nic_frontend/native/grammar/fan.h"
#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

// From where no call is. `at_begin` and `at_end` open the hops that anchors are; `seen`, one for each vertex, is all
// false before and behind. Throws Refused.
VertexSet closure(const Graph& graph, const VertexSet& from, bool at_begin, bool at_end, std::vector<bool>& seen,
                  Budget& budget);

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_CLOSURE_H
