"""Random walks through a grammar: each ends as an answer that it allows."""

from __future__ import annotations

import random
from typing import Any

from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.schema import of_schema
from ringbuffer.grammar import Grammar, Walk, accepts, unpack

MAX_WORDS = 1 << 20
LONG = 200  # bytes, behind which a walk closes what is open


def grammar_of(expression: Expression) -> Grammar:
    return unpack(compiled(expression, MAX_WORDS))


def taken(expression: Expression, *texts: str) -> list[bool]:
    """Which of the texts are in its language."""
    grammar = grammar_of(expression)
    return [accepts(grammar, text.encode()) for text in texts]


def schema_taken(schema: Any, *texts: str) -> list[bool]:
    return taken(of_schema(schema), *texts)


class RandomAnswers:
    """To one grammar. What may come next is found once for each place that walks come to. Where an answer may
    end, it does with the chance `ends`; the bytes of `odd` come more often than others.
    """

    def __init__(
        self, grammar: Grammar, source: random.Random, *, ends: float = 0.3, odd: bytes = b""
    ) -> None:
        self._grammar, self._source = grammar, source
        self._ends, self._odd = ends, odd
        self._bytes_of: dict[int, list[int]] = {}
        for byte, column in enumerate(grammar.columns.tolist()):
            self._bytes_of.setdefault(column, []).append(byte)
        self._choices: dict[tuple[int, ...], list[list[int]]] = {}

    def one(self, begin: bytes = b"") -> bytes | None:
        """One that begins so. None: it does not end. Raises AssertionError at a dead end."""
        walk, answer, source = Walk(self._grammar), bytearray(begin), self._source
        assert walk.step_all(begin) or not begin
        while len(answer) < 20 * LONG:
            is_long = len(answer) > LONG
            if walk.may_end() and (is_long or source.random() < self._ends):
                return bytes(answer)
            choices = self._next(walk)
            assert choices or walk.may_end(), f"a dead end behind {bytes(answer)!r}"
            if not choices:
                return bytes(answer)
            closing = [byte for byte in b'"}])' if is_long and walk.copy().step(byte)]
            odd = [byte for alike in choices for byte in alike if byte in self._odd]
            if closing:
                byte = closing[0]
            elif odd and source.random() < 0.3:
                byte = source.choice(odd)
            else:
                byte = source.choice(source.choice(choices))
            walk.step(byte)
            answer.append(byte)
        return None

    def _next(self, walk: Walk) -> list[list[int]]:
        place = (walk.state, *walk.stack)
        if place not in self._choices:
            columns = self._bytes_of.values()
            self._choices[place] = [alike for alike in columns if walk.copy().step(alike[0])]
        return self._choices[place]
