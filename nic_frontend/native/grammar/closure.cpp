#include "nic_frontend/native/grammar/closure.h"

#include <algorithm>

namespace blink::grammar {

VertexSet closure(const Graph& graph, const VertexSet& from, bool at_begin, bool at_end, std::vector<bool>& seen,
                  Budget& budget) {
  VertexSet found = from;
  for (const uint32_t vertex : from) seen[vertex] = true;
  for (size_t i = 0; i < found.size(); ++i)
    for (uint32_t h = graph.vertices[found[i]].hops; h != kNone; h = graph.hops[h].next) {
      const Hop& hop = graph.hops[h];
      budget.spend();
      const bool open = hop.when == When::kAlways || (hop.when == When::kAtBegin ? at_begin : at_end);
      if (!open || seen[hop.to]) continue;
      seen[hop.to] = true;
      found.push_back(hop.to);
    }
  for (const uint32_t vertex : found) seen[vertex] = false;
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace blink::grammar
