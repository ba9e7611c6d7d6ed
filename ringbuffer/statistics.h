/* What the scheduler tells of its work: a part of ring.h, which includes it, and of its layout. */
#ifndef BLINK_RING_STATISTICS_H
#define BLINK_RING_STATISTICS_H

/* Statistics, published by the scheduler (S) for /metrics and benchmarks. Counters are monotonic, gauges say so. */
struct blink_stats {
  uint64_t steps;            /* steps completed */
  uint64_t decode_steps;     /* ... with sequences that decode */
  uint64_t prefill_steps;    /* ... with prompts; a step may have both */
  uint64_t launches;         /* device-side graph launches accepted */
  uint64_t refused_launches; /* launches refused by the runtime and retried */
  uint64_t relaunches;       /* tail relaunches of the scheduler */
  uint64_t idle_polls;       /* ring scans with nothing in flight */
  uint64_t tokens;           /* output tokens published */
  uint64_t prompt_tokens;    /* prompt tokens prefilled, recomputation included */
  uint64_t admitted;
  uint64_t completed;
  uint64_t cancelled;
  uint64_t failed;
  uint64_t preempted;
  uint64_t zombie_rows;   /* batch slots of sequences that had ended before their step did (S6) */
  uint64_t torn_payloads; /* payloads re-read because the checksum did not match */
  uint64_t leases_reclaimed;
  uint64_t prefix_queries; /* prompt tokens that were looked up in the prefix cache */
  uint64_t prefix_hits;    /* ... and were there */
  uint64_t prefix_lookups; /* look-ups, and the nanoseconds that they took; likewise what follows */
  uint64_t prefix_lookup_ns;
  uint64_t prefix_insertions; /* pages that became findable */
  uint64_t prefix_insertion_ns;
  uint64_t prefix_evictions; /* pages that were findable and made room */
  uint64_t prefix_eviction_ns;
  uint64_t drafts;          /* times that drafts of a sequence's next tokens were checked */
  uint64_t draft_tokens;    /* ... these drafts */
  uint64_t accepted_tokens; /* ... those of them that were what the model says */
  uint64_t running;         /* gauge: sequences in the batch */
  uint64_t waiting;         /* gauge: requests not yet admitted, paused ones included */
  uint64_t free_pages;      /* gauge: pages that nobody uses, those of the prefix cache included */
  uint64_t cached_pages;    /* gauge: pages that nobody uses and the prefix cache keeps */
  uint64_t longest_turn_ns; /* gauge: what the longest turn of the scheduler's loop has taken */
};

/* One of the last steps, for whoever watches the machine: at [id % BLINK_SHOWN_STEPS] (S). It is overwritten while it
 * may be read, so what makes no sense is to be read again, or left out. */
#define BLINK_SHOWN_STEPS 64u
struct blink_shown_step {
  uint64_t id;       /* from 1; 0: there has been none yet */
  uint64_t start_ns; /* the engine's clock */
  uint64_t done_ns;
  uint64_t tokens; /* prompt tokens:32 | sequences that decode:32 */
};

#endif /* BLINK_RING_STATISTICS_H */
