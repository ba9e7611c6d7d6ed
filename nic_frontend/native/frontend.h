/* The C interface of libblink_frontend.so, called through ctypes. Slots are numbered from 0 within the lease.
 *
 * Threads: `submit`, `cancel`, `drain` and `open` come from one thread, the event loop's; the reader has its
 * own.
 */
#ifndef BLINK_FRONTEND_H
#define BLINK_FRONTEND_H

#include "ringbuffer/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLINK_EXPORT __attribute__((visibility("default")))

struct blink_link;
struct blink_reader;

/* The link of a mapping of the region, which the caller keeps mapped until after blink_link_close. */
BLINK_EXPORT struct blink_link* blink_link_shared_memory(void* address);
/* The link to a ring in GPU memory: `uuid` [16] names the GPU (cuDeviceGetUuid), `handle` [64] opens the memory
 * (cuIpcGetMemHandle), `library` is the driver's, "libcuda.so.1". NULL when it cannot be opened; `error` says why. */
BLINK_EXPORT struct blink_link* blink_link_cuda_ipc(const char* library, const void* uuid, const void* handle,
                                                    char* error, uint64_t error_bytes);
BLINK_EXPORT void blink_link_close(struct blink_link* link);
/* Offsets and sizes in bytes, multiples of 8. Nonzero when the link is down: nothing was read. */
BLINK_EXPORT int blink_link_read(struct blink_link* link, uint64_t offset, void* to, uint64_t bytes);
/* `room`: bytes from `offset` on that may be overwritten, at least `bytes`. */
BLINK_EXPORT void blink_link_write(struct blink_link* link, uint64_t offset, const void* from, uint64_t bytes,
                                   uint64_t room);
BLINK_EXPORT void blink_link_publish(struct blink_link* link, uint64_t offset, uint64_t word);

BLINK_EXPORT uint32_t blink_crc32c(uint32_t crc, const void* data, uint64_t bytes);
BLINK_EXPORT uint32_t blink_crc32c_table(uint32_t crc, const void* data, uint64_t bytes);

struct blink_json_shape {
  uint64_t parts;  /* objects, arrays and members of objects */
  uint64_t texts;  /* strings, and names of members */
  uint64_t commas; /* one less than the values of an array, or the members of an object */
  uint64_t depth;  /* of arrays and objects in each other; 1 for one that holds none */
  uint64_t number; /* characters of the longest one */
};
/* Of a text in UTF-8 that may be JSON: what a reader of JSON would make of it, and no less where it would fail. */
BLINK_EXPORT void blink_json_shape(const char* text, uint64_t bytes, struct blink_json_shape* shape);

struct blink_reader_options {
  uint32_t lease;
  uint32_t records_per_cycle; /* bound on the work of one cycle */
  uint64_t spin_ns;           /* polls without a pause for this long after something arrived */
  uint64_t min_sleep_ns;      /* then sleeps until more is due, within these bounds */
  uint64_t max_sleep_ns;
  uint64_t beat_ns; /* between two lease beats */
  uint64_t heartbeat_timeout_ns;
  uint64_t torn_timeout_ns; /* an answer whose records stay unreadable this long is given up */
};

enum blink_event_kind {
  BLINK_EVENT_TOKENS = 0,   /* n_tokens more of the answer */
  BLINK_EVENT_FINISHED = 1, /* n_tokens more, then the end; `reason` says why */
  BLINK_EVENT_FREED = 2,    /* the scheduler gave the slot back */
  BLINK_EVENT_LOST = 3,     /* the submission never reached the ring; FREED follows */
  BLINK_EVENT_LOGPROBS = 4, /* words of log-probabilities of the tokens whose event is the slot's next (extents.h): two
                               of the stream's tokens, of which there are n_tokens, are a word */
  BLINK_EVENT_PROMPT_LOGPROBS = 5 /* more words, of the prompt's tokens, all before the answer's first */
};

struct blink_event {
  uint32_t slot;
  uint32_t sequence;
  uint32_t n_tokens;
  uint32_t kind;          /* enum blink_event_kind */
  uint32_t reason;        /* enum blink_reason */
  uint32_t cached_tokens; /* with an answer's first tokens, else 0: tokens of its prompt that were cached */
  uint32_t prefill_us;    /* likewise: since the request was first seen admitted */
};

