"""Generated from kernels/step.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
from enum import IntEnum

import numpy as np


STEP_SETS = 3
MAX_EOS = 8
LOGPROB_WORDS = 21
NO_SEQUENCE = 0xffffffff
NO_TOKEN = 0xffffffff
VOCAB_PARTS = 8
MOST_PLAIN = 127
NOT_PLAIN = 255
BYTE_CLASSES = 24
WIDE_SETS = 8
CLASS_SETS = 32
MAP_FIRST = 0
MAP_REST = 32
MAP_NO_BYTES = 64
MAP_NOT_PLAIN = 65
MAPS = 66
MOST_TOKEN_BYTES = 4095
DEAD_END = 0xfffffffe
MAX_DRAFTS = 14
RECENT_TOKENS = 64
GRAMMAR_STATES = 16
STEP_LAYOUT_HASH = 0xec7d874fc58615e3


class Emit(IntEnum):
    NOTHING = 0
    TOKEN = 1
    LOGPROBS = 2
    CHECKED = 3


class StepKind(IntEnum):
    DECODE = 0
    PREFILL = 1
    MIXED = 2
    COPY = 3


Shape = np.dtype({
    "names": ["kind", "tokens", "batch_slots", "verifies"],
    "formats": ["<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 4, 8, 12],
    "itemsize": 16,
})

StepHead = np.dtype({
    "names": ["id", "kind", "shape", "n_tokens", "batch_size", "n_decode", "has_drafts", "work", "pad0", "start_ns", "sample_ns", "done_ns", "fault", "slots_done", "processing", "pad1"],
    "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", ("u1", (92,)), "<u8", "<u8", "<u8", "<u8", "<u4", ("<u4", (8,)), ("u1", (60,))],
    "offsets": [0, 8, 12, 16, 20, 24, 28, 32, 36, 128, 136, 144, 152, 160, 164, 196],
    "itemsize": 256,
})

StepSet = np.dtype({
    "names": ["head", "token_sequence", "token_position", "batch_sequence", "batch_first", "batch_last", "batch_emit", "out_token", "out_logprobs"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
    "itemsize": 72,
})

TokenGroup = np.dtype({
    "names": ["prefix", "most_plain", "first_class", "reserved", "classes", "at", "bytes"],
    "formats": ["u1", "u1", "u1", "u1", "<u4", "<u4", ("u1", (4,))],
    "offsets": [0, 1, 2, 3, 4, 8, 12],
    "itemsize": 16,
})

Vocabulary = np.dtype({
    "names": ["first", "bytes", "plain", "class_of_byte", "class_sets", "maps", "groups", "part_groups", "group_tokens", "group_words"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72],
    "itemsize": 80,
})

Tables = np.dtype({
    "names": ["history", "block_table", "params", "controls", "completed", "n_sequences", "max_context", "pages_per_sequence", "page_size", "vocab_size", "control_words", "n_eos", "eos", "grammars", "grammar_at", "grammar_states", "vocabulary", "n_processors", "recent_processors", "processors"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", ("<u4", (8,)), "<u8", "<u8", "<u8", Vocabulary, "<u4", "<u4", "<u8"],
    "offsets": [0, 8, 16, 24, 32, 40, 44, 48, 52, 56, 60, 64, 68, 104, 112, 120, 128, 208, 212, 216],
    "itemsize": 224,
})
