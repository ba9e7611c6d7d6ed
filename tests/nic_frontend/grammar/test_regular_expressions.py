"""Regular expressions: those that are taken mean what they mean to Python's re."""

# ruff: noqa: E501 (cases are long)

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections.abc import Iterable

import pytest
from walking import RandomAnswers, grammar_of, taken

from nic_frontend.grammar import characters
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import matched, searched
from ringbuffer.grammar import accepts

PATTERNS = [
    r"a|bc*|",
    r"(ab){2,3}c?",
    r"[^a-c]{2}",
    r"\d{3}-\d{4}",
    r"[\w.+-]+@[a-z]+\.(com|org)",
    r"(?:x|y)+?z",
    r"a{0,2}b",
    r"{a}",
    r"a{x}{2}",
    r"a{}b{2",
    r"a{1,2,3}",
    "a{\u0662}",
    r"\{,3}[{,3}]",
    r"(?:a*)*b",
    r"(?:a{2}){2}?",
    r"[]a]",
    r"[a\]b-]+",
    r"\x41\u00e9[\u4e00-\u9fff]",
    r"(?P<year>\d\d)/\d\d",
    r"\S+\s\D\W",
    r".{3}",
    r"\.\*\[\\",
    r"^(a|b)$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    """What is taken is matched, and found texts that differ in a character are taken just where they match."""
    grammar = grammar_of(matched(pattern))
    source = random.Random(pattern)
    answers = RandomAnswers(grammar, source)
    for _ in range(15):
        answer = answers.one()
        if answer is None:
            continue
        text = answer.decode()
        assert re.fullmatch(pattern, text), text
        at = source.randrange(len(text) + 1)
        other = text[:at] + source.choice("abcxyz019 .@-]") + text[at + source.randrange(2) :]
        assert accepts(grammar, other.encode()) == bool(re.fullmatch(pattern, other)), other


@pytest.mark.parametrize(
    "pattern", ["^a", "b$", "^a|b$", "(^a|c)b", "a(b$|c)", "", "^$", "a.c", "[0-9]+", "^(?:a|b)+$"]
)
def test_searches(pattern: str) -> None:
    """All short texts: taken just where the pattern is found."""
    grammar = grammar_of(searched(pattern))
    texts = [""]
    for _ in range(4):
        texts += [text + c for text in texts if len(text) < 4 for c in "abc1"]
        texts = list(dict.fromkeys(texts))
    for text in texts:
        assert accepts(grammar, text.encode()) == bool(re.search(pattern, text)), text


def test_in_json() -> None:
    """Characters stand as the common encoders write them."""
    assert taken(searched('^["\\\\\n/é]+$', in_json=True), r"\"\\\n/é", '"', r"\u00e9", r"\/") == [
        True,
        False,
        False,
        False,
    ]


def test_look_ahead_in_front() -> None:
    assert taken(searched(r"^(?=.*\d)(?=.*[a-z]).{4,}$"), "abc1", "abcd", "a1", "1a  ") == [
        True,
        False,
        False,
        True,
    ]
    assert taken(searched("^(?!no)[a-z]+$"), "nope", "yes", "no") == [False, True, False]


def test_where_dialects_differ_both_hold() -> None:
    r"""\d is ASCII, as in ECMAScript; what is no digit is none in Python either."""
    assert taken(matched(r"\d\D"), "1a", "\u0661a", "1\u0661") == [True, False, False]
    assert taken(matched(r"[^\W]"), "a", "é") == [True, False]
    assert taken(matched(r"[^\w]"), "-", "é") == [True, False]
    assert taken(matched("."), "a", "\n", "\u2028") == [True, False, False]


def test_categories_of_unicode() -> None:
    assert taken(matched(r"\p{Lu}\p{Letter}+"), "Éa漢", "aa", "A1") == [True, False, False]
    assert taken(matched(r"[\p{Nd}_]+"), "1\u0661_", "a") == [True, False]
    assert taken(matched(r"[^\p{L}]|\P{gc=Lu}"), "1", "a", "A") == [True, True, False]
    assert taken(matched(r"\P{L}"), "1", "a", "\u0378") == [True, False, False]  # no character yet


def test_what_there_may_not_be_is_taken_broadly() -> None:
    """Where dialects differ, a text in which one of them finds the pattern is not without it."""
    assert taken(searched(r"^\d$", broad=True), "1", "\u0661", "1\n", "a") == [True, True, True, False]
    assert taken(searched(r"[^\w]", broad=True), "-", "é", "e") == [True, True, False]
    assert taken(searched(r"^.$", broad=True), "a", "\u2028", "\n") == [True, True, False]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a{,3}", r"'\{,3\}' has no first count, .* write \{0,3\}, or \\\{,3\} for the text"),
        ("(?:[a-z]{,3})+", r"write \{0,3\}"), ("a{2}{,3}", r"write \{0,3\}"), ("a{,}", r"write \{0,\}"),
        ("{,2}", r"'\{,2\}' repeats nothing"), ("{2}", r"'\{2\}' repeats nothing"), ("a|{2,}", r"'\{2,\}' repeats nothing"), ("({0,1})", "repeats nothing"),
        ("a{2}{3}", r"'\{3\}' repeats a repetition"), ("a**", r"'\*' repeats a repetition"), ("a+*", "repeats a repetition"), ("a???", "repeats a repetition"), ("a{2}??", "repeats a repetition"),
        ("a*+", "possessive"), ("a?+", "possessive"), ("a{2}+", "possessive"), ("a*?+", "repeats a repetition"),
        ("(", r"'\)' is missing"), (")", r"'\)' without"), ("*a", "repeats nothing"), ("[a", "ends too early"),
        ("a{3,2}", "wrong order"), ("a{70000}", "too large"), ("a{99999999}", "too large"), ("[z-a]", "range"),
        (r"\1", "not supported"), (r"\bx", "not supported"), (r"\p{Script=Greek}", "no general category"), (r"\pL", "no general category"), ("a++", "possessive"),
        ("(?<=a)b", "look-around"), ("a(?=b)", "look-around"), ("(?i)a", "look-around, a flag"), ("^*", "anchor"),
        (r"\u12", "ends too early"), (r"\xzz", "no character"), ("(" * 200 + ")" * 200, "nested"), ("a\\", "ends too early"),
        (r"[[:alpha:]]", "POSIX"), (r"\q", "not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        matched(pattern)


def test_classes_hold_what_python_says_of_each_character() -> None:
    """The tables look only at the parts of Unicode in which characters differ."""
    everything = "".join(map(chr, range(characters.LAST + 1)))
    for escape in (r"\s", r"\d", r"\w"):
        expected = [ord(character) for character in re.findall(escape, everything)]
        expected += [0xFEFF] if escape == r"\s" else []
        assert _points(characters.python_class(escape)) == sorted(expected)
    by_category: dict[str, list[int]] = {}
    for point, name in enumerate(map(unicodedata.category, everything)):
        by_category.setdefault(name, []).append(point)
    for name, points in by_category.items():
        assert _points(characters.category(name)) == points


def _points(ranges: Iterable[tuple[int, int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(range(first, last + 1) for first, last in ranges))
