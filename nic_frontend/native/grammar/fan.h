// Where the edges of a set of vertices lead, for each interval of bytes.
#ifndef BLINK_GRAMMAR_FAN_H
#define BLINK_GRAMMAR_FAN_H

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "nic_frontend/native/grammar/graph.h"

namespace blink::grammar {

using VertexSet = std::vector<uint32_t>;  // sorted

struct HashOfSet {
  size_t operator()(const VertexSet& set) const {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (const uint32_t vertex : set) hash = (hash ^ vertex) * 0x100000001b3ull;
    return size_t(hash ^ hash >> 29);
  }
};

template <class Value>
using BySet = std::unordered_map<VertexSet, Value, HashOfSet>;

class Fan {
 public:
  explicit Fan(const Intervals& intervals) : intervals_(intervals), targets_(intervals.count()) {}

  // Replaces what was there. Throws Refused.
  void gather(const Graph& graph, const VertexSet& from, Budget& budget) {
    for (VertexSet& to : targets_) to.clear();
    for (const uint32_t vertex : from)
      for (uint32_t e = graph.vertices[vertex].edges; e != kNone; e = graph.edges[e].next) {
        const Edge& edge = graph.edges[e];
        const uint32_t first = intervals_.of_byte[edge.first], last = intervals_.of_byte[edge.last];
        budget.spend(1 + last - first);
        for (uint32_t i = first; i <= last; ++i) targets_[i].push_back(edge.to);
      }
    for (VertexSet& to : targets_) {
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
    }
  }

  const VertexSet& operator[](uint32_t interval) const { return targets_[interval]; }

 private:
  const Intervals& intervals_;
  std::vector<VertexSet> targets_;
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_FAN_H