struct blink_health {
  uint64_t phase; /* enum blink_phase */
  uint64_t fault;
  uint64_t fault_detail;
  uint64_t heartbeat_age_ns; /* since the scheduler's heartbeat last changed */
  uint32_t heartbeat_lost;   /* 1: the age is above the timeout */
  uint32_t lease_lost;       /* 1: the scheduler does not acknowledge this epoch; `open` a new one */
  uint32_t link_down;        /* 1: nothing else here is new; make the link's connection again */
  uint32_t resolving;        /* 1: the connection has been made again, and the ring is asked what arrived (V7) */
  uint64_t cycles;
  uint64_t wakes;       /* of the event loop */
  uint64_t records;     /* accepted */
  uint64_t bad_records; /* stale or torn, read again in a later cycle */
  uint64_t arena_reads; /* the inline records did not suffice */
};

/* Makes the reader and its eventfd; it neither beats nor polls before `open`. NULL when the kernel refuses
 * or the link is down (errno says why). */
BLINK_EXPORT struct blink_reader* blink_reader_create(struct blink_link* link,
                                                      const struct blink_reader_options* options);
/* Stops the thread. The lease word and the slots stay as they are. */
BLINK_EXPORT void blink_reader_destroy(struct blink_reader* reader);
/* Readable when `drain` has something. */
BLINK_EXPORT int blink_reader_eventfd(struct blink_reader* reader);

/* Takes over a lease that the scheduler has granted, `beat` being the last one written. Every slot is idle
 * afterwards, whatever was open before. Returns the number of slots whose words are not as the scheduler must
 * leave them (0 is success; else nothing changed), or BLINK_LINK_DOWN. */
#define BLINK_LINK_DOWN 0xffffffffu
BLINK_EXPORT uint32_t blink_reader_open(struct blink_reader* reader, uint32_t epoch, uint32_t beat);

/* Submits n requests to idle slots. `prompts` holds their tokens back to back, and behind each prompt its controls, as
 * many as its descriptor says (extents.h). The descriptor's ranges of the lease's heaps are this request's alone until
 * BLINK_EVENT_FREED. Fills in each descriptor's sequence, epoch, ticket and crc32c. Returns n, or 0 when the lease is
 * lost or the link is down. Where the link breaks underway, n is returned and the reader finds out which of them
 * arrived (V7): the others end with BLINK_EVENT_LOST. */
BLINK_EXPORT uint32_t blink_reader_submit(struct blink_reader* reader, uint32_t n, const uint32_t* slots,
                                          struct blink_descriptor* descriptors, const uint32_t* prompts);

/* Ends a request: nothing more of it is delivered but BLINK_EVENT_FREED. Ignored unless `sequence` is the
 * open one. */
BLINK_EXPORT void blink_reader_cancel(struct blink_reader* reader, uint32_t slot, uint32_t sequence);

/* Moves what arrived into the caller's arrays: the tokens of event i follow those of event i - 1. Returns the
 * number of events; `max_events` of them, or tokens that no longer fit, mean that there may be more.
 * `max_tokens` is at least BLINK_EVENT_TOKENS_MAX. */
#define BLINK_EVENT_TOKENS_MAX 256u
BLINK_EXPORT uint32_t blink_reader_drain(struct blink_reader* reader, struct blink_event* events, uint32_t max_events,
                                         uint32_t* tokens, uint32_t max_tokens);

BLINK_EXPORT void blink_reader_health(struct blink_reader* reader, struct blink_health* health);

/* A thread that aborts the process when no beat comes for `limit_ns` in which the process was not itself stopped. */
struct blink_watchdog;
BLINK_EXPORT struct blink_watchdog* blink_watchdog_create(uint64_t limit_ns);
BLINK_EXPORT void blink_watchdog_beat(struct blink_watchdog* watchdog);
BLINK_EXPORT void blink_watchdog_destroy(struct blink_watchdog* watchdog);

#ifdef __cplusplus
}
#endif

#endif /* BLINK_FRONTEND_H */
