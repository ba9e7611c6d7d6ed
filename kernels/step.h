/* A step: the contract between the scheduler, which decides what runs, and an engine, which runs it.
 *
 * The scheduler fills one of three step sets, launches the executable graph of a shape that is bound to that set, and
 * later reads the sampled tokens out of it. An engine (CUDA graphs on the GPU, a thread on the CPU) reads everything
 * that changes from step to step from these structures in device memory; nothing is planned on the host. README.md
 * numbers the invariants (E1..).
 *
 * Owners: S the scheduler, E the engine's kernels, B the backend's host process at start-up.
 */
#ifndef BLINK_STEP_H
#define BLINK_STEP_H

#include "../ringbuffer/grammar.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_STEP_SETS 3 /* step id runs on set id % 3 and on the third executable of its shape */
#define BLINK_MAX_EOS 8
#define BLINK_LOGPROB_WORDS 21        /* 1 + BLINK_MAX_LOGPROBS */
#define BLINK_NO_SEQUENCE 0xffffffffu /* in token_sequence: padding, every kernel skips it */
/* in out_token: the batch slot had no logit to sample from (ops/sampling/sample.h) */
#define BLINK_NO_TOKEN 0xffffffffu
#define BLINK_VOCAB_PARTS 8 /* of as many ids, the last of fewer: a block of a largest cluster samples from one */
#define BLINK_MOST_PLAIN 127
#define BLINK_NOT_PLAIN 255
#define BLINK_BYTE_CLASSES 24 /* classes of bytes that grammars usually allow together */
#define BLINK_WIDE_SETS 8     /* sets of several such classes */
#define BLINK_CLASS_SETS 32   /* with those of one class */
/* Maps of tokens (blink_vocabulary): the first of each kind. */
#define BLINK_MAP_FIRST 0
#define BLINK_MAP_REST 32
#define BLINK_MAP_NO_BYTES 64
#define BLINK_MAP_NOT_PLAIN 65
#define BLINK_MAPS 66
#define BLINK_MOST_TOKEN_BYTES 4095 /* a longer token counts as one that has none */
#define BLINK_DEAD_END 0xfffffffeu  /* likewise: its grammar allows no token, or none that may be sampled yet */
#define BLINK_MAX_DRAFTS 14         /* tokens that one step may check of a sequence, beside the one that it knows */
#define BLINK_RECENT_TOKENS 64      /* of a sequence that a logits processor sees */
#define BLINK_GRAMMAR_STATES 16     /* of a sequence: one for each row of a step, and the one from which they follow */

/* What a batch slot's logits are for. */
enum blink_emit {
  BLINK_EMIT_NOTHING = 0,  /* a chunk that does not end its prompt (E4) */
  BLINK_EMIT_TOKEN = 1,    /* a token is sampled */
  BLINK_EMIT_LOGPROBS = 2, /* how likely the prompt's next token was */
  BLINK_EMIT_CHECKED = 3   /* a token is sampled, to be compared with the draft that the history has there (E27) */
};

enum blink_step_kind { BLINK_STEP_DECODE = 0, BLINK_STEP_PREFILL = 1, BLINK_STEP_MIXED = 2, BLINK_STEP_COPY = 3 };

/* One captured graph. A decode step of n sequences uses n tokens and n batch slots (token i belongs to batch slot i). A
 * prefill step packs the prompts' chunks one after the other; each chunk is a batch slot. A mixed step has both, the
 * sequences that decode first.
 *
 * A verify step is a decode or mixed step in which a sequence that decodes may have several tokens: the one that is
 * known, and behind it drafts, guesses of what comes next, at consecutive positions. Each has a batch slot of its own,
 * which samples what comes behind it, so one step may find several tokens. Only shapes that `verify` run such steps.
 *
 * A copy step computes nothing. It moves KV pages between the device and host memory: its token i stands for a page
 * that is copied, from page token_sequence[i] to page token_position[i]. Pages from total_pages on are the host's. No
 * page is both read and written in one copy step, and none is written twice (E25). */
struct blink_shape {
  uint32_t kind;        /* enum blink_step_kind */
  uint32_t tokens;      /* capacity */
  uint32_t batch_slots; /* capacity */
  uint32_t verifies;    /* sequences that decode may have several tokens each (E27) */
};

struct blink_step_head {
  /* S, before the launch */
  uint64_t id; /* steps count from 1 and run in order of id */
  uint32_t kind;
  uint32_t shape;
  uint32_t n_tokens;   /* in use, <= shape.tokens; token_sequence of the rest is BLINK_NO_SEQUENCE */
  uint32_t batch_size; /* in use, <= shape.batch_slots */
  uint32_t n_decode;   /* the first tokens and batch slots, of sequences that decode: all of a decode step, none of a
                          prefill step */
  uint32_t has_drafts; /* a sequence that decodes has several tokens */
  uint32_t work;       /* what the step computes, in tokens that see no keys (S15) */
  uint8_t pad0[92];
  /* E */
  uint64_t start_ns;   /* %globaltimer when the step's gate opened */
  uint64_t sample_ns;  /* %globaltimer when its logits were there and sampling began */
  uint64_t done_ns;    /* %globaltimer just before `completed` was published */
  uint64_t fault;      /* not 0: the gate gave up waiting for step id - 1 */
  uint32_t slots_done; /* batch slots that the sampler has finished, or blocks that have copied; the last one resets it
                          and publishes */
  uint32_t processing[8]; /* by logits processor, the blocks or threads that are in it: where a step hangs */
  uint8_t pad1[60];
};

/* Arrays of one step set, in device memory, sized for the largest shape. They lie in one block, what S writes before
 * what E writes: token_sequence, token_position, batch_sequence, batch_first, batch_last, batch_emit, head, out_token,
 * out_logprobs.
 */
