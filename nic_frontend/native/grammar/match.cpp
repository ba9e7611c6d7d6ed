// Whether a text is in a language, without an automaton of that: in time that grows with the text and the graph alone.
#include <algorithm>
#include <new>
#include <stdexcept>

#include "nic_frontend/native/grammar/closure.h"
#include "nic_frontend/native/grammar/compiler.h"

namespace blink::grammar {

namespace {

struct Text {
  const uint8_t* bytes;
  uint32_t length;
};

bool simulate(const Program& program, uint32_t node, const Text& text, Budget& budget) {
  Graph graph(program, budget);
  const uint32_t from = graph.add(), to = graph.add();
  graph.build(node, from, to);
  if (!graph.calls.empty()) throw Refused{BLINK_GRAMMAR_BAD_PROGRAM};
  std::vector<bool> seen(graph.vertices.size());
  VertexSet now = closure(graph, {from}, true, text.length == 0, seen, budget);
  for (uint32_t i = 0; i < text.length && !now.empty(); ++i) {
    VertexSet next;
    for (const uint32_t vertex : now)
      for (uint32_t e = graph.vertices[vertex].edges; e != kNone; e = graph.edges[e].next) {
        const Edge& edge = graph.edges[e];
        budget.spend();
        if (edge.first <= text.bytes[i] && text.bytes[i] <= edge.last) next.push_back(edge.to);
      }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    now = closure(graph, next, false, i + 1 == text.length, seen, budget);
  }
  return std::binary_search(now.begin(), now.end(), to);
}

bool contains(const Program& program, uint32_t index, const Text& text, Budget& budget) {
  const Level level(budget);
  const Node& node = program.nodes[index];
  switch (node.op) {
    case BLINK_GRAMMAR_OP_BOTH:
      return contains(program, node.arguments[0], text, budget) && contains(program, node.arguments[1], text, budget);
    case BLINK_GRAMMAR_OP_EXCEPT:
      return contains(program, node.arguments[0], text, budget) && !contains(program, node.arguments[1], text, budget);
    case BLINK_GRAMMAR_OP_CLOSED:
      return contains(program, node.arguments[0], text, budget);
    default:
      return simulate(program, index, text, budget);
  }
}

}  // namespace

}  // namespace blink::grammar

extern "C" uint32_t blink_grammar_match(const uint32_t* program, uint32_t words, const blink_grammar_limits* limits,
                                        const uint8_t* text, uint32_t length) {
  using namespace blink::grammar;
  try {
    const Program read(program, words);
    Budget budget(*limits);
    return contains(read, read.rules[0], {text, length}, budget) ? BLINK_GRAMMAR_OK : BLINK_GRAMMAR_EMPTY_LANGUAGE;
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const std::bad_alloc&) {
    return BLINK_GRAMMAR_TOO_LARGE;
  } catch (const std::length_error&) {
    return BLINK_GRAMMAR_TOO_LARGE;
  }
}
