"""What scripts/bench/grammars.py walks through: a vocabulary like those of large models, and grammars.

The vocabulary has what those of large models have: words with and without a space before them, numbers,
characters and pairs of them of another script, marks, runs of spaces, and all bytes. The words are those of
Python's own library, so it needs no network.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from ringbuffer import grammar_abi as abi
from ringbuffer.grammar import Grammar

OTHER_SCRIPT, MARKED = 6, 12  # one token in so many
ONSETS = ("", "b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v")
RIMES = ("a", "e", "i", "o", "u", "an", "en", "er", "ing", "ion", "al", "es")
SYLLABLES = [onset + rime for onset in ONSETS for rime in RIMES]
MARKS = ('"', ' "', '",', '":', '("', "\n", "\n\n", "\t", "\\", "\\n")


@cache
def vocabulary(size: int) -> list[bytes]:
    """As many different tokens, at least 512."""
    words: Counter[str] = Counter()
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        words.update(re.findall(r"\w+|[^\w\s]+|\n *", path.read_text(errors="ignore")))
    rng = random.Random(1)
    table = dict.fromkeys(bytes([byte]) for byte in range(256))
    table |= dict.fromkeys(b" " * n for n in range(2, 80))
    for word, _ in words.most_common():
        pieces = [word, " " + word, word.capitalize(), " " + word.capitalize(), word.upper()]
        table |= dict.fromkeys(piece.encode() for piece in pieces)
        if len(table) > size // 3:
            break
    characters = [chr(point) for point in range(0x4E00, 0x9FA0)]
    while len(table) < size:
        if rng.randrange(OTHER_SCRIPT) == 0:
            token = "".join(rng.choices(characters[:4000], k=rng.randint(1, 2)))
        else:
            begin = rng.choice(MARKS) if rng.randrange(MARKED) == 0 else rng.choice(("", " "))
            token = begin + "".join(rng.choices(SYLLABLES, k=rng.randint(1, 4)))
        table[token.encode()] = None
    found = list(table)[:size]
    rng.shuffle(found)
    return found


STRING = [byte for byte in range(0x20, 256) if byte not in b'"\\']
DIGITS, NAME = list(b"0123456789"), list(b"abcdefghijklmnopqrstuvwxyz_")


@dataclass
class Automaton:
    """States and moves, put together from the front. State 1 begins."""

    moves: list[dict[int, int]] = field(default_factory=lambda: [{}, {}])
    accepting: set[int] = field(default_factory=set)
    at: int = 1

    def state(self) -> int:
        self.moves.append({})
        return len(self.moves) - 1

    def text(self, raw: bytes) -> None:
        for byte in raw:
            follower = self.state()
            self.moves[self.at][byte] = follower
            self.at = follower

    def many(self, members: list[int], end: bytes) -> None:
        """One or more of the members, then `end`, which does not begin with one."""
        loop, behind = self.state(), self.state()
        for state in (self.at, loop):
            self.moves[state] |= dict.fromkeys(members, loop)
        self.moves[loop][end[0]] = behind
        self.at = behind
        self.text(end[1:])

    def choice(self, texts: list[bytes]) -> None:
        """One of the texts, none of which another begins with."""
        begin, end = self.at, self.state()
        for raw in texts:
            self.at = begin
            for byte in raw[:-1]:
                follower = self.moves[self.at].get(byte) or self.state()
                self.moves[self.at][byte] = follower
                self.at = follower
            self.moves[self.at][raw[-1]] = end
        self.at = end

    def grammar(self) -> Grammar:
        self.accepting.add(self.at)
        columns = np.zeros(256, np.uint8)
        known: dict[tuple[int, ...], int] = {}
        for byte in range(256):
            column = tuple(row.get(byte, 0) for row in self.moves)
            columns[byte] = known.setdefault(column, len(known) + 1)
        rows = np.zeros((len(self.moves), len(known) + 1), np.uint32)
        for column, at in known.items():
            rows[:, at] = column
        for state, row in enumerate(self.moves):
            loops = bool(row) and all(row.get(byte) == state for byte in STRING)
            rows[state, 0] = abi.GRAMMAR_ACCEPTING * (state in self.accepting) | abi.GRAMMAR_ANY_PLAIN * loops
        return Grammar(columns, np.zeros(1, np.uint32), rows, 1, 0)


@dataclass(frozen=True)
class Document:
    """A grammar of objects, and one of them; `marks` are places in it by what is expected there."""

    grammar: Grammar
    text: bytes
    marks: dict[str, int]


def document(seed: int) -> Document:
    """An object of six properties of different kinds, whose names are the seed's own."""
    rng = random.Random(seed)
    automaton, said, marks = Automaton(), b"", {"structure": 0}

    def literal(raw: bytes) -> None:
        nonlocal said
        automaton.text(raw)
        said += raw

    literal(b"{")
    for i, kind in enumerate(rng.sample(["string", "string", "number", "name", "choice", "flag"], 6)):
        key = "".join(rng.choices(SYLLABLES, k=3)).encode() + str(i).encode()
        literal((b", " if i else b"") + b'"' + key[:2])
        marks["key"] = len(said)
        literal(key[2:] + b'": ')
        if kind == "string":
            literal(b'"')
            automaton.many(STRING, b'"')
            said += b"some words of a"
            marks["string"] = len(said)
            said += b' text"'
        elif kind == "number":
            automaton.many(DIGITS, b".")
            automaton.choice([b"0", b"25", b"5", b"75"])
            said += b"12"
            marks["number"] = len(said)
            said += b"34.25"
        elif kind == "name":
            literal(b'"')
            automaton.many(NAME, b'"')
            said += b"user_na"
            marks["name"] = len(said)
            said += b'me"'
        elif kind == "choice":
            texts = [f'"{word}"'.encode() for word in rng.sample(SYLLABLES, 8)]
            automaton.choice(texts)
            marks["choice"] = len(said)
            said += texts[0]
        else:
            automaton.choice([b"true", b"false", b"null"])
            said += b"false"
    literal(b"}")
    return Document(automaton.grammar(), said, marks)