struct blink_step_set {
  struct blink_step_head* head;
  uint32_t* token_sequence; /* [tokens] S: the sequence of each token, or BLINK_NO_SEQUENCE */
  uint32_t* token_position; /* [tokens] S: its position in the sequence; its id is history[sequence][position] */
  uint32_t* batch_sequence; /* [batch_slots] S */
  uint32_t* batch_first;    /* [batch_slots] S: index in this step of the batch slot's first token; batch_last + 1
                               where the last is a token of another batch slot's, and its logits alone are wanted. In a
                               verify step, that of its sequence's first token (E27) */
  uint32_t* batch_last;     /* [batch_slots] S: ... of its last token, whose hidden state is sampled from */
  uint32_t* batch_emit;     /* [batch_slots] S: enum blink_emit */
  uint32_t* out_token; /* [batch_slots] E: the sampled token, also stored at history[sequence][position of batch_last +
                          1], but for one that is checked */
  uint64_t* out_logprobs; /* [batch_slots][BLINK_LOGPROB_WORDS] E: as many as the request asks for (extents.h) */
};

/* At most 32 tokens that begin with the same byte: neighbours in the order of the bytes of their part, of those that
 * are plain or of those that are not. */
struct blink_token_group {
  uint8_t prefix;      /* bytes with which all begin, at most 4 are told */
  uint8_t most_plain;  /* of its tokens, the largest number of plain characters; not plain: BLINK_NOT_PLAIN */
  uint8_t first_class; /* of the byte with which all begin */
  uint8_t reserved;
  uint32_t classes; /* of its tokens' bytes behind the first: a bit for each */
  uint32_t at;      /* lane i's token goes on in group_words[at + i], [at + 32 + i] and so on, little-endian */
  uint8_t bytes[4]; /* of the prefix */
};

/* The bytes of the vocabulary's tokens, for those who walk grammars (B). A token without bytes is never part of an
 * answer that has a grammar, but for one that ends it.
 *
 * A map has a bit for each token. Those of BLINK_MAP_FIRST are of tokens whose first byte is of a class in a set, one
 * map for each of the class_sets, and those of BLINK_MAP_REST of tokens that have such a byte behind the first. In all
 * maps, the bits of tokens without bytes, and of those that only fill the last words, are set. */
struct blink_vocabulary {
  uint32_t* first; /* [vocab_size + 1] token t has bytes[first[t]] .. bytes[first[t + 1]] */
  uint8_t* bytes;
  /* For the kernel, which looks at many tokens side by side (ops/sampling/token_mask.h) */
  uint8_t* plain;         /* [vocab_size, rounded up to 128] of a token of nothing but plain characters
                             (ringbuffer/grammar.h), their number; 0 of others, and where there are more than
                             BLINK_MOST_PLAIN */
  uint8_t* class_of_byte; /* [256] below BLINK_BYTE_CLASSES */
  uint32_t* class_sets;   /* [BLINK_CLASS_SETS] a bit for each class; BLINK_WIDE_SETS of several, then each alone */
  uint32_t* maps;         /* [BLINK_MAPS][vocab_size, rounded up to 128, / 32] */
  struct blink_token_group* groups; /* those of each part of the vocabulary one after the other */
  uint32_t* part_groups;            /* [BLINK_VOCAB_PARTS + 1] the first group of each part */
  uint32_t* group_tokens;           /* [groups][32][2] token:20 | bytes:12, and four bytes behind the told prefix */
  uint32_t* group_words;            /* the bytes of those tokens behind these four */
};

/* State per sequence (its place in memory while it is in the batch) that all steps share. */
struct blink_tables {
  uint32_t* history;               /* [n_sequences][max_context] token ids: prompt (S), then sampled tokens (E) */
  uint32_t* block_table;           /* [n_sequences][pages_per_sequence] page ids (S) */
  struct blink_descriptor* params; /* [n_sequences] the request as submitted (S): sampling, stop ids, prompt length */
  uint32_t* controls;              /* [n_sequences][control_words] what changes a request's logits (S; extents.h) */
  uint64_t* completed;             /* id of the last completed step (E), released after out_token (E1) */
  uint32_t n_sequences;            /* more than run together: the others hold requests that are about to */
  uint32_t max_context;
  uint32_t pages_per_sequence; /* ceil(max_context / page_size) */
  uint32_t page_size;          /* tokens, a power of two */
  uint32_t vocab_size;
  uint32_t control_words; /* of a sequence, at most */
  uint32_t n_eos;
  uint32_t eos[8];
  /* Of requests that have a grammar (ringbuffer/grammar.h) */
  uint32_t* grammars;   /* words (S); what lies there stays while a sequence that is named in a step has it (S21) */
  uint32_t* grammar_at; /* [n_sequences] where the sequence's begins, in words (S) */
  struct blink_grammar_state* grammar_states; /* [n_sequences][BLINK_GRAMMAR_STATES] (E): where its answer of n tokens
                                                 stands, at [n % BLINK_GRAMMAR_STATES], once a step has sampled what
                                                 comes behind these */
  struct blink_vocabulary vocabulary;
  /* Of requests that have logits processors (ops/sampling/logits_processors.h) */
  uint32_t n_processors;      /* BLINK_MAX_PROCESSORS at most (B) */
  uint32_t recent_processors; /* a bit for each that changes only the logits of recent tokens (B) */
  uint64_t* processors;       /* [n_processors] addresses of functions on the CPU (B); null on a GPU */
};

#ifdef __cplusplus
}
#endif

#include "step_layout.h"

#endif /* BLINK_STEP_H */
