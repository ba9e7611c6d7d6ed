/* What the scheduler is given and what it remembers. Everything lives in device memory, because a tail relaunch starts
 * the kernel anew and keeps nothing else (paper section 4.2, "window-based tail-launch recovery"; README.md, S8).
 */
#ifndef BLINK_SCHEDULER_STATE_H
#define BLINK_SCHEDULER_STATE_H

#include "../step.h"
#include "constants.h"

#ifdef __cplusplus
extern "C" {
#endif

enum blink_sequence_use {
  BLINK_SEQUENCE_FREE = 0,
  BLINK_SEQUENCE_ACTIVE = 1,
  BLINK_SEQUENCE_ZOMBIE = 2,
  BLINK_SEQUENCE_STAGED = 3 /* a waiting request, checked and on the device: no pages yet, and in no step (S13) */
};

/* A slot's request, as the scheduler knows it. */
struct blink_request {
  uint64_t arrival;        /* claim:39 | order within the claim:13 | slot:12. Smaller is older; kept when paused */
  uint64_t torn_since_ns;  /* when the payload was first found torn; 0: never */
  uint64_t torn_last_ns;   /* ... and last */
  uint64_t output_at;      /* of the answer in the ring's heaps, as admitted; likewise output_room and what follows */
  uint32_t submission;     /* its sequence */
  uint32_t epoch;          /* the lease's when it was submitted: its payload carries both (R4) */
  uint32_t state;          /* enum blink_state: as published, or about to be (conclude.h) */
  uint32_t sequence_index; /* BLINK_NO_SEQUENCE while it waits and is not staged */
  uint32_t prompt_tokens;
  uint32_t max_outputs; /* max_tokens, limited to what the context, the KV cache and the answer's range hold */
  uint32_t generated;   /* output records in its answer */
  uint32_t crc32c;      /* of the payload that was admitted: a paused request resumes from no other */
  uint32_t output_room;
  uint32_t logprob_words;
  uint32_t prompt_logprob_words;
  uint32_t cached;    /* tokens of its prompt that the prefix cache had */
  uint32_t restarted; /* it was paused before its first token: what it finds now it may have computed itself */
  uint32_t client;    /* for whom, as its descriptor says */
  uint32_t placed; /* 0: its descriptor could not be read when it was submitted: it arrives when its payload is whole */
  int32_t priority; /* as its descriptor says, where that is of effect: lower ones come before higher ones (S2) */
  uint32_t reason;  /* why it has ended */
  uint32_t reserved;
};

/* A sequence's place in the batch. `fed` counts the tokens of all steps planned so far, so it runs ahead of what has
 * completed. */
struct blink_sequence {
  uint64_t last_step; /* the last planned step that includes the sequence: pages stay until it has completed (S5) */
  uint32_t use;       /* enum blink_sequence_use */
  uint32_t slot;
  uint32_t fed;
  uint32_t prefill_end; /* tokens known at admission: the sequence prefills while fed < prefill_end, then decodes */
  uint32_t n_pages;
  uint32_t faulty; /* its keys and values may be no numbers, and are about to be forgotten */
  /* Of the prefix cache (prefix.h) */
  uint32_t filled; /* leading pages that tokens which it decoded have filled: those from n_linked on are to be linked */
  uint32_t unshown;    /* its request's state has changed, and its frontend does not see that yet (conclude.h) */
  uint64_t prefix_sum; /* of the tokens of its linked pages, and of its salt */
  uint64_t link;       /* the content of the last of these, as the prefix cache knows it; 0: none is linked */
  uint32_t n_linked;   /* leading pages that the prefix cache has or had: this sequence's, or equal ones */
  uint32_t awaits; /* a page that this one needs, and an earlier one computes or host memory has, or BLINK_NO_PAGE */
  uint32_t cached; /* tokens that were found instead of computed */
  uint32_t considered; /* the plan that is being made has thought of giving its prompt tokens */
  uint32_t scored;     /* how likely each token of its prompt was is told, so all of them are computed (S22) */
  uint32_t grammar;    /* its request's (grammars.h), or BLINK_NO_GRAMMAR: it has none, or not yet */
  uint32_t client;     /* of its request */
  uint32_t behind;     /* prompts of this client that the plan has considered */
  /* Of speculation (drafts.h) */
  uint32_t indexed;    /* tokens of its history, behind which drafts can be looked up */
  uint32_t n_drafts;   /* in the step that is planned or in flight */
  uint32_t acceptance; /* the chance that a draft is accepted if those before it are, as seen lately, in 2^-16 */
  uint32_t unchecked;  /* steps since its drafts were checked last, where there were any */
  uint32_t source;     /* where in its history its next drafts stand, if no better place is found; 0: nowhere */
  uint32_t misses;     /* of the last steps with drafts, those that have accepted none */
};

/* What clients have had and have (clients.h): each client is counted in two of these, of which the smaller is true. */
struct blink_client_count {
  uint64_t turn;   /* when one of them last had a request admitted, as in arrivals */
  uint32_t places; /* in the batch */
  uint32_t reserved;
};

/* A KV page (pages.h), and what it holds where the prefix cache can find it (prefix_index.h). Pages from total_pages on
 * lie in host memory (copies.h). */
struct blink_page {
  uint64_t sum;     /* of all tokens up to its end, and of the salt: it is found under its hash */
  uint64_t salt[2]; /* of the requests that may share it */
  uint64_t ready;   /* its contents are there when this step has completed */
  uint64_t queued;  /* while it is idle: its place in the line of the idle ones */
  uint64_t content; /* names what it holds, wherever that is copied to: never given twice, never 0 */
  uint64_t parent;  /* the content of the page before it; 0: it is the first */
  uint32_t users;   /* entries of block tables that name it */
  uint32_t entry;   /* its place in the index, or BLINK_NO_PAGE: it cannot be found */
  uint32_t depth;   /* pages before it in the sequence */
  uint32_t copy;    /* the page on the other side, host or device, with the same content, or BLINK_NO_PAGE */
};

/* A payload that is longer than a turn of the loop may read, and how far it has been read (S18). */
struct blink_staging {
  uint64_t arrival;  /* of its request; 0: there is none */
  uint32_t sequence; /* where it goes: FREE until the payload has matched */
  uint32_t done;     /* words of the payload, and behind them records of a paused request's answer */
  uint32_t crc;      /* of those words, as in crc32c.h */
  uint32_t wrong;    /* what has been found wrong with them (staging.h) */
};

/* A grammar in device memory (grammars.h). What its frontend calls it, and what its words are, tells it from others. */
struct blink_grammar_place {
  uint64_t used; /* counts the times that any was taken: when this one last was */
  uint32_t lease;
  uint32_t epoch;
  uint32_t name;
  uint32_t crc32c;
  uint32_t at;     /* in words */
  uint32_t words;  /* 0: the place is free */
  uint32_t whole;  /* it has been read and is good */
  uint32_t users;  /* sequences ACTIVE or ZOMBIE that have it */
  uint32_t staged; /* sequences STAGED that have it */
  uint32_t reserved;
};

/* The grammar that is being read, and how far it has been. */
struct blink_grammar_reading {
  uint64_t arrival; /* of the request that wants it; 0: there is none */
  uint32_t sequence;
  uint32_t place;
  uint32_t done;  /* words */
  uint32_t crc;   /* of those, as in crc32c.h */
  uint32_t wrong; /* they are no grammar */
  uint32_t reserved;
};

struct blink_lease_record {
  uint64_t word;
  uint64_t changed_ns;
  uint32_t epoch;  /* granted or reclaimed last */
  uint32_t state;  /* enum blink_lease_state */
  uint32_t ticket; /* the newest of the last claim that had any: orders the next claim's submissions */
  uint32_t newest; /* of the claim under way, as ticket_order says; 0: none yet */
};

/* Times per shape: `expected_ns` decides when the next step is armed, `usual_ns` how many drafts are worth their rows
 * (drafts.h), the sums are for benchmarks. */
struct blink_shape_time {
  uint64_t expected_ns;
  uint64_t total_ns;
  uint64_t steps;
  uint64_t usual_ns;  /* from the end of the step before to the end of this one; the last ones count most */
  uint64_t last_step; /* the id of the last one that was counted */
};

/* What mixed steps took, of which the last ones count most (step_times.h): sums over steps, of the work w in each, in
 * 1,024 tokens, and of their microseconds t. */
struct blink_mixed_times {
  float n, w, ww, t, wt;
};

/* What one step was and when, for benchmarks: at [id % BLINK_TRACE_STEPS]. The engine's clock and the scheduler's are
 * the same unless a host drives a GPU. */
struct blink_step_trace {
  uint64_t id;
  uint64_t start_ns; /* the engine's clock, as in blink_step_head */
  uint64_t sample_ns;
  uint64_t done_ns;
  uint64_t turn_ns;     /* the scheduler's clock: the turn of its loop that launched the step began */
  uint64_t chosen_ns;   /* ... its drafts had been chosen, if sequences decode in it; 0: there is no speculation */
  uint64_t launched_ns; /* ... the launch had been made */
  uint64_t seen_ns;     /* ... the turn that took its results began */
  uint32_t kind;
  uint32_t batch_size;
};

/* Of the KV events (kv_events.h). */
struct blink_kv_event_state {
  uint64_t head; /* the queue of what is to be written: places from the head to the tail, which only grow */
  uint64_t tail;
  uint64_t written;    /* records, for this attachment of a reader */
  uint64_t read;       /* ... and read */
  uint32_t attachment; /* whom they are for; 0: nobody */
  uint32_t following;  /* what happens is queued up; else a new round begins when the reader has read everything */
  uint32_t round;      /* counts the times that everything was told anew */
  uint32_t swept;      /* pages that this round has looked at */
};

struct blink_scheduler_state {
  uint64_t launched;  /* id of the last step launched */
  uint64_t committed; /* id of the last step whose results were taken; launched - committed is 0, 1 or 2 (S4) */
  uint64_t claims;    /* scans that found a submission, and turns that clients had: the clock of arrivals and turns */
  uint64_t last_done_ns;
  uint64_t turn_ns;          /* when the last turn of the loop began, by the clock of the execution that has ended */
  uint64_t running_since_ns; /* when the last step began, likewise */
  uint64_t fault;            /* enum blink_fault */
  uint64_t fault_detail;
  uint32_t phase;        /* enum blink_phase */
  uint32_t last_kind;    /* of the last step launched */
  uint32_t n_free_pages; /* of the stack (pages.h) */
  uint32_t n_idle_pages; /* of the prefix cache, in nobody's use */
  uint32_t n_waiting;    /* requests PREFILL_PENDING or DECODE_PAUSED */
  uint32_t n_active;     /* sequences ACTIVE */
  uint32_t n_zombies;    /* sequences ZOMBIE */
  uint32_t n_staged;     /* sequences STAGED */
  uint32_t planned;      /* step launched + 1 is planned and waits for the next execution to launch it */
  uint32_t reserved;
  uint64_t idle_head; /* the line of the idle pages: places from the head to the tail, which only grow */
  uint64_t idle_tail;
  uint64_t contents;      /* names that were given to pages' contents */
  uint64_t written;       /* up to this place of the line, idle pages have had a copy made in host memory (S19) */
  uint64_t host_copies;   /* pages that were copied to host memory, in all */
  uint64_t brought_back;  /* ... and back */
  uint64_t ended_prompts; /* tokens of requests that ended with an answer, the last ones counting most (S15) */
  uint64_t ended_outputs;
  uint64_t decode_ns; /* what the last decode steps took; 0: none has run */
  struct blink_mixed_times mixed_times;
  uint32_t rests; /* steps that are still planned without a part of a very long prompt (S15) */
  struct blink_kv_event_state kv_events;
  uint64_t plan_ns[2]; /* what a turn of the loop that plans and launches a step takes: without prompts, with */
  struct blink_staging staging;
  struct blink_grammar_reading grammar_reading;
  uint64_t grammar_uses; /* times that a grammar was taken */
  struct blink_stats stats;
  struct blink_lease_record leases[32];
  struct blink_client_count clients[4096];
  uint64_t gap_histogram[512]; /* completion of a step to the first instruction of the next, while there was work */
};

/* Set once by the backend's host process and passed to the kernel by value. Pointers are addresses in the scheduler's
 * memory; the ring's geometry stands here so that it is not read across PCIe. */
struct blink_scheduler_config {
  struct blink_header* header;
  struct blink_lease* leases;
  struct blink_lease_ack* lease_acks;
  uint64_t* request_words;
  struct blink_descriptor* descriptors;
  struct blink_progress* progress;
  uint32_t* prompts;
  uint64_t* outputs;
  uint32_t n_slots;
  uint32_t n_leases;
  uint32_t prompt_heap; /* tokens of a lease's part */
  uint32_t output_heap; /* records, likewise */
  struct blink_tables tables;
  struct blink_step_set sets[3];
  struct blink_shape* shapes; /* [n_shapes] */
  uint64_t* executables;      /* [n_shapes][BLINK_STEP_SETS] graph handles; null where a host launches */
  uint32_t* decode_lookup;    /* [max_batch + 1] the tightest shape for n sequences */
  uint32_t* prefill_lookup;   /* [ceil(max_prefill_tokens / BLINK_TOKEN_GRANULE) + 1] ... for n tokens, rounded up */
  uint32_t* mixed_lookup;     /* [ceil(max_mixed_tokens / BLINK_TOKEN_GRANULE) + 1] ... of the fewest batch slots */
  uint32_t* verify_lookup;    /* [max_verify_rows + 1] the tightest shape that verifies, for n tokens */
  uint64_t* seen;             /* [n_slots] the last request word acted upon */
  struct blink_request* requests;    /* [n_slots] */
  struct blink_sequence* sequences;  /* [tables.n_sequences] */
  uint32_t* free_pages;              /* [total_pages] a stack, n_free_pages high (pages.h) */
  struct blink_page* pages;          /* [total_pages + host_pages] */
  uint32_t* page_tokens;             /* [total_pages + host_pages][page_size] of pages that can be found */
  uint32_t* page_index;              /* [n_index] where pages can be found (prefix_index.h) */
  uint32_t* idle_pages;              /* [n_idle] the line of the idle ones: place i is at i % n_idle */
  struct blink_kv_events* kv_events; /* in the ring, records behind it */
  uint64_t*
      kv_event_queue;      /* [n_kv_event_queue] what is to be told (kv_events.h): place i is at i % n_kv_event_queue */
  uint32_t* kv_event_told; /* [total_pages] the round in which a page was queued up as stored */
  struct blink_grammar_place* grammar_places; /* [n_grammar_places] */
  struct blink_shape_time* shape_times;       /* [n_shapes] */
  struct blink_step_trace* trace;             /* [BLINK_TRACE_STEPS] */
  struct blink_scheduler_state* state;
  uint32_t n_shapes;
  uint32_t total_pages;
  uint32_t max_prefill_tokens; /* of prompts in one step */
  uint32_t max_prefill_slots;
  uint32_t max_mixed_tokens;  /* of prompts and sequences that decode, more than max_batch; its batch slots suffice for
                                 both */
  uint32_t mixed_share;       /* of prompts in a mixed step, at least, where there are as many (S15) */
  uint32_t max_batch;         /* sequences that run together; the rest of tables.n_sequences are for staging */
  uint32_t n_index;           /* a power of two, at least 4 * (total_pages + host_pages) */
  uint32_t n_idle;            /* a power of two, at least 2 * total_pages */
  uint32_t prefix_cache;      /* 0: nothing is found, and no page outlives its sequence */
  uint32_t attention_keys;    /* a prompt's token that sees so many keys costs twice one that sees none (S15) */
  uint32_t stage_words;       /* of payloads read in one turn of the loop, at most BLINK_STAGE_WORDS (S18) */
  uint32_t kv_event_capacity; /* of the log in the ring, in records; 0: no events are told */
  uint32_t kv_event_bytes;    /* from one record to the next */
  uint32_t n_kv_event_queue;  /* a power of two, at least 4 * BLINK_SCHEDULER_THREADS */
  uint32_t host_pages;        /* KV pages in host memory, numbered from total_pages on; 0: there are none */
  uint32_t copy_shape;        /* the shape of copy steps, if there are any; its tokens are pages */
  uint32_t n_grammar_places;
  uint32_t max_grammar_words; /* of all grammars in device memory, and so of one; 0: none is taken */
  uint32_t priorities;        /* 0: nobody is more urgent than others, whatever descriptors say (S2) */
  /* Of speculation (drafts.h) */
  uint32_t max_drafts;      /* of a sequence in one step, at most BLINK_MAX_DRAFTS; 0: there are none */
  uint32_t max_verify_rows; /* tokens of a step with drafts; of more sequences than half of it, none has drafts */
  uint32_t longest_match;   /* tokens: drafts follow an earlier place that ends with the same so many tokens ... */
  uint32_t shortest_match;  /* ... or with as many as there are equal, but no fewer than these */
  uint32_t drafts_per_matched_token; /* in 2^-16; not 0: the places that match longest vote (lookup.h), ... */
  uint32_t least_share;              /* ... of which this share has to agree with a draft, in 2^-16 */
  uint32_t n_draft_places;           /* of a sequence's index, a power of two */
  uint32_t simulates_acceptance;     /* not 0: drafts are accepted by chance, for measurement */
  uint32_t copied_share; /* not 0: answers repeat their prompts but for some tokens, likewise: so many, in 2^-32 */
  uint32_t acceptance_chances[14]; /* BLINK_MAX_DRAFTS: of the n-th draft, if those before it are accepted, in 2^-32 */
  uint32_t* draft_places;          /* [tables.n_sequences][n_draft_places] where tokens of the history stood before */
  uint64_t hash_key; /* random, so that nobody can make prompts whose pages crowd in one place of the index */
  /* Launch the next step this long, 1/64 of a step and the time of planning before the running one's expected end; 0:
   * after it ended. */
  uint64_t arm_margin_ns;
  uint64_t target_itl_ns; /* that a step takes at most beside sequences that decode, if it can (S15); 0: as S15 says */
  uint64_t min_itl_ns;    /* without prompts, no step begins sooner after the one before (S25); 0: at once */
  uint64_t scan_interval_ns; /* between scans of the ring while a step runs */
  uint64_t step_timeout_ns;  /* a step that takes longer is a fault */
};

#ifdef __cplusplus
}
#endif

#include "state_layout.h"

#endif /* BLINK_SCHEDULER_STATE_H */
