#include "nic_frontend/native/grammar/program.h"

namespace blink::grammar {

namespace {

constexpr uint32_t kLastCharacter = 0x10ffff;
constexpr uint32_t kMaxPlaces = 15;  // a double keeps no more digits
constexpr uint32_t kMaxMultiple = 65536;

void require(bool holds) {
  if (!holds) throw Refused{BLINK_GRAMMAR_BAD_PROGRAM};
}

}  // namespace

Program::Program(const uint32_t* words, uint32_t n_words) {
  require(n_words >= 2);
  const uint32_t n_nodes = words[0], n_rules = words[1];
  require(n_nodes <= n_words && n_rules >= 1 && n_rules <= n_words);
  rules.resize(n_rules);
  uint32_t at = 2;
  for (uint32_t i = 0; i < n_nodes; ++i) {
    require(n_words - at >= 2);
    const Node node{words[at], words[at + 1], words + at + 2};
    at += 2;
    require(node.n <= n_words - at);
    at += node.n;
    check(node, i);
    nodes.push_back(node);
  }
  require(n_words - at == n_rules);
  for (uint32_t i = 0; i < n_rules; ++i) {
    rules[i] = words[at + i] & ~BLINK_GRAMMAR_GREEDY;
    greedy.push_back(words[at + i] & BLINK_GRAMMAR_GREEDY);
    require(rules[i] < n_nodes);
  }
}

void Program::check(const Node& node, uint32_t index) const {
  const uint32_t n = node.n;
  const uint32_t* a = node.arguments;
  switch (node.op) {
    case BLINK_GRAMMAR_OP_CHARS:
      require(n % 2 == 1);
      for (uint32_t i = 1; i < n; i += 2) require(a[i] <= a[i + 1] && a[i + 1] <= kLastCharacter);
      break;
    case BLINK_GRAMMAR_OP_UNTIL:
      require(n >= 1);
      [[fallthrough]];
    case BLINK_GRAMMAR_OP_BYTES:
      for (uint32_t i = 0; i < n; ++i) require(a[i] < 256);
      break;
    case BLINK_GRAMMAR_OP_REPEAT:
      require(n == 3 && a[1] <= a[2]);
      break;
    case BLINK_GRAMMAR_OP_CALL:
      require(n == 1 && a[0] < rules.size());
      break;
    case BLINK_GRAMMAR_OP_MULTIPLE:
      require(n == 2 && a[0] >= 1 && a[0] <= kMaxMultiple && a[1] <= kMaxPlaces);
      break;
    case BLINK_GRAMMAR_OP_CLOSED:
      require(n == 1);
      break;
    case BLINK_GRAMMAR_OP_BOTH:
    case BLINK_GRAMMAR_OP_EXCEPT:
      require(n == 2);
      break;
    case BLINK_GRAMMAR_OP_MEMBERS:
      require(n >= 2 && n % 2 == 0);
      break;
    default:
      require(node.op <= BLINK_GRAMMAR_OP_MEMBERS);
  }
  for (uint32_t i = 0; i < node.n_nodes(); ++i) require(a[i] < index);
}

std::vector<bool> Program::recursive_rules(Budget& budget) const {
  std::vector<bool> found(rules.size());
  for (uint32_t rule = 0; rule < rules.size(); ++rule) {
    budget.spend(nodes.size() / 64);
    std::vector<bool> seen(nodes.size());
    std::vector<uint32_t> waiting{rules[rule]};
    while (!waiting.empty() && !found[rule]) {
      const Node& node = nodes[waiting.back()];
      waiting.pop_back();
      budget.spend(1 + node.n_nodes());
      const auto visit = [&](uint32_t index) {
        if (!seen[index]) waiting.push_back(index);
        seen[index] = true;
      };
      for (uint32_t i = 0; i < node.n_nodes(); ++i) visit(node.arguments[i]);
      if (node.op != BLINK_GRAMMAR_OP_CALL) continue;
      found[rule] = node.arguments[0] == rule;
      visit(rules[node.arguments[0]]);
    }
  }
  return found;
}

}  // namespace blink::grammar
