// A program (compiler.h), checked and taken apart.
#ifndef BLINK_GRAMMAR_PROGRAM_H
#define BLINK_GRAMMAR_PROGRAM_H

#include <cstdint>
#include <vector>

#include "nic_frontend/native/grammar/budget.h"

namespace blink::grammar {

struct Node {
  uint32_t op, n;
  const uint32_t* arguments;

  // Those of the arguments that are nodes.
  uint32_t n_nodes() const {
    switch (op) {
      case BLINK_GRAMMAR_OP_CAT:
      case BLINK_GRAMMAR_OP_ALT:
        return n;
      case BLINK_GRAMMAR_OP_BOTH:
      case BLINK_GRAMMAR_OP_EXCEPT:
        return 2;
      case BLINK_GRAMMAR_OP_REPEAT:
      case BLINK_GRAMMAR_OP_CLOSED:
        return 1;
      case BLINK_GRAMMAR_OP_MEMBERS:
        return 2 + (n - 2) / 2;
      default:
        return 0;
    }
  }
};

struct Program {
  std::vector<Node> nodes;
  std::vector<uint32_t> rules;  // the node of each
  std::vector<bool> greedy;     // ... and whether it takes what it can

  // Throws Refused where the words are no program.
  Program(const uint32_t* words, uint32_t n_words);

  // Those that call themselves, maybe through others. Throws Refused.
  std::vector<bool> recursive_rules(Budget& budget) const;

 private:
  void check(const Node& node, uint32_t index) const;
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_PROGRAM_H
