"""Expressions to blocks of grammar.h, with the native compiler."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from nic_frontend.grammar.abi import GrammarLimits, GrammarResult, GrammarStatus
from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.program import Program, calls_of
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.library import library

# A hostile schema ends here, and holds one thread until then.
LIMITS = GrammarLimits(moves=4_000_000, nodes=2_000_000, time_ms=1_000)
SEARCH_MS = 1_000  # of this thread, for the place that is too large

OVERSIZED = (GrammarStatus.TOO_MANY_STATES, GrammarStatus.TOO_LARGE)
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
    status, rule, block = _compile(root, max_words, LIMITS)
    if status == GrammarStatus.OK:
        return block
    if status == GrammarStatus.BAD_PROGRAM:
        raise GrammarRefused("it is nested too deeply")
    raise GrammarRefused(REASONS[status], _oversized(root, max_words) if status in OVERSIZED else rule)


def _compile(root: Expression, max_words: int, limits: GrammarLimits) -> tuple[GrammarStatus, str, bytes]:
    """What came of it, the rule at fault, if it is one, and the block."""
    program = Program(root)
    words = np.frombuffer(program.words, dtype=np.uint32)
    block = np.empty(max_words, dtype=np.uint32)
    result = GrammarResult()
    library().blink_grammar_compile(
        words.ctypes.data,
        len(words),
        ctypes.byref(limits),
        block.ctypes.data,
        max_words,
        ctypes.byref(result),
    )
    rule = program.rules[result.rule] if result.rule < len(program.rules) else ""
    return GrammarStatus(result.status), rule, block[: result.words].tobytes()


def _oversized(root: Expression, max_words: int) -> str:
    """The innermost rule that is too large by itself; none where only the sum is, or the search took long."""
    ends = time.thread_time() + SEARCH_MS / 1000
    found, seen, waiting = "", set(), [rule for rule, _ in calls_of(root)]
    while waiting and (left := ends - time.thread_time()) > 0:
        rule = waiting.pop()
        if rule in seen or rule.body is None:
            continue
        seen.add(rule)
        limits = GrammarLimits(LIMITS.moves, LIMITS.nodes, 1 + int(left * 1000))
        if _compile(rule.body, max_words, limits)[0] in OVERSIZED:
            found, waiting = rule.name, [inner for inner, _ in calls_of(rule.body)]
    return found
