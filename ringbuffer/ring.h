/* The ring: the one contract between the serving planes (paper section 4.2, "Ring buffer").
 *
 * One region of memory, in pinned host memory or GPU memory, that the frontend reaches with one-sided reads and writes
 * and the scheduler reaches with loads and stores. Valid as C11, C++17 and CUDA. The numpy view (abi.py) and the layout
 * assertions (ring_layout.h) are generated from this file by scripts/generate_abi.py; README.md beside it numbers the
 * invariants (R1..).
 *
 * Every field below names its owner, the only side that ever writes it (R1). Owners:
 *   B  the backend's host process, before it publishes `magic`; afterwards only `control`
 *   F  the frontend that holds the slot's lease
 *   S  the scheduler
 * A payload is written first, then one aligned 8-byte word publishes it with release order; the reader acquires that
 * word (R2).
 */
#ifndef BLINK_RING_H
#define BLINK_RING_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_MAGIC 0x474e49524b4e4c42ull /* "BLNKRING" in memory order */
#define BLINK_ABI_VERSION 2u
#define BLINK_MAX_LEASES 32u     /* frontends that can be attached at once */
#define BLINK_MAX_SLOTS 4096u    /* paper section 4.2; a slot's number fits 12 bits of the scheduler's bookkeeping */
#define BLINK_SLOT_ALIGNMENT 16u /* a lease owns whole 128-byte lines of request words */
#define BLINK_MAX_STOP_IDS 15u
#define BLINK_INLINE_RECORDS 6u
#define BLINK_MAX_COUNT 0xfffffu                    /* 20 bits: tokens in one answer, positions in a record */
#define BLINK_LEASE_BEAT_NS 50000000ull             /* a live frontend changes its lease word at least this often */
#define BLINK_LEASE_TIMEOUT_NS 1000000000ull        /* an unchanged lease word is reclaimed after this long */
#define BLINK_LONGEST_LEASE_NS 30000000000ull       /* ... or after what its frontend asked for, up to this long */
#define BLINK_HEARTBEAT_TIMEOUT_NS 2000000000ull    /* the backend is lost after this long without a beat */
#define BLINK_TORN_PAYLOAD_TIMEOUT_NS 1000000000ull /* a payload that stays torn this long is refused */
/* In GPU memory: a shorter host-to-device copy of another process waits a time slice behind the persistent kernel. A
 * short prompt that has this much room is copied in this size (nic_frontend/README.md, U2). */
#define BLINK_COPY_ENGINE_BYTES 32768u
#define BLINK_MAX_LOGPROBS 20u /* of the likeliest tokens, beside a token's own */
#define BLINK_MAX_BIASES 1024u /* logits of one request that are changed */
#define BLINK_MAX_BAN_WORDS 2048u
#define BLINK_BAN_END 0x80000000u
#define BLINK_MAX_PROCESSORS 8u       /* logits processors that a backend has */
#define BLINK_MAX_ASKED_PROCESSORS 4u /* of one request */
#define BLINK_PROCESSOR_ARGS 8u       /* numbers that a request gives each of them */
#define BLINK_PROCESSOR_WORDS 9u      /* of the controls, for each: its index, and these numbers */
#define BLINK_PROMPT_GRANULE 32u      /* tokens in a 128-byte line: ranges of the prompts' heap are whole lines */
#define BLINK_OUTPUT_GRANULE 16u      /* records in one, likewise of the outputs' heap */

/* Life cycle of a slot (paper section 4.2). The frontend moves EMPTY -> submitted by publishing a request word whose
 * sequence is one more than the status word's; every state below is published by the scheduler.
 *
 *   EMPTY --SUBMIT--> PREFILL_PENDING --admit--> PREFILL_PROCESSING --first token--> DECODE_PROCESSING
 *   DECODE_PROCESSING, PREFILL_PROCESSING --pages exhausted--> DECODE_PAUSED --readmit--> PREFILL_PROCESSING
 *   any of these --finish, CANCEL, error--> DECODE_COMPLETED --RELEASE or lease lost--> EMPTY
 */
enum blink_state {
  BLINK_STATE_EMPTY = 0,
  BLINK_STATE_PREFILL_PENDING = 1,
  BLINK_STATE_PREFILL_PROCESSING = 2,
  BLINK_STATE_DECODE_PROCESSING = 3,
  BLINK_STATE_DECODE_PAUSED = 4,
  BLINK_STATE_DECODE_COMPLETED = 5
};

