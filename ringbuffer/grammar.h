/* A grammar: a deterministic automaton over bytes with a bounded stack, which says what an answer may be.
 *
 * A frontend compiles it and puts it into its lease's heap of prompts (ring.h, blink_descriptor). It knows nothing of a
 * vocabulary: whoever walks it feeds it the bytes of tokens. It is one block of 32-bit words, little-endian:
 *
 *   struct blink_grammar                 the header
 *   uint32_t returns[n_returns]          states; returns[0] is not used
 *   uint32_t rows[n_states][n_columns]   of each state, its own word and one move for each class of bytes
 *
 * State 0 is dead: its row is zero, and a move to it is none. grammar_walk.h walks.
 *
 *   state word (column 0)   accepting:1 | 0:15 | plain:16
 *   move (other columns)    call:12 | room:4 | next:16
 *
 * A move goes to state `next`. If `call` is not 0, it first pushes the state returns[call], at which the walk goes on
 * when what it enters has ended: it consumes the byte, and `next` is within what is entered. Where a state has no move
 * for a byte, is accepting, and the stack is not empty, the walk pops a state and looks for a move of that one. An
 * answer may end when the state and all on the stack are accepting.
 *
 * `room` says how many more states have to be pushed at least, from behind the move until the answer can end (for a
 * move that calls, what is pushed by itself does not count). A move for which the stack has no such room is none, so a
 * walk that lives can always be ended.
 *
 * `plain` says how many plain characters may follow in this state, in any choice, without the walk dying;
 * BLINK_GRAMMAR_ANY_PLAIN: any number. Plain are all characters of Unicode, in UTF-8, but U+0000 to U+001F, the double
 * quote and the backslash. It only saves time. 0 is always right.
 */
#ifndef BLINK_GRAMMAR_H
#define BLINK_GRAMMAR_H

#include "ring.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_GRAMMAR_MAGIC 0x314d5247u /* "GRM1" in memory order */
#define BLINK_GRAMMAR_MAX_STATES 65536u
#define BLINK_GRAMMAR_MAX_RETURNS 4096u
#define BLINK_GRAMMAR_MAX_STACK 32u
#define BLINK_GRAMMAR_ACCEPTING 0x80000000u /* in a state word */
#define BLINK_GRAMMAR_ANY_PLAIN 0xffffu     /* in a state word's `plain` */
#define BLINK_GRAMMAR_MAX_ROOM 15u
#define BLINK_GRAMMAR_NEXT_MASK 0xffffu
#define BLINK_GRAMMAR_ROOM_SHIFT 16u
#define BLINK_GRAMMAR_CALL_SHIFT 20u

struct blink_grammar {
  uint32_t magic;
  uint32_t words; /* of the whole block, this header included */
  uint32_t n_states;
  uint32_t n_columns;          /* of a row: 1 and the classes of bytes, 2 to 256 */
  uint32_t n_returns;          /* at least 1 */
  uint32_t start;              /* a state, not 0 */
  uint32_t stack_bound;        /* states on the stack at most */
  uint32_t reserved;           /* 0 */
  uint8_t column_of_byte[256]; /* from 1 on: the class of each byte, as a column of the rows */
};

/* Where an answer stands in its grammar. */
struct blink_grammar_state {
  uint32_t state; /* 0: the walk has died */
  uint32_t depth; /* states on the stack */
  uint32_t stack[32];
};

#ifdef __cplusplus
}
#endif

#include "grammar_layout.h"

#endif /* BLINK_GRAMMAR_H */
