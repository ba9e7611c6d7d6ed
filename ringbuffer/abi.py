"""Generated from ringbuffer/ring.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
from enum import IntEnum

import numpy as np


MAGIC = 0x474e49524b4e4c42
ABI_VERSION = 2
MAX_LEASES = 32
MAX_SLOTS = 4096
SLOT_ALIGNMENT = 16
MAX_STOP_IDS = 15
INLINE_RECORDS = 6
MAX_COUNT = 0xfffff
LEASE_BEAT_NS = 50000000
LEASE_TIMEOUT_NS = 1000000000
LONGEST_LEASE_NS = 30000000000
HEARTBEAT_TIMEOUT_NS = 2000000000
TORN_PAYLOAD_TIMEOUT_NS = 1000000000
COPY_ENGINE_BYTES = 32768
MAX_LOGPROBS = 20
MAX_BIASES = 1024
MAX_BAN_WORDS = 2048
BAN_END = 0x80000000
MAX_PROCESSORS = 8
MAX_ASKED_PROCESSORS = 4
PROCESSOR_ARGS = 8
PROCESSOR_WORDS = 9
PROMPT_GRANULE = 32
OUTPUT_GRANULE = 16
NO_BLOCK = 0xffffffffffffffff
EPOCH_MASK = 0xffffff
SHOWN_STEPS = 64
RING_LAYOUT_HASH = 0xb38d715c18c947d5


class State(IntEnum):
    EMPTY = 0
    PREFILL_PENDING = 1
    PREFILL_PROCESSING = 2
    DECODE_PROCESSING = 3
    DECODE_PAUSED = 4
    DECODE_COMPLETED = 5


class Command(IntEnum):
    NONE = 0
    SUBMIT = 1
    CANCEL = 2
    RELEASE = 3


class Reason(IntEnum):
    NONE = 0
    EOS = 1
    STOP_ID = 2
    LENGTH = 3
    CANCELLED = 4
    ERROR_FIRST = 16
    BAD_CHECKSUM = 16
    EMPTY_PROMPT = 17
    PROMPT_TOO_LONG = 18
    BAD_TOKEN = 19
    BAD_PARAMETER = 20
    SHUTTING_DOWN = 21
    ENGINE_FAULT = 22
    NUMERICAL_FAULT = 23
    BAD_RANGE = 24
    BAD_GRAMMAR = 25
    GRAMMAR_DEAD_END = 26


class Phase(IntEnum):
    STARTING = 0
    SERVING = 1
    DRAINING = 2
    STOPPED = 3
    FAILED = 4


class Fault(IntEnum):
    NONE = 0
    LAUNCH = 1
    STEP = 2
    GATE = 3
    RELAUNCH = 4
    TOKEN = 5
    DEVICE = 6
    PROCESSOR = 7


class Control(IntEnum):
    RUN = 0
    DRAIN = 1
    STOP = 2


class LeaseState(IntEnum):
    FREE = 0
    GRANTED = 1
    RECLAIMED = 2


class RequestFlags(IntEnum):
    IGNORE_EOS = 1
    ALLOWS = 2


class KvEventKind(IntEnum):
    STORED = 1
    REMOVED = 2
    CLEARED = 3
    COMPLETE = 4


Stats = np.dtype({
    "names": ["steps", "decode_steps", "prefill_steps", "launches", "refused_launches", "relaunches", "idle_polls", "tokens", "prompt_tokens", "admitted", "completed", "cancelled", "failed", "preempted", "zombie_rows", "torn_payloads", "leases_reclaimed", "prefix_queries", "prefix_hits", "prefix_lookups", "prefix_lookup_ns", "prefix_insertions", "prefix_insertion_ns", "prefix_evictions", "prefix_eviction_ns", "drafts", "draft_tokens", "accepted_tokens", "running", "waiting", "free_pages", "cached_pages", "longest_turn_ns"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 240, 248, 256],
    "itemsize": 264,
})

ShownStep = np.dtype({
    "names": ["id", "start_ns", "done_ns", "tokens"],
    "formats": ["<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24],
    "itemsize": 32,
})

Header = np.dtype({
    "names": ["magic", "layout_hash", "abi_version", "backend_pid", "region_bytes", "n_slots", "n_leases", "prompt_heap", "output_heap", "leases_offset", "lease_acks_offset", "requests_offset", "descriptors_offset", "progress_offset", "prompts_offset", "outputs_offset", "vocab_size", "max_context", "max_batch", "total_pages", "page_size", "max_grammar_words", "fingerprint", "model_name", "device_name", "kv_events_offset", "kv_event_capacity", "kv_event_bytes", "max_prefill_tokens", "priorities", "n_eos", "eos", "processor_names", "pad0", "control", "pad1", "phase", "heartbeat", "fault", "fault_detail", "pad2", "stats", "pad3", "steps"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u8", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", ("u1", (32,)), ("u1", (64,)), ("u1", (64,)), "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", ("<u4", (8,)), ("u1", (256,)), ("u1", (164,)), "<u8", ("u1", (120,)), "<u8", "<u8", "<u8", "<u8", ("u1", (96,)), Stats, ("<u8", (15,)), (ShownStep, (64,))],
    "offsets": [0, 8, 16, 20, 24, 32, 36, 40, 44, 48, 56, 64, 72, 80, 88, 96, 104, 108, 112, 116, 120, 124, 128, 160, 224, 288, 296, 300, 304, 308, 312, 316, 348, 604, 768, 776, 896, 904, 912, 920, 928, 1024, 1288, 1408],
    "itemsize": 3456,
})

Lease = np.dtype({
    "names": ["word", "timeout_ns", "pad"],
    "formats": ["<u8", "<u8", ("u1", (112,))],
    "offsets": [0, 8, 16],
    "itemsize": 128,
})

LeaseAck = np.dtype({
    "names": ["word", "pad"],
    "formats": ["<u8", ("u1", (120,))],
    "offsets": [0, 8],
    "itemsize": 128,
})

Descriptor = np.dtype({
    "names": ["sequence", "epoch", "prompt_tokens", "max_tokens", "seed", "salt", "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty", "frequency_penalty", "priority", "n_processors", "flags", "ticket", "client", "min_tokens", "n_stop_ids", "stop_ids", "prompt_offset", "prompt_room", "output_offset", "output_room", "logprob_words", "prompt_logprob_words", "n_biases", "ban_words", "grammar_offset", "grammar_words", "grammar_name", "grammar_crc32c", "crc32c"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u8", ("<u8", (2,)), "<f4", "<f4", "<f4", "<u4", "<f4", "<f4", "<f4", "i1", "u1", "<u2", "<u4", "<u4", "<u4", "<u4", ("<u4", (15,)), "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12, 16, 24, 40, 44, 48, 52, 56, 60, 64, 68, 69, 70, 72, 76, 80, 84, 88, 148, 152, 156, 160, 164, 168, 172, 176, 180, 184, 188, 192, 196],
    "itemsize": 200,
})

Progress = np.dtype({
    "names": ["status", "prefix", "records"],
    "formats": ["<u8", "<u8", ("<u8", (6,))],
    "offsets": [0, 8, 16],
    "itemsize": 64,
})

KvEvents = np.dtype({
    "names": ["reader", "pad0", "written", "pad1"],
    "formats": ["<u8", ("u1", (120,)), "<u8", ("u1", (120,))],
    "offsets": [0, 8, 128, 136],
    "itemsize": 256,
})

KvEvent = np.dtype({
    "names": ["word", "kind", "block", "parent", "salt"],
    "formats": ["<u8", "<u8", "<u8", "<u8", ("<u8", (2,))],
    "offsets": [0, 8, 16, 24, 32],
    "itemsize": 48,
})
