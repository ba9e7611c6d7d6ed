"""Expressions to blocks of grammar.h, with the native compiler."""

from __future__ import annotations

import ctypes

import numpy as np

from nic_frontend.grammar.abi import GrammarLimits, GrammarResult, GrammarStatus
from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.program import Program
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.library import library

# A hostile schema ends here, and holds one thread until then.
LIMITS = GrammarLimits(moves=4_000_000, nodes=2_000_000, time_ms=1_000)

REASONS = {
    GrammarStatus.TOO_MANY_STATES: "it needs more states than are allowed; bound lengths and counts lower",
    GrammarStatus.TOO_SLOW: f"to compile it takes more than {LIMITS.time_ms / 1000:g} s",
    GrammarStatus.EMPTY_LANGUAGE: "no answer can satisfy it",
    GrammarStatus.LEFT_RECURSION: "the rule begins with itself",
    GrammarStatus.TOO_NESTED: "every answer would be nested too deeply",
    GrammarStatus.TOO_MANY_CALLS: "it is used in too many places",
    GrammarStatus.TOO_LARGE: "it is too large for this server",
}


def compiled(root: Expression, max_words: int) -> bytes:
    """The block of the expression's language, of `max_words` words at most. Raises GrammarRefused."""
    program = Program(root)
    words = np.frombuffer(program.words, dtype=np.uint32)
    block = np.empty(max_words, dtype=np.uint32)
    result = GrammarResult()
    library().blink_grammar_compile(
        words.ctypes.data,
        len(words),
        ctypes.byref(LIMITS),
        block.ctypes.data,
        max_words,
        ctypes.byref(result),
    )
    status = GrammarStatus(result.status)
    if status == GrammarStatus.OK:
        return block[: result.words].tobytes()
    if status == GrammarStatus.BAD_PROGRAM:
        raise GrammarRefused("it is nested too deeply")
    rule = program.rules[result.rule] if result.rule < len(program.rules) else ""
    raise GrammarRefused(REASONS[status], rule)
