"""How a text stands in an answer: in characters, and with special tokens where it has their texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable

from nic_frontend.grammar.expression import Expression, any_of, literal
from ringbuffer.token_bytes import SPECIAL

Places = Callable[[str], list[int]]  # where in a text those of special tokens begin, in characters


class SpecialTexts:
    """Those of a model's special tokens."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(filter(None, texts))
        longest_first = sorted(self._texts, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")  # no client's pattern

    def answer_bytes(self, mark: str) -> bytes:
        """What stands in an answer where a model writes a mark, which may be a special token."""
        return (SPECIAL if mark in self._texts else b"") + mark.encode()

    def places(self, text: str) -> list[int]:
        """Where in a text those of special tokens begin, the longest where several fit."""
        return [found.start() for found in self._any.finditer(text)]


class Spelling:
    def __init__(self, special: Places) -> None:
        self._special = special

    def ways(self, text: str) -> list[bytes]:
        return list(dict.fromkeys([text.encode(), _marked(text, self._special(text))]))

    def texts(self, text: str) -> Expression:
        return any_of(map(literal, self.ways(text)))

    def beginnings(self, first: str, text: str) -> list[tuple[bytes, bytes]]:
        """Of a text that begins with `first`: in each of its ways that part and the rest."""
        marked = _marked(text, self._special(text))
        before = len(_marked(first, [place for place in self._special(text) if place < len(first)]))
        plain = text.encode(), len(first.encode())
        return [(way[:n], way[n:]) for way, n in dict.fromkeys([plain, (marked, before)])]


def _marked(text: str, places: list[int]) -> bytes:
    """With the byte of special tokens before each of these characters."""
    edges = [0, *places, len(text)]
    parts = [text[a:b].encode() for a, b in itertools.pairwise(edges)]
    return SPECIAL.join(parts)
