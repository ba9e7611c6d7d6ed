/* The compiler of grammars: a program, which describes a language, becomes the block of ringbuffer/grammar.h. The
 * interface for Python (nic_frontend/grammar), whose abi.py is generated from this file.
 *
 * A program is 32-bit words: the number of nodes, that of rules, the nodes, and of each rule the number of its node,
 * with BLINK_GRAMMAR_GREEDY where the rule takes what it can, also where something else might take it. The answer is
 * rule 0. A node is its operation, the number of its arguments, and those; nodes among them come before
 * it. The languages are of bytes.
 */
#ifndef BLINK_GRAMMAR_COMPILER_H
#define BLINK_GRAMMAR_COMPILER_H

#include <stdint.h>

#ifdef __cplusplus
#define BLINK_GRAMMAR_EXPORT __attribute__((visibility("default")))
extern "C" {
#else
#define BLINK_GRAMMAR_EXPORT
#endif

enum blink_grammar_op {
  BLINK_GRAMMAR_OP_EMPTY = 0,     /* the empty text */
  BLINK_GRAMMAR_OP_NOTHING = 1,   /* no text at all */
  BLINK_GRAMMAR_OP_BYTES = 2,     /* the bytes, one a word */
  BLINK_GRAMMAR_OP_CHARS = 3,     /* in_json, then ranges (first, last): one character of Unicode of these, in UTF-8.
                                     in_json: as it stands in a string of JSON, escaped where it has to be */
  BLINK_GRAMMAR_OP_CAT = 4,       /* nodes: one after another */
  BLINK_GRAMMAR_OP_ALT = 5,       /* nodes: any of them */
  BLINK_GRAMMAR_OP_REPEAT = 6,    /* node, least, most: so many times. BLINK_GRAMMAR_NO_LIMIT: any number */
  BLINK_GRAMMAR_OP_CALL = 7,      /* rule */
  BLINK_GRAMMAR_OP_BEGIN = 8,     /* the empty text where nothing stands before it. In an operand of those below only */
  BLINK_GRAMMAR_OP_END = 9,       /* ... where nothing stands behind it */
  BLINK_GRAMMAR_OP_CLOSED = 10,   /* node, without calls: its language, as an automaton of its own */
  BLINK_GRAMMAR_OP_BOTH = 11,     /* two such nodes: what is in both */
  BLINK_GRAMMAR_OP_EXCEPT = 12,   /* two such nodes: what is in the first alone */
  BLINK_GRAMMAR_OP_UNTIL = 13,    /* bytes: any text without special tokens (ringbuffer/token_bytes.py) that ends with
                                     these, which may be one, and has them nowhere before */
  BLINK_GRAMMAR_OP_MULTIPLE = 14, /* a number and how many of its digits are behind the point: the decimal numbers,
                                     without leading zeros and with no more digits there, that it divides */
  BLINK_GRAMMAR_OP_MEMBERS = 15   /* separator, extra, members, then of each member whether it must be there: members in
                                     their order, at least one, and then any number of extras, with separators between
                                     them */
};
#define BLINK_GRAMMAR_NO_LIMIT 0xffffffffu
#define BLINK_GRAMMAR_GREEDY 0x80000000u

enum blink_grammar_status {
  BLINK_GRAMMAR_OK = 0,
  BLINK_GRAMMAR_TOO_MANY_STATES = 1, /* of the automaton, or on the way to it */
  BLINK_GRAMMAR_TOO_SLOW = 2,        /* to compile */
  BLINK_GRAMMAR_EMPTY_LANGUAGE = 3,  /* no text is in it */
  BLINK_GRAMMAR_LEFT_RECURSION = 4,  /* a rule begins with itself */
  BLINK_GRAMMAR_TOO_NESTED = 5,      /* every text needs a deeper stack than there is */
  BLINK_GRAMMAR_TOO_MANY_CALLS = 6,  /* places to which rules return */
  BLINK_GRAMMAR_TOO_LARGE = 7,       /* for `room` */
  BLINK_GRAMMAR_BAD_PROGRAM = 8,
  BLINK_GRAMMAR_TOO_DEEP = 9 /* expressions within expressions, or rules that begin with rules */
};

struct blink_grammar_limits {
  uint32_t moves;   /* of an automaton before it is made smaller, at most; likewise what follows */
  uint32_t nodes;   /* of the graph that it is made from */
  uint32_t time_ms; /* of this thread, for all stages together */
};

struct blink_grammar_result {
  uint32_t status; /* enum blink_grammar_status */
  uint32_t rule;   /* at fault, where there is one */
  uint32_t words;  /* of the block */
  uint32_t states; /* of the automaton */
};

/* Compiles a program into `block`, which has room for so many words. Thread-safe. */
BLINK_GRAMMAR_EXPORT void blink_grammar_compile(const uint32_t* program, uint32_t words,
                                                const struct blink_grammar_limits* limits, uint32_t* block,
                                                uint32_t room, struct blink_grammar_result* result);

/* Whether a text is in the language of rule 0, which calls no rule: BLINK_GRAMMAR_OK, BLINK_GRAMMAR_EMPTY_LANGUAGE if
 * it is not, or why that is not known. No automaton is made, but for operands that are within others. Thread-safe. */
BLINK_GRAMMAR_EXPORT uint32_t blink_grammar_match(const uint32_t* program, uint32_t words,
                                                  const struct blink_grammar_limits* limits, const uint8_t* text,
                                                  uint32_t length);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_GRAMMAR_COMPILER_H */