enum blink_command {
  BLINK_COMMAND_NONE = 0,
  BLINK_COMMAND_SUBMIT = 1,
  BLINK_COMMAND_CANCEL = 2,
  BLINK_COMMAND_RELEASE = 3
};

/* Why a slot is DECODE_COMPLETED. Reasons from ERROR_FIRST on are failures of this request alone (R7). */
enum blink_reason {
  BLINK_REASON_NONE = 0,
  BLINK_REASON_EOS = 1,       /* the model's end token; it is the last record */
  BLINK_REASON_STOP_ID = 2,   /* one of the request's stop ids; it is the last record */
  BLINK_REASON_LENGTH = 3,    /* max_tokens or the context limit */
  BLINK_REASON_CANCELLED = 4, /* CANCEL, or the lease was lost */
  BLINK_REASON_ERROR_FIRST = 16,
  BLINK_REASON_BAD_CHECKSUM = 16, /* the payload was torn for too long (R4), or changed while the request was paused */
  BLINK_REASON_EMPTY_PROMPT = 17,
  BLINK_REASON_PROMPT_TOO_LONG = 18, /* prompt leaves no room for one token in the context, or in the KV cache */
  BLINK_REASON_BAD_TOKEN = 19,       /* a prompt token outside the vocabulary */
  BLINK_REASON_BAD_PARAMETER = 20,   /* a sampling parameter outside its range */
  BLINK_REASON_SHUTTING_DOWN = 21,   /* submitted while the backend drains */
  BLINK_REASON_ENGINE_FAULT = 22,    /* the engine failed; the scheduler is in BLINK_PHASE_FAILED */
  BLINK_REASON_NUMERICAL_FAULT = 23, /* logits all NaN or -infinity, or but for masked ends: no token to sample */
  BLINK_REASON_BAD_RANGE = 24,       /* prompt, grammar or answer lie, in whole or in part, outside the lease's heaps */
  BLINK_REASON_BAD_GRAMMAR = 25,     /* the words are no grammar (grammar.h), or more than this backend has room for */
  BLINK_REASON_GRAMMAR_DEAD_END = 26 /* no token goes on with the answer as its grammar wants, and it may not end yet */
};

enum blink_phase {
  BLINK_PHASE_STARTING = 0,
  BLINK_PHASE_SERVING = 1,
  BLINK_PHASE_DRAINING = 2,
  BLINK_PHASE_STOPPED = 3,
  BLINK_PHASE_FAILED = 4
};

/* What the scheduler was doing when it entered FAILED, and what `fault_detail` then says (fault.py tells it in words).
 */
enum blink_fault {
  BLINK_FAULT_NONE = 0,
  BLINK_FAULT_LAUNCH = 1,   /* a step was refused for too long: the runtime's error code */
  BLINK_FAULT_STEP = 2,     /* a step did not complete in time: its id */
  BLINK_FAULT_GATE = 3,     /* a step's gate gave up waiting for the step before it: its id */
  BLINK_FAULT_RELAUNCH = 4, /* the kernel could not launch itself again: the runtime's error code */
  BLINK_FAULT_TOKEN = 5,    /* a step sampled a token outside the vocabulary: its id */
  BLINK_FAULT_DEVICE = 6,   /* the GPU failed, and the scheduler with it: the driver's error code */
  BLINK_FAULT_PROCESSOR = 7 /* a step did not complete in time, within a logits processor: its index */
};

enum blink_control { BLINK_CONTROL_RUN = 0, BLINK_CONTROL_DRAIN = 1, BLINK_CONTROL_STOP = 2 };

enum blink_lease_state { BLINK_LEASE_FREE = 0, BLINK_LEASE_GRANTED = 1, BLINK_LEASE_RECLAIMED = 2 };

enum blink_request_flags { BLINK_FLAG_IGNORE_EOS = 1, BLINK_FLAG_ALLOWS = 2 };

