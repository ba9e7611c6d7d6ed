"""JSON as answers have it.

Between its parts there may be nothing, a space, or the end of a line and up to MAX_INDENT spaces; behind a
colon at most a space. That is what encoders and models write, and it ends. Numbers have no more forms than
JSON gives them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nic_frontend.grammar import characters
from nic_frontend.grammar.expression import (
    EMPTY,
    Expression,
    Rule,
    any_of,
    call,
    literal,
    one_of,
    optional,
    repeated,
    sequence,
)
from nic_frontend.grammar.expression import characters as one_character

MAX_INDENT = 32

HEX = one_character([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)])

LINE = Rule("the end of a line", sequence(literal("\n"), repeated(literal(" "), 0, MAX_INDENT)), shared=True)
GAP = any_of([EMPTY, literal(" "), call(LINE)])
AFTER_COLON = optional(literal(" "))


def _escape() -> Expression:
    """Those that mean the same in Python (parsing/string_scanner.py): not a slash, nor half a character."""
    low = sequence(one_of("0123456789abcefABCEF"), HEX, HEX, HEX)
    below_halves = sequence(one_of("dD"), one_of("01234567"), HEX, HEX)
    unicode = sequence(literal("u"), any_of([low, below_halves]))
    return sequence(literal("\\"), any_of([one_of('"\\bfnrt'), unicode]))


SHORT = one_character([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F)])
LONG = any_of([one_character([(0x80, characters.LAST)]), _escape()])
CHARACTER = any_of([SHORT, call(Rule("a character", LONG, shared=True))])  # to call it keeps strings small

# Of a string with a bound: all but the last have so many characters. It begins without a call, because a byte
# can push one state only.
BLOCK = 64
CHARACTERS = Rule(
    f"{BLOCK} characters",
    sequence(any_of([SHORT, LONG]), repeated(CHARACTER, 0, BLOCK - 1)),
    shared=True,
    greedy=True,
)

QUOTE = literal('"')


def string(least: int = 0, most: int | None = None) -> Expression:
    """Any string of so many characters."""
    if most is None or most - least <= 2 * BLOCK:
        return sequence(QUOTE, repeated(CHARACTER, least, most), QUOTE)
    blocks = (most - least) // BLOCK - 1
    first = most - blocks * BLOCK  # characters, each with a state of its own
    longer = sequence(repeated(CHARACTER, first, first), repeated(call(CHARACTERS), 0, blocks))
    return sequence(QUOTE, any_of([repeated(CHARACTER, least, first), longer]), QUOTE)


def quoted(text: str) -> str:
    """The one way in which a given string is written."""
    return json.dumps(text, ensure_ascii=False)


DIGIT = one_of("0123456789")
DIGITS = repeated(DIGIT, 1)
WHOLE = any_of([literal("0"), sequence(one_of("123456789"), repeated(DIGIT))])
INTEGER = sequence(optional(literal("-")), WHOLE)
FRACTION = sequence(literal("."), DIGITS)
EXPONENT = sequence(one_of("eE"), optional(one_of("+-")), repeated(DIGIT, 1, 3))
NUMBER = sequence(INTEGER, optional(FRACTION), optional(EXPONENT))
BOOLEAN = any_of([literal("true"), literal("false")])
NULL = literal("null")


def member(key: Expression, value: Expression) -> Expression:
    return sequence(key, literal(":"), AFTER_COLON, value)


COMMA = sequence(literal(","), GAP)


def separated(first: Expression) -> Expression:
    """A member or an item behind another one."""
    return sequence(COMMA, first)


def enclosed(opening: str, inner: Expression, closing: str, may_be_empty: bool) -> Expression:
    """An object or an array; `inner` is never empty."""
    filled = sequence(GAP, inner, GAP)
    return sequence(literal(opening), optional(filled) if may_be_empty else filled, literal(closing))


def _any_value() -> Expression:
    whole_object, whole_array = Rule("any object", shared=True), Rule("any array", shared=True)
    value = any_of([string(), NUMBER, BOOLEAN, NULL, call(whole_object), call(whole_array)])
    pair = member(string(), value)
    whole_object.body = enclosed("{", sequence(pair, repeated(separated(pair))), "}", True)
    whole_array.body = enclosed("[", sequence(value, repeated(separated(value))), "]", True)
    return value


ANY = _any_value()
ANY_OBJECT = ANY.inner[-2]
ANY_ARRAY = ANY.inner[-1]


def constant(value: Any) -> Expression:
    """A given value."""
    if isinstance(value, dict) and value:
        members = [member(literal(quoted(key)), constant(inner)) for key, inner in value.items()]
        return enclosed("{", _listed(members), "}", False)
    if isinstance(value, list) and value:
        return enclosed("[", _listed([constant(inner) for inner in value]), "]", False)
    return literal(json.dumps(value, ensure_ascii=False))


def _listed(parts: Sequence[Expression]) -> Expression:
    return sequence(parts[0], *(separated(part) for part in parts[1:]))
