// A program's rules as one deterministic automaton with a stack (ringbuffer/grammar.h), not yet made small.
#ifndef BLINK_GRAMMAR_AUTOMATON_H
#define BLINK_GRAMMAR_AUTOMATON_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace blink::grammar {

// To `next`. With a `back` that is not 0 the state to return to is pushed first.
struct Move {
  uint32_t next = 0, back = 0;
};

// State 0 is dead. The moves are by state and column; column_of_byte[b] is that of byte b.
struct Automaton {
  uint32_t n_columns = 0, start = 0;
  uint8_t column_of_byte[256] = {};
  std::vector<Move> moves;
  std::vector<bool> accepting;

  uint32_t n_states() const { return uint32_t(accepting.size()); }
  Move* row(uint32_t state) { return moves.data() + std::size_t(state) * n_columns; }
  const Move* row(uint32_t state) const { return moves.data() + std::size_t(state) * n_columns; }
};

}  // namespace blink::grammar

#endif  // BLINK_GRAMMAR_AUTOMATON_H
