"""The native compiler of grammars, whose functions native/grammar/compiler.h documents."""

from __future__ import annotations

import ctypes
from array import array
from functools import cache, lru_cache

from nic_frontend.grammar.abi import GrammarLimits, GrammarResult, GrammarStatus
from nic_frontend.library_file import loaded

MOVES, NODES = 4_000_000, 2_000_000
MATCH_NODES = 1_000_000  # of a pattern's graph


@cache
def _library() -> ctypes.CDLL:
    p, u32 = ctypes.c_void_p, ctypes.c_uint32
    limits = ctypes.POINTER(GrammarLimits)
    return loaded(
        {
            "blink_grammar_compile": (None, [p, u32, limits, p, u32, ctypes.POINTER(GrammarResult)]),
            "blink_grammar_match": (u32, [p, u32, limits, ctypes.c_char_p, u32]),
        }
    )


@lru_cache(maxsize=1)
def _room(words: int) -> ctypes.Array[ctypes.c_uint32]:
    """For the block that is being made. To clear so much each time would take longer than small grammars."""
    return (ctypes.c_uint32 * words)()


def compile_program(words: array[int], max_words: int, limits: GrammarLimits) -> tuple[GrammarResult, bytes]:
    """What came of a program of uint32 words, and its block of `max_words` at most."""
    block = _room(max_words)
    result = GrammarResult()
    at, length = words.buffer_info()
    _library().blink_grammar_compile(
        at, length, ctypes.byref(limits), ctypes.addressof(block), max_words, ctypes.byref(result)
    )
    return result, ctypes.string_at(ctypes.addressof(block), 4 * result.words)


def match_program(words: array[int], text: bytes, time_ms: int) -> GrammarStatus:
    """Whether a text is in the language of a program without calls: OK, EMPTY_LANGUAGE, or what failed."""
    at, length = words.buffer_info()
    limits = GrammarLimits(MOVES, MATCH_NODES, time_ms)
    return GrammarStatus(_library().blink_grammar_match(at, length, ctypes.byref(limits), text, len(text)))