/* What happened to a block of the prefix cache (README.md, "KV events"). */
enum blink_kv_event_kind {
  BLINK_KV_EVENT_STORED = 1,  /* it can be found from now on, if its parent can */
  BLINK_KV_EVENT_REMOVED = 2, /* it cannot any more, nor can those that follow it */
  BLINK_KV_EVENT_CLEARED = 3, /* forget all that was told: everything is told anew, for now in no order */
  BLINK_KV_EVENT_COMPLETE = 4 /* everything has been told; from now on a block comes behind its parent */
};
#define BLINK_NO_BLOCK 0xffffffffffffffffull /* the parent of a block that has none */

/* Words. Each is written whole, with one 8-byte store.
 *   request word  (F)  sequence:32 | command:8 | epoch:24          epoch = low bits of the lease epoch
 *   status word   (S)  sequence:32 | state:4 | reason:8 | count:20 count = output records published so far
 *   output record (S)  token:32 | position:20 | sequence:12        position counts from 0; sequence = low bits
 *   lease word    (F)  epoch:32 | beat:32                          epoch 0 means unused
 *   lease ack     (S)  epoch:32 | lease_state:32
 *   event word  (F, S) attachment:16 | count:48                    attachment 0 means that nobody reads
 */
#define BLINK_EPOCH_MASK 0xffffffu

#include "statistics.h"

struct blink_header {
  /* B, constant after `magic` is published */
  uint64_t magic;
  uint64_t layout_hash; /* hash of this file's layout: a frontend built from another ring.h must not attach */
  uint32_t abi_version;
  uint32_t backend_pid;
  uint64_t region_bytes;
  uint32_t n_slots;  /* multiple of n_leases * BLINK_SLOT_ALIGNMENT; lease i owns [i, i + 1) * n_slots / n_leases */
  uint32_t n_leases; /* 1..BLINK_MAX_LEASES */
  uint32_t
      prompt_heap; /* tokens, a multiple of BLINK_PROMPT_GRANULE; lease i owns [i, i + 1) * prompt_heap of prompts */
  uint32_t
      output_heap; /* records, a multiple of BLINK_OUTPUT_GRANULE; lease i owns [i, i + 1) * output_heap of outputs */
  uint64_t leases_offset; /* byte offsets from the start of the region, each a multiple of 4096 */
  uint64_t lease_acks_offset;
  uint64_t requests_offset;
  uint64_t descriptors_offset;
  uint64_t progress_offset;
  uint64_t prompts_offset;
  uint64_t outputs_offset;
  uint32_t vocab_size;
  uint32_t max_context; /* prompt and answer together, tokens */
  uint32_t max_batch;
  uint32_t total_pages;
  uint32_t page_size;         /* tokens */
  uint32_t max_grammar_words; /* of one grammar; 0: this backend takes none */
  uint8_t fingerprint[32];    /* SHA-256 over the model's config and tokenizer: both planes must serve the same model */
  uint8_t model_name[64];     /* UTF-8, zero-padded */
  uint8_t device_name[64];    /* UTF-8, zero-padded: "NVIDIA H200", "cpu" */
  uint64_t kv_events_offset;  /* struct blink_kv_events, and the records behind it */
  uint32_t kv_event_capacity; /* records; 0: this backend tells no KV events */
  uint32_t kv_event_bytes;    /* from one record to the next, its tokens included; a multiple of 64 */
  uint32_t max_prefill_tokens; /* prompt tokens in one step; 0: not told */
  uint32_t priorities;         /* 0: this backend serves all requests as if their priority were 0 */
  uint32_t n_eos;
  uint32_t eos[8];              /* the tokens that end an answer, n_eos of them (BLINK_MAX_EOS of kernels/step.h) */
  uint8_t processor_names[256]; /* of the logits processors, in order, each with '\n' behind it; zero-padded */
  uint8_t pad0[164];
  /* B */
  uint64_t control; /* enum blink_control */
  uint8_t pad1[120];
  /* S, and B in its place once the GPU has failed and the scheduler is no more */
  uint64_t phase;        /* enum blink_phase */
  uint64_t heartbeat;    /* changes while the scheduler lives */
  uint64_t fault;        /* enum blink_fault */
  uint64_t fault_detail; /* the runtime's error code or the step's id, as enum blink_fault says */
  uint8_t pad2[96];
  struct blink_stats stats;
  uint64_t pad3[15];
  struct blink_shown_step steps[64]; /* BLINK_SHOWN_STEPS */
};

/* (F) one line each: nobody else writes it. */
struct blink_lease {
  uint64_t word;
  uint64_t timeout_ns; /* how long `word` may stand still; there before it has the new epoch. 0: the least */
  uint8_t pad[112];
};

