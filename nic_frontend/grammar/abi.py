"""Generated from nic_frontend/native/grammar/compiler.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import ctypes
from enum import IntEnum

GRAMMAR_NO_LIMIT = 0xffffffff
GRAMMAR_GREEDY = 0x80000000


class GrammarOp(IntEnum):
    EMPTY = 0
    NOTHING = 1
    BYTES = 2
    CHARS = 3
    CAT = 4
    ALT = 5
    REPEAT = 6
    CALL = 7
    BEGIN = 8
    END = 9
    CLOSED = 10
    BOTH = 11
    EXCEPT = 12
    UNTIL = 13
    MULTIPLE = 14
    MEMBERS = 15


class GrammarStatus(IntEnum):
    OK = 0
    TOO_MANY_STATES = 1
    TOO_SLOW = 2
    EMPTY_LANGUAGE = 3
    LEFT_RECURSION = 4
    TOO_NESTED = 5
    TOO_MANY_CALLS = 6
    TOO_LARGE = 7
    BAD_PROGRAM = 8
    TOO_DEEP = 9


class GrammarLimits(ctypes.Structure):
    _fields_ = (
        ("moves", ctypes.c_uint32),
        ("nodes", ctypes.c_uint32),
        ("time_ms", ctypes.c_uint32),
    )


class GrammarResult(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_uint32),
        ("rule", ctypes.c_uint32),
        ("words", ctypes.c_uint32),
        ("states", ctypes.c_uint32),
    )
