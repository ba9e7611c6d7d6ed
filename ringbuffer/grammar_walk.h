/* Walks a grammar (grammar.h): C++ and CUDA, for the sampler, its reference, and whoever checks answers. */
#ifndef BLINK_GRAMMAR_WALK_H
#define BLINK_GRAMMAR_WALK_H

#include "grammar.h"
#include "words.h"

namespace blink {

/* The parts of a grammar. */
struct Grammar {
  const uint8_t* column_of_byte;
  const uint32_t* returns;
  const uint32_t* rows;
  uint32_t n_columns, start, stack_bound;

  explicit BLINK_WORD Grammar(const void* block) : Grammar(*static_cast<const struct blink_grammar*>(block)) {}
  explicit BLINK_WORD Grammar(const struct blink_grammar& head)
      : column_of_byte(head.column_of_byte),
        returns(reinterpret_cast<const uint32_t*>(&head + 1)),
        rows(returns + head.n_returns),
        n_columns(head.n_columns),
        start(head.start),
        stack_bound(head.stack_bound) {}

  BLINK_WORD const uint32_t* row(uint32_t state) const { return rows + uint64_t(state) * n_columns; }
  BLINK_WORD bool is_accepting(uint32_t state) const { return *row(state) & BLINK_GRAMMAR_ACCEPTING; }
  /* How many plain characters may follow in this state. */
  BLINK_WORD uint32_t plain(uint32_t state) const { return *row(state) & BLINK_GRAMMAR_ANY_PLAIN; }
};

/* What a walk has pushed, by its place on the stack. */
struct PushedStates {
  uint32_t at[BLINK_GRAMMAR_MAX_STACK];
};

/* A walk from where an answer stands, whose state it leaves as it is: many tokens are tried from one. Only what the
 * walk itself pushes is its own. */
class GrammarWalk {
 public:
  BLINK_WORD GrammarWalk(const Grammar& grammar, const struct blink_grammar_state& from, PushedStates& pushed)
      : grammar_(grammar), from_(from), pushed_(pushed), state_(from.state), depth_(from.depth), shared_(from.depth) {}

  /* False, and dead from then on, if the byte may not come here. */
  BLINK_WORD bool step(uint8_t byte) {
    const uint32_t column = grammar_.column_of_byte[byte];
    for (;;) {
      const uint32_t* row = grammar_.row(state_);
      const uint32_t move = row[column];
      if (move - 1 < BLINK_GRAMMAR_NEXT_MASK) { /* it neither calls nor needs room */
        state_ = move;
        return true;
      }
      if (move & BLINK_GRAMMAR_NEXT_MASK) return take(move);
      if (!(row[0] & BLINK_GRAMMAR_ACCEPTING) || depth_ == 0) return die();
      pop();
    }
  }

  /* False if it has died on the way. */
  BLINK_WORD bool step_all(const uint8_t* bytes, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i)
      if (!step(bytes[i])) return false;
    return state_ != 0;
  }

  /* Goes on in a state to which an equal walk came without a change of the stack. */
  BLINK_WORD void resume(uint32_t state) { state_ = state; }
  BLINK_WORD uint32_t state() const { return state_; }
  BLINK_WORD bool has_changed_stack() const { return shared_ != from_.depth || depth_ != from_.depth; }

  BLINK_WORD bool may_end() const {
    bool ends = grammar_.is_accepting(state_);
    for (uint32_t i = 0; i < depth_; ++i) ends = ends && grammar_.is_accepting(at(i));
    return ends;
  }

  /* Where the answer stands behind the walk. `to` may not be where it began. */
  BLINK_WORD void put(struct blink_grammar_state& to) const {
    to.state = state_;
    to.depth = depth_;
    for (uint32_t i = 0; i < depth_; ++i) to.stack[i] = at(i);
  }

 private:
  BLINK_WORD bool take(uint32_t move) {
    const uint32_t call = move >> BLINK_GRAMMAR_CALL_SHIFT;
    const uint32_t room = move >> BLINK_GRAMMAR_ROOM_SHIFT & BLINK_GRAMMAR_MAX_ROOM;
    if (depth_ + (call != 0) + room > grammar_.stack_bound) return die();
    if (call) pushed_.at[depth_++] = grammar_.returns[call];
    state_ = move & BLINK_GRAMMAR_NEXT_MASK;
    return true;
  }
  BLINK_WORD void pop() {
    state_ = at(--depth_);
    if (depth_ < shared_) shared_ = depth_;
  }
  BLINK_WORD bool die() {
    state_ = 0;
    depth_ = 0;
    return false;
  }
  BLINK_WORD uint32_t at(uint32_t i) const { return i < shared_ ? from_.stack[i] : pushed_.at[i]; }

  const Grammar& grammar_;
  const struct blink_grammar_state& from_;
  PushedStates& pushed_; /* apart, so that all else has a register */
  uint32_t state_, depth_;
  uint32_t shared_; /* states at the bottom of the stack that are still those of `from_` */
};

/* Where every answer begins. */
BLINK_WORD void begin_answer(const Grammar& grammar, struct blink_grammar_state& state) {
  state.state = grammar.start;
  state.depth = 0;
}

}  // namespace blink

#endif /* BLINK_GRAMMAR_WALK_H */
