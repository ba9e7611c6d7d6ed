// The graph of a program's languages (an NFA), from which automata are made.
#ifndef BLINK_GRAMMAR_GRAPH_H
#define BLINK_GRAMMAR_GRAPH_H

#include <bitset>
#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/budget.h"
#include "nic_frontend/native/grammar/program.h"

namespace blink::grammar {

enum class When : uint8_t { kAlways, kAtBegin, kAtEnd };

struct Edge {
  uint32_t to, next;  // `next` of the same node
  uint8_t first, last;
};

// Without a byte.
struct Hop {
  uint32_t to, next;
  When when;
};

struct Call {
  uint32_t rule, to, next;
  uint32_t node;  // of the program, that it stands for
  uint32_t copy;  // where the rule's graph begins that was put in its place, or kNone
};

struct Vertex {
  uint32_t edges = kNone, hops = kNone, calls = kNone;
};

class Graph {
 public:
  Graph(const Program& program, Budget& budget) : program_(program), budget_(budget) {}

  std::vector<Vertex> vertices;
  std::vector<Edge> edges;
  std::vector<Hop> hops;
  std::vector<Call> calls;

  uint32_t add();
  void edge(uint32_t from, uint8_t first, uint8_t last, uint32_t to);
  void hop(uint32_t from, uint32_t to, When when = When::kAlways);
  // The node's language leads from one vertex to another. Throws Refused.
  void build(uint32_t node, uint32_t from, uint32_t to);

  const Program& program() const { return program_; }
  Budget& budget() { return budget_; }

 private:
  void chain(const uint32_t* bytes, uint32_t n, uint32_t from, uint32_t to);
  void characters(const Node& node, uint32_t from, uint32_t to);
  void repeat(const Node& node, uint32_t from, uint32_t to);
  void until(const Node& node, uint32_t from, uint32_t to);
  void multiple(uint32_t divisor, uint32_t places, uint32_t from, uint32_t to);
  void members(const Node& node, uint32_t from, uint32_t to);

  const Program& program_;
  Budget& budget_;
};

// Bytes that no edge tells apart are one interval.
struct Intervals {
  std::vector<uint8_t> first;  // of each
  uint8_t of_byte[256];

  explicit Intervals(const Graph& graph);
  uint32_t count() const { return uint32_t(first.size()); }
  uint8_t last(uint32_t i) const { return i + 1 < first.size() ? uint8_t(first[i + 1] - 1) : uint8_t(255); }
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_GRAPH_H
