"""Languages as expressions: what the native compiler (native/grammar/compiler.h) makes automata of.

An expression may be used in many places. A `Rule` is one that may call itself; others are called where that
makes the automaton smaller (program.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nic_frontend.grammar.abi import GRAMMAR_NO_LIMIT, GrammarOp
from nic_frontend.grammar.characters import Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    op: GrammarOp
    inner: tuple[Expression, ...] = ()
    numbers: Sequence[int] = ()
    rule: Rule | None = None


@dataclass(slots=True, eq=False)
class Rule:
    """`shared`: it is called from many places, however small it is. `greedy`: it takes what it can, also
    where something else might take it.
    """

    name: str
    body: Expression | None = None
    shared: bool = False
    greedy: bool = False


EMPTY = Expression(GrammarOp.EMPTY)
NOTHING = Expression(GrammarOp.NOTHING)
BEGIN = Expression(GrammarOp.BEGIN)
END = Expression(GrammarOp.END)


def literal(text: str | bytes) -> Expression:
    data = text.encode() if isinstance(text, str) else text
    return Expression(GrammarOp.BYTES, numbers=data) if data else EMPTY


def characters(ranges: Ranges, in_json: bool = False) -> Expression:
    """One character of the ranges. `in_json`: as it stands in a string of JSON."""
    if not ranges:
        return NOTHING
    numbers = [int(in_json), *(bound for pair in ranges for bound in pair)]
    return Expression(GrammarOp.CHARS, numbers=numbers)


def one_of(text: str) -> Expression:
    """One of these characters."""
    return characters(sorted((ord(c), ord(c)) for c in set(text)))


def sequence(*parts: Expression) -> Expression:
    if any(part is NOTHING for part in parts):
        return NOTHING
    kept = [part for part in parts if part is not EMPTY]
    if len(kept) < 2:
        return kept[0] if kept else EMPTY
    return Expression(GrammarOp.CAT, tuple(kept))


def any_of(parts: Iterable[Expression]) -> Expression:
    kept = list(dict.fromkeys(part for part in parts if part is not NOTHING))
    if len(kept) < 2:
        return kept[0] if kept else NOTHING
    return Expression(GrammarOp.ALT, tuple(kept))


def repeated(part: Expression, least: int = 0, most: int | None = None) -> Expression:
    """So many times; `most` None: any number."""
    if most == 0 or (part is NOTHING and least == 0):
        return EMPTY
    if part is NOTHING or part is EMPTY or (least == 1 and most == 1):
        return part
    return Expression(GrammarOp.REPEAT, (part,), (least, GRAMMAR_NO_LIMIT if most is None else most))


def optional(part: Expression) -> Expression:
    return repeated(part, 0, 1)


def call(rule: Rule) -> Expression:
    return Expression(GrammarOp.CALL, rule=rule)


def closed(part: Expression) -> Expression:
    """An expression with anchors, which hold at its own ends."""
    return Expression(GrammarOp.CLOSED, (part,))


def both(first: Expression, second: Expression) -> Expression:
    """What is in both languages, neither of which calls rules."""
    return Expression(GrammarOp.BOTH, (first, second))


def without(first: Expression, second: Expression) -> Expression:
    """What is in the first language and not in the second, neither of which calls rules."""
    return Expression(GrammarOp.EXCEPT, (first, second))


def until(mark: str | bytes) -> Expression:
    """Any text that ends with the first time that the mark stands in it."""
    data = mark.encode() if isinstance(mark, str) else mark
    return Expression(GrammarOp.UNTIL, numbers=data)


def multiples(divisor: int, places: int = 0) -> Expression:
    """Decimal numbers without sign and leading zeros, with at most so many digits behind the point, that are
    multiples of divisor / 10^places.
    """
    return Expression(GrammarOp.MULTIPLE, numbers=(divisor, places))


def members(
    separator: Expression, parts: Sequence[tuple[Expression, bool]], extra: Expression = NOTHING
) -> Expression:
    """Parts in their order, each with whether it must be there, then any number of extras; at least one in
    all, with separators between them.
    """
    if any(part is NOTHING and required for part, required in parts):
        return NOTHING
    kept = [(part, required) for part, required in parts if part is not NOTHING]
    inner = (separator, extra, *(part for part, _ in kept))
    return Expression(GrammarOp.MEMBERS, inner, [int(required) for _, required in kept])
