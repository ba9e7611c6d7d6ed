/* Generated from grammar.h by scripts/generate_abi.py. Do not edit. */
// clang-format off
#define BLINK_GRAMMAR_LAYOUT_HASH 0x7859c1942dfe3129ull

#ifdef __cplusplus
#define BLINK_ASSERT static_assert
#else
#define BLINK_ASSERT _Static_assert
#endif
BLINK_ASSERT(sizeof(struct blink_grammar) == 288, "blink_grammar");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, magic) == 0, "blink_grammar.magic");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, words) == 4, "blink_grammar.words");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, n_states) == 8, "blink_grammar.n_states");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, n_columns) == 12, "blink_grammar.n_columns");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, n_returns) == 16, "blink_grammar.n_returns");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, start) == 20, "blink_grammar.start");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, stack_bound) == 24, "blink_grammar.stack_bound");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, reserved) == 28, "blink_grammar.reserved");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar, column_of_byte) == 32, "blink_grammar.column_of_byte");
BLINK_ASSERT(sizeof(struct blink_grammar_state) == 136, "blink_grammar_state");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_state, state) == 0, "blink_grammar_state.state");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_state, depth) == 4, "blink_grammar_state.depth");
BLINK_ASSERT(__builtin_offsetof(struct blink_grammar_state, stack) == 8, "blink_grammar_state.stack");
#undef BLINK_ASSERT

/* X(struct, member) for every member, in order. */
#define BLINK_GRAMMAR_MEMBERS(X) \
  X(blink_grammar, magic) \
  X(blink_grammar, words) \
  X(blink_grammar, n_states) \
  X(blink_grammar, n_columns) \
  X(blink_grammar, n_returns) \
  X(blink_grammar, start) \
  X(blink_grammar, stack_bound) \
  X(blink_grammar, reserved) \
  X(blink_grammar, column_of_byte) \
  X(blink_grammar_state, state) \
  X(blink_grammar_state, depth) \
  X(blink_grammar_state, stack)
// clang-format on
