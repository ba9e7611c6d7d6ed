"""Regular languages over bytes as trees: as a pattern of `re`, and as a grammar by Brzozowski's derivatives.

A slow and independent way to both, which answers under a grammar are checked with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
from hypothesis import strategies as st

from ringbuffer import grammar_abi as abi
from ringbuffer.grammar import Grammar


@dataclass(frozen=True)
class Node:
    """`kind`: none, empty, set, then, either or star. `members` of a set are bytes."""

    kind: str
    parts: tuple[Node, ...] = ()
    members: frozenset[int] = frozenset()


NONE, EMPTY = Node("none"), Node("empty")


def one_of(members: bytes) -> Node:
    return Node("set", members=frozenset(members))


def text(raw: bytes) -> Node:
    return reduce(then, (one_of(bytes([byte])) for byte in raw), EMPTY)


def then(a: Node, b: Node) -> Node:
    if NONE in (a, b):
        return NONE
    if EMPTY in (a, b):
        return b if a == EMPTY else a
    if a.kind == "then":  # to the right, so that equal languages look alike
        return then(a.parts[0], then(a.parts[1], b))
    return Node("then", (a, b))


def either(a: Node, b: Node) -> Node:
    parts = {part for node in (a, b) for part in (node.parts if node.kind == "either" else (node,))}
    parts.discard(NONE)
    ordered = tuple(sorted(parts, key=repr))
    return NONE if not ordered else ordered[0] if len(ordered) == 1 else Node("either", ordered)


def star(a: Node) -> Node:
    return EMPTY if a in (NONE, EMPTY) else a if a.kind == "star" else Node("star", (a,))


def times(a: Node, least: int, most: int) -> Node:
    again = EMPTY
    for _ in range(most - least):
        again = either(EMPTY, then(a, again))
    return reduce(then, [a] * least + [again], EMPTY)


@cache
def is_nullable(node: Node) -> bool:
    if node.kind in ("none", "set"):
        return False
    if node.kind in ("empty", "star"):
        return True
    found = [is_nullable(part) for part in node.parts]
    return all(found) if node.kind == "then" else any(found)


@cache
def derivative(node: Node, byte: int) -> Node:
    """What may follow `byte`."""
    if node.kind in ("none", "empty"):
        return NONE
    if node.kind == "set":
        return EMPTY if byte in node.members else NONE
    if node.kind == "star":
        return then(derivative(node.parts[0], byte), node)
    if node.kind == "either":
        return reduce(either, (derivative(part, byte) for part in node.parts), NONE)
    first, rest = node.parts
    followed = then(derivative(first, byte), rest)
    return either(followed, derivative(rest, byte)) if is_nullable(first) else followed


def pattern(node: Node) -> bytes:
    """What `re.fullmatch` takes, with re.DOTALL."""
    if node.kind == "none":
        return rb"(?!)"
    if node.kind == "empty":
        return b""
    if node.kind == "set":
        return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(node.members)) + b"]"
    if node.kind == "star":
        return b"(?:" + pattern(node.parts[0]) + b")*"
    joint = b"" if node.kind == "then" else b"|"
    return b"(?:" + joint.join(pattern(part) for part in node.parts) + b")"


def matches(node: Node, raw: bytes) -> bool:
    return re.fullmatch(pattern(node), raw, re.DOTALL) is not None


def sets(node: Node) -> set[frozenset[int]]:
    return {node.members}.union(*map(sets, node.parts))


def classes(node: Node) -> list[list[int]]:
    """Bytes between which the language does not tell."""
    found: dict[tuple[bool, ...], list[int]] = {}
    ordered = sorted(sets(node), key=sorted)
    for byte in range(256):
        found.setdefault(tuple(byte in members for members in ordered), []).append(byte)
    return list(found.values())


def grammar(node: Node, stack_bound: int = 0) -> Grammar:
    """Its states are the language's derivatives: none but those from which it can end."""
    states, rows = {NONE: 0, node: 1}, list[list[int]]([[]])
    queue = [node]
    alike = classes(node)
    for state in queue:  # which grows meanwhile
        moves = [derivative(state, members[0]) for members in alike]
        for follower in moves:
            if follower not in states:
                states[follower] = len(states)
                queue.append(follower)
        rows.append([states[follower] for follower in moves])
    column_of = np.zeros(256, np.uint8)
    for column, members in enumerate(alike, 1):
        column_of[members] = column
    table = np.zeros((len(rows), len(alike) + 1), np.uint32)
    table[1:, 1:] = rows[1:]
    for state, at in states.items():
        table[at, 0] = abi.GRAMMAR_ACCEPTING if is_nullable(state) else 0
    return with_plain(Grammar(column_of, np.zeros(1, np.uint32), table, 1, stack_bound))


PLAIN = [
    *range(0x20, 0x110000, 9973),
    0x20,
    0x21,
    0x23,
    0x5B,
    0x5D,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xFFFF,
    0x10FFFF,
]


def with_plain(grammar: Grammar) -> Grammar:
    """Says of states without a stack how many plain characters may follow. Of the characters it tries some,
    which is enough where a state has the same move for all bytes from 0x80 on, or none.
    """
    rows, characters = grammar.rows.copy(), [chr(c).encode(errors="ignore") for c in PLAIN]
    raw = [c for c in characters if c and c not in (b'"', b"\\")]

    def follow(state: int, character: bytes) -> int:
        for byte in character:
            state = int(rows[state, grammar.columns[byte]]) & abi.GRAMMAR_NEXT_MASK
        return state

    followers = [{follow(state, character) for character in raw} for state in range(len(rows))]
    most = len(rows) + 1
    plain = [0] + [most] * (len(rows) - 1)
    for _ in range(most):
        fewest = [min(plain[state] if state else -1 for state in follower) for follower in followers]
        plain = [0, *(min(most, 1 + n) for n in fewest[1:])]
    for state, n in enumerate(plain):
        rows[state, 0] |= abi.GRAMMAR_ANY_PLAIN if n == most else n
    return Grammar(grammar.columns, grammar.returns, rows, grammar.start, grammar.stack_bound)


LETTERS = b"ab c"


def languages(letters: bytes = LETTERS) -> st.SearchStrategy[Node]:
    """Languages that have an answer."""
    leaves = st.one_of(
        st.sets(st.sampled_from(letters), min_size=1).map(lambda members: one_of(bytes(members))),
        st.lists(st.sampled_from(letters), max_size=4).map(lambda raw: text(bytes(raw))),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: then(*pair)),
            st.tuples(inner, inner).map(lambda pair: either(*pair)),
            inner.map(star),
            st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
                lambda found: times(found[0], found[1], found[1] + found[2])
            ),
        ),
        max_leaves=6,
    )
