"""Expressions to blocks of grammar.h, with the native compiler."""

from __future__ import annotations

import time

from nic_frontend.grammar.abi import GrammarLimits, GrammarStatus
from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.native import MOVES, NODES, compile_program
from nic_frontend.grammar.program import Program, calls_of
from nic_frontend.grammar.refusal import GrammarRefused, GrammarTooSlow

TIME_S = 2.0  # of a processor, for the whole of a grammar
SEARCH_S = 0.5  # of that, for the place that is too large

OVERSIZED = (GrammarStatus.TOO_MANY_STATES, GrammarStatus.TOO_LARGE)
REASONS = {
    GrammarStatus.TOO_MANY_STATES: "it needs more states than are allowed; bound lengths and counts lower",
    GrammarStatus.TOO_SLOW: f"to compile it takes more than {TIME_S:g} s",
    GrammarStatus.EMPTY_LANGUAGE: "no answer can satisfy it",
    GrammarStatus.LEFT_RECURSION: "the rule begins with itself",
    GrammarStatus.TOO_NESTED: "every answer would be nested too deeply",
    GrammarStatus.TOO_MANY_CALLS: "it is used in too many places",
    GrammarStatus.TOO_LARGE: "it is too large for this server",
    GrammarStatus.BAD_PROGRAM: "it is too large for this server",
    GrammarStatus.TOO_DEEP: "it is nested too deeply",
}


def compiled(root: Expression, max_words: int, time_s: float = TIME_S) -> bytes:
    """The block of the expression's language, of `max_words` words at most.

    Raises GrammarRefused, and GrammarTooSlow where it takes more than `time_s` of a processor.
    """
    ends = time.thread_time() + time_s
    status, rule, block = _compile(root, max_words, ends)
    if status == GrammarStatus.OK:
        return block
    if status == GrammarStatus.TOO_SLOW:
        raise GrammarTooSlow(REASONS[status])
    if status in OVERSIZED:
        rule = _oversized(root, max_words, min(ends, time.thread_time() + SEARCH_S))
    raise GrammarRefused(REASONS[status], rule)


def _compile(root: Expression, max_words: int, ends: float) -> tuple[GrammarStatus, str, bytes]:
    """What came of it by that time of this thread, the rule at fault, if it is one, and the block."""
    program = Program(root)
    left_ms = max(1, round((ends - time.thread_time()) * 1000))
    result, block = compile_program(program.words, max_words, GrammarLimits(MOVES, NODES, left_ms))
    rule = program.rules[result.rule] if result.rule < len(program.rules) else ""
    return GrammarStatus(result.status), rule, block


def _oversized(root: Expression, max_words: int, ends: float) -> str:
    """The innermost rule that is too large by itself; none where only the sum is, or the search took long."""
    found, seen, waiting = "", set(), [rule for rule, _ in calls_of(root)]
    while waiting and time.thread_time() < ends:
        rule = waiting.pop()
        if rule in seen or rule.body is None:
            continue
        seen.add(rule)
        if _compile(rule.body, max_words, ends)[0] in OVERSIZED:
            found, waiting = rule.name, [inner for inner, _ in calls_of(rule.body)]
    return found
