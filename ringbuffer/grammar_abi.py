"""Generated from ringbuffer/grammar.h by scripts/generate_abi.py. Do not edit."""

# fmt: off

import numpy as np


GRAMMAR_MAGIC = 0x314d5247
GRAMMAR_MAX_STATES = 65536
GRAMMAR_MAX_RETURNS = 4096
GRAMMAR_MAX_STACK = 32
GRAMMAR_ACCEPTING = 0x80000000
GRAMMAR_ANY_PLAIN = 0xffff
GRAMMAR_MAX_ROOM = 15
GRAMMAR_NEXT_MASK = 0xffff
GRAMMAR_ROOM_SHIFT = 16
GRAMMAR_CALL_SHIFT = 20
GRAMMAR_LAYOUT_HASH = 0x7859c1942dfe3129


Grammar = np.dtype({
    "names": ["magic", "words", "n_states", "n_columns", "n_returns", "start", "stack_bound", "reserved", "column_of_byte"],
    "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", ("u1", (256,))],
    "offsets": [0, 4, 8, 12, 16, 20, 24, 28, 32],
    "itemsize": 288,
})

GrammarState = np.dtype({
    "names": ["state", "depth", "stack"],
    "formats": ["<u4", "<u4", ("<u4", (32,))],
    "offsets": [0, 4, 8],
    "itemsize": 136,
})