/* (S) */
struct blink_lease_ack {
  uint64_t word;
  uint8_t pad[120];
};

/* (F) what a request asks for. `sequence` and `epoch` say which request's it is: all 32 bits of the lease's epoch, of
 * which the request word has 24. `crc32c` covers the bytes before it, then the prompt's tokens and the controls,
 * little-endian (R4). extents.h says what lies where in the ranges. */
struct blink_descriptor {
  uint32_t sequence; /* with `epoch` one aligned 8-byte word, as `ticket` is with `client`: each is read by one load */
  uint32_t epoch;
  uint32_t prompt_tokens;
  uint32_t max_tokens; /* output tokens, at least 1 */
  uint64_t seed;
  uint64_t salt[2];         /* requests share cached keys and values only where these are equal */
  float temperature;        /* >= 0; 0 is greedy */
  float top_p;              /* (0, 1]; 1 is off */
  float min_p;              /* [0, 1]; 0 is off */
  uint32_t top_k;           /* 0 is off */
  float repetition_penalty; /* > 0; 1 is off */
  float presence_penalty;   /* 0 is off */
  float frequency_penalty;  /* 0 is off */
  int8_t priority;          /* lower is more urgent (S2); any number is one, and of effect where the header says so */
  uint8_t n_processors;     /* of the controls */
  uint16_t flags;           /* enum blink_request_flags */
  uint32_t ticket;          /* order of submission within this lease, wrapping */
  uint32_t client;          /* for whom: clients take turns, whatever their leases; any number, the same for the same */
  uint32_t min_tokens;      /* end and stop ids are not sampled before this many output tokens */
  uint32_t n_stop_ids;
  uint32_t stop_ids[15];
  /* What the frontend has reserved of its lease's heaps, until the slot is EMPTY again: offsets count from the start of
   * the lease's part. The scheduler reads and writes nothing else of them for this request. */
  uint32_t prompt_offset; /* tokens */
  uint32_t prompt_room;   /* tokens, at least prompt_tokens and the controls */
  uint32_t output_offset; /* records */
  uint32_t output_room;   /* records, at least 1: the answer ends where they do */
  uint32_t logprob_words; /* behind the records, of each token of the answer: 1 and those of the likeliest; 0: none */
  uint32_t prompt_logprob_words; /* and then of each token of the prompt, likewise */
  uint32_t n_biases;             /* of the controls, with BLINK_FLAG_ALLOWS for the mask */
  uint32_t ban_words;
  /* What the answer may be (grammar.h). Requests of a lease may have the same range and name: whoever gives other words
   * that name while the lease's epoch lasts does not know which of them such a request is held to. */
  uint32_t grammar_offset; /* in the heap of prompts, like `prompt_offset`; 0 where there is none, and likewise below */
  uint32_t grammar_words;
  uint32_t grammar_name;
  uint32_t grammar_crc32c; /* of these words */
  uint32_t crc32c;         /* the last word */
};

/* (S) one bulk read of this table usually tells a frontend all that is new (paper section 4.4, "Token reader"). */
struct blink_progress {
  uint64_t status;
  uint64_t prefix;     /* sequence:32 | prompt tokens that were cached:32; there before the first record is */
  uint64_t records[6]; /* record of position p is also at records[p % 6] */
};

/* The log of KV events: one word of each side, then `kv_event_capacity` records. */
struct blink_kv_events {
  uint64_t reader; /* (F) event word of the one process that reads them: who it is, and records that it has read */
  uint8_t pad0[120];
  uint64_t written; /* (S) event word: whom the records are for, and how many have been written for it */
  uint8_t pad1[120];
};

/* (S) record number n is at [n % kv_event_capacity], and its page_size tokens, 4 bytes each, stand behind it. */
struct blink_kv_event {
  uint64_t word;    /* event word: whom it is for, and its number, from 0 */
  uint64_t kind;    /* enum blink_kv_event_kind */
  uint64_t block;   /* names one block and never another */
  uint64_t parent;  /* the block before it, or BLINK_NO_BLOCK */
  uint64_t salt[2]; /* as in the descriptor of the request that computed it */
};

#ifdef __cplusplus
}
#endif

#include "ring_layout.h"

#endif /* BLINK_RING_H */
