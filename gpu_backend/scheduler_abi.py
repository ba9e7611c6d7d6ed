"""Generated from kernels/scheduler/state.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
from enum import IntEnum

import numpy as np

from ringbuffer.abi import Stats
from gpu_backend.abi import StepSet
from gpu_backend.abi import Tables

SCHEDULER_THREADS = 256
LAUNCH_WINDOW = 120
GAP_BINS = 512
GAP_BIN_NS = 64
TOKEN_GRANULE = 16
USUAL_PROMPT = 1024
USUAL_OUTPUT = 256
PROMPT_STEPS = 4
PROMPT_SHARE = 384
BACKLOG_STEPS = 32
VERY_LONG_STEPS = 8
SLOWEST_PACE = 21
FASTEST_PACE = 9
LONG_STEP = 28
LEAST_PROMPT = 64
USUAL_MEMORY = 262144
STATS_INTERVAL_NS = 500000
UNSEEN_SHARE = 16
UNSEEN_NS = 200000
LAUNCH_RETRY_NS = 5000000
LAUNCH_RETRIES = 16
GATHER_NS = 2000000
TORN_RETRY_NS = 20000
STALL_NS = 500000000
STAGE_WORDS = 4096
SUFFIX_LENGTHS = 4
FIRST_RUNS = 3
TRACE_STEPS = 4096
NO_PAGE = 0xffffffff
CLIENT_COUNTS = 2048
KV_EVENT_SCAN_NS = 50000
EVICTED_TOGETHER = 256
ROOM_SHARE = 4
COPIED_SHARE = 16
NO_GRAMMAR = 0xffffffff
GRAMMAR_GRANULE = 32
SCHEDULER_LAYOUT_HASH = 0xaf8c6d06bbd4f3f6


class SequenceUse(IntEnum):
    FREE = 0
    ACTIVE = 1
    ZOMBIE = 2
    STAGED = 3


Request = np.dtype({
    "names": ["arrival", "torn_since_ns", "torn_last_ns", "output_at", "submission", "epoch", "state", "sequence_index", "prompt_tokens", "max_outputs", "generated", "crc32c", "output_room", "logprob_words", "prompt_logprob_words", "cached", "restarted", "client", "placed", "priority", "reason", "reserved"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<i4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100],
    "itemsize": 104,
})

Sequence = np.dtype({
    "names": ["last_step", "use", "slot", "fed", "prefill_end", "n_pages", "faulty", "filled", "unshown", "prefix_sum", "link", "n_linked", "awaits", "cached", "considered", "scored", "grammar", "client", "behind", "indexed", "n_drafts", "acceptance", "unchecked", "source", "misses"],
    "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108],
    "itemsize": 112,
})

ClientCount = np.dtype({
    "names": ["turn", "places", "reserved"],
    "formats": ["<u8", "<u4", "<u4"],
    "offsets": [0, 8, 12],
    "itemsize": 16,
})

Page = np.dtype({
    "names": ["sum", "salt", "ready", "queued", "content", "parent", "users", "entry", "depth", "copy"],
    "formats": ["<u8", ("<u8", (2,)), "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 24, 32, 40, 48, 56, 60, 64, 68],
    "itemsize": 72,
})

Staging = np.dtype({
    "names": ["arrival", "sequence", "done", "crc", "wrong"],
    "formats": ["<u8", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 12, 16, 20],
    "itemsize": 24,
})

GrammarPlace = np.dtype({
    "names": ["used", "lease", "epoch", "name", "crc32c", "at", "words", "whole", "users", "staged", "reserved"],
    "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44],
    "itemsize": 48,
})

GrammarReading = np.dtype({
    "names": ["arrival", "sequence", "place", "done", "crc", "wrong", "reserved"],
    "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 12, 16, 20, 24, 28],
    "itemsize": 32,
})

LeaseRecord = np.dtype({
    "names": ["word", "changed_ns", "epoch", "state", "ticket", "newest"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 20, 24, 28],
    "itemsize": 32,
})

ShapeTime = np.dtype({
    "names": ["expected_ns", "total_ns", "steps", "usual_ns", "last_step"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32],
    "itemsize": 40,
})

MixedTimes = np.dtype({
    "names": ["n", "w", "ww", "t", "wt"],
    "formats": ["<f4", "<f4", "<f4", "<f4", "<f4"],
    "offsets": [0, 4, 8, 12, 16],
    "itemsize": 20,
})

StepTrace = np.dtype({
    "names": ["id", "start_ns", "sample_ns", "done_ns", "turn_ns", "chosen_ns", "launched_ns", "seen_ns", "kind", "batch_size"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 68],
    "itemsize": 72,
})

KvEventState = np.dtype({
    "names": ["head", "tail", "written", "read", "attachment", "following", "round", "swept"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 36, 40, 44],
    "itemsize": 48,
})

SchedulerState = np.dtype({
    "names": ["launched", "committed", "claims", "last_done_ns", "turn_ns", "running_since_ns", "fault", "fault_detail", "phase", "last_kind", "n_free_pages", "n_idle_pages", "n_waiting", "n_active", "n_zombies", "n_staged", "planned", "reserved", "idle_head", "idle_tail", "contents", "written", "host_copies", "brought_back", "ended_prompts", "ended_outputs", "decode_ns", "mixed_times", "rests", "kv_events", "plan_ns", "staging", "grammar_reading", "grammar_uses", "stats", "leases", "clients", "gap_histogram"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", MixedTimes, "<u4", KvEventState, ("<u8", (2,)), Staging, GrammarReading, "<u8", Stats, (LeaseRecord, (32,)), (ClientCount, (4096,)), ("<u8", (512,))],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 196, 200, 248, 264, 288, 320, 328, 592, 1616, 67152],
    "itemsize": 71248,
})

SchedulerConfig = np.dtype({
    "names": ["header", "leases", "lease_acks", "request_words", "descriptors", "progress", "prompts", "outputs", "n_slots", "n_leases", "prompt_heap", "output_heap", "tables", "sets", "shapes", "executables", "decode_lookup", "prefill_lookup", "mixed_lookup", "verify_lookup", "seen", "requests", "sequences", "free_pages", "pages", "page_tokens", "page_index", "idle_pages", "kv_events", "kv_event_queue", "kv_event_told", "grammar_places", "shape_times", "trace", "state", "n_shapes", "total_pages", "max_prefill_tokens", "max_prefill_slots", "max_mixed_tokens", "mixed_share", "max_batch", "n_index", "n_idle", "prefix_cache", "attention_keys", "stage_words", "kv_event_capacity", "kv_event_bytes", "n_kv_event_queue", "host_pages", "copy_shape", "n_grammar_places", "max_grammar_words", "priorities", "max_drafts", "max_verify_rows", "longest_match", "shortest_match", "drafts_per_matched_token", "least_share", "n_draft_places", "simulates_acceptance", "copied_share", "acceptance_chances", "draft_places", "hash_key", "arm_margin_ns", "target_itl_ns", "min_itl_ns", "scan_interval_ns", "step_timeout_ns"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", Tables, (StepSet, (3,)), "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", ("<u4", (14,)), "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 76, 80, 304, 520, 528, 536, 544, 552, 560, 568, 576, 584, 592, 600, 608, 616, 624, 632, 640, 648, 656, 664, 672, 680, 688, 692, 696, 700, 704, 708, 712, 716, 720, 724, 728, 732, 736, 740, 744, 748, 752, 756, 760, 764, 768, 772, 776, 780, 784, 788, 792, 796, 800, 804, 864, 872, 880, 888, 896, 904, 912],
    "itemsize": 920,
})
