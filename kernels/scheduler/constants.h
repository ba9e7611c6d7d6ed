/* The scheduler's constants: a part of state.h, which includes it. */
#ifndef BLINK_SCHEDULER_CONSTANTS_H
#define BLINK_SCHEDULER_CONSTANTS_H

#define BLINK_SCHEDULER_THREADS 256 /* of its one block; paper section 4.2 */
#define BLINK_LAUNCH_WINDOW 120     /* fire-and-forget launches of one execution of a graph (CUDA guide 4.2.6.2) */

#define BLINK_GAP_BINS 512 /* of BLINK_GAP_BIN_NS each; the last one collects the rest */
#define BLINK_GAP_BIN_NS 64
#define BLINK_TOKEN_GRANULE 16 /* the lookups of prefill and mixed shapes have one entry for every this many tokens */
/* What a request is taken to be until enough have ended, in tokens (S15). */
#define BLINK_USUAL_PROMPT 1024
#define BLINK_USUAL_OUTPUT 256
/* Beside sequences that decode, a step has at least the first part of the longest prompt; of all prompts, too, but not
 * more than so many tokens; and the second part of all, however many (S15). */
#define BLINK_PROMPT_STEPS 4
#define BLINK_PROMPT_SHARE 384
#define BLINK_BACKLOG_STEPS 32
#define BLINK_VERY_LONG_STEPS 8 /* a prompt that so many of the largest mixed steps do not bring in is very long */
/* Eighths of what a decode step takes (S15): a step while a very long prompt comes in, on average, at most and at
 * least; and, before it is rounded up, a step with a part of such a prompt. */
#define BLINK_SLOWEST_PACE 21
#define BLINK_FASTEST_PACE 9
#define BLINK_LONG_STEP 28
#define BLINK_LEAST_PROMPT 64     /* tokens' work that prompts have of a step beside others, whatever its target */
#define BLINK_USUAL_MEMORY 262144 /* tokens of ended requests until which none is forgotten */
#define BLINK_STATS_INTERVAL_NS 500000ull
/* The end of a step with drafts is waited for without another look at the ring for this part of the step at most. */
#define BLINK_UNSEEN_SHARE 16
#define BLINK_UNSEEN_NS 200000ull
#define BLINK_LAUNCH_RETRY_NS 5000000ull /* a launch that is refused is tried again for so long */
#define BLINK_LAUNCH_RETRIES 16      /* ... and at least so often, however long the scheduler stands still between */
#define BLINK_GATHER_NS 2000000ull   /* a step waits this long at most for a burst to be complete (S14) */
#define BLINK_TORN_RETRY_NS 20000ull /* a torn payload is read again after this and half the time it has been so */
#define BLINK_STALL_NS 500000000ull  /* a turn of the loop that comes this late: the scheduler itself stood still */
#define BLINK_STAGE_WORDS 4096       /* 16 loads of each thread: some 10 us across PCIe */
#define BLINK_SUFFIX_LENGTHS 4       /* of a suffix, for whose hash the index of drafts has places (lookup.h) */
#define BLINK_FIRST_RUNS 3           /* of a shape, before what it takes is known (S23) */
#define BLINK_TRACE_STEPS 4096       /* the last steps, of which the trace is kept */
#define BLINK_NO_PAGE 0xffffffffu
#define BLINK_CLIENT_COUNTS 2048        /* of each of two tables */
#define BLINK_KV_EVENT_SCAN_NS 50000ull /* between looks at what the reader of the KV events has read */
#define BLINK_EVICTED_TOGETHER 256 /* pages of the prefix cache that make room at once, at most a 64th of all (S16) */
/* Of the device's pages, one in so many should be free or have a copy in host memory (S19)... */
#define BLINK_ROOM_SHARE 4
/* ... and where they are fewer by one in so many, at least that many are copied together. */
#define BLINK_COPIED_SHARE 16

#define BLINK_NO_GRAMMAR 0xffffffffu
#define BLINK_GRAMMAR_GRANULE 32u /* words: grammars begin on lines */

#endif /* BLINK_SCHEDULER_CONSTANTS_H */
