"""Grammars: their form, what is none, and the walk that the kernels' is compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from regular import LETTERS, Node, grammar, languages, matches, one_of, star, text, then

from ringbuffer import grammar_abi as abi
from ringbuffer.grammar import HEADER_WORDS, Grammar, GrammarError, Walk, accepts, unpack

CALL, ROOM = 1 << abi.GRAMMAR_CALL_SHIFT, 1 << abi.GRAMMAR_ROOM_SHIFT
END = abi.GRAMMAR_ACCEPTING


def nested(bound: int) -> Grammar:
    """Brackets in brackets around an x: at most `bound` of them wait to be closed."""
    columns = np.full(256, 4, np.uint8)
    columns[ord("[")], columns[ord("]")], columns[ord("x")] = 1, 2, 3
    rows = [
        [0, 0, 0, 0, 0],
        [0, CALL | 1, 0, 2, 0],  # a value: a bracket opens, and within it comes a value; or it is x
        [END, 0, 0, 0, 0],  # a value has ended
        [0, 0, 2, 0, 0],  # what comes behind a value within brackets
    ]
    return Grammar(columns, np.array([0, 3], np.uint32), np.array(rows, np.uint32), 1, bound)


def test_a_value_in_brackets() -> None:
    found = nested(3)
    for depth in range(6):
        whole = b"[" * depth + b"x" + b"]" * depth
        assert accepts(found, whole) == (depth <= 3)
        assert not accepts(found, whole[:-1])
        assert not accepts(found, whole + b"]")
    assert not accepts(found, b"[y]")


def test_a_move_needs_room_for_what_has_to_follow() -> None:
    """An answer that could not be ended is not begun."""
    found = nested(1)
    rows = found.rows.copy()
    rows[1, 1] |= ROOM  # as though a bracket had to hold another one
    walk = Walk(Grammar(found.columns, found.returns, rows, 1, 1))
    assert not walk.step(ord("["))
    assert walk.state == 0
    assert not walk.step(ord("x"))


@settings(deadline=None)
@given(node=languages(), words=st.lists(st.text(alphabet=LETTERS.decode(), max_size=6), max_size=5))
def test_a_regular_language_is_its_pattern(node: Node, words: list[str]) -> None:
    found = unpack(grammar(node).pack())
    short = ("".join(word) for n in range(4) for word in itertools.product(LETTERS.decode(), repeat=n))
    for word in (*short, *words):
        assert accepts(found, word.encode()) == matches(node, word.encode())


def test_plain_characters_are_counted() -> None:
    everything = one_of(bytes(byte for byte in range(0x20, 256) if byte not in b'"\\'))
    loops, ends = (
        grammar(then(text(b'"'), then(middle, text(b'"'))))
        for middle in (star(everything), then(everything, everything))
    )
    assert sorted(loops.rows[:, 0] & 0xFFFF) == [0, 0, 0, abi.GRAMMAR_ANY_PLAIN]
    assert ends.rows[:, 0].max() & 0xFFFF == 0


Words = NDArray[np.uint32]


def with_word(at: int, value: int) -> Callable[[Words], Words]:
    def change(words: Words) -> Words:
        changed = words.copy()
        changed[at] = value
        return changed

    return change


WRONG: dict[str, Callable[[Words], Words]] = {
    "no header": lambda words: words[: HEADER_WORDS - 1],
    "magic": with_word(0, 0x324D5247),
    "cut": lambda words: words[:-1],
    "too long": lambda words: np.append(words, np.uint32(0)),
    **{
        name: with_word(at, value)
        for name, at, value in (
            ("no states", 2, 0),
            ("many states", 2, 2**31),
            ("columns", 3, 257),
            ("returns", 4, 0),
            ("start", 5, 0),
            ("start behind", 5, 4),
            ("stack", 6, 33),
            ("reserved", 7, 1),
            ("column of a byte", 8, 0x01010100),
            ("column behind", 8, 0x01010105),
            ("return", HEADER_WORDS + 1, 4),
            ("dead state", HEADER_WORDS + 2, 1),
            ("state word", HEADER_WORDS + 7, 1 << 16),
            ("move", HEADER_WORDS + 8, 4),
            ("call", HEADER_WORDS + 8, 2 * CALL | 1),
        )
    },
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_grammar_is_refused(wrong: Callable[[Words], Words]) -> None:
    words = np.frombuffer(nested(3).pack(), np.uint32)
    unpack(words.tobytes())
    with pytest.raises(GrammarError):
        unpack(wrong(words).tobytes())
