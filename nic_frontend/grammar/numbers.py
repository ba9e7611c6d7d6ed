"""Numbers between bounds, as languages of digits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    any_of,
    both,
    literal,
    multiples,
    optional,
    repeated,
    sequence,
    without,
)
from nic_frontend.grammar.expression import characters as one_character
from nic_frontend.grammar.json_text import DIGIT, DIGITS, FRACTION, INTEGER, NUMBER
from nic_frontend.grammar.refusal import GrammarRefused

MAX_DIGITS = 400  # of a bound: the largest double has 309
MAX_MULTIPLE = 10_000  # digits as they are read leave as many remainders
SIGNIFICANT = 15  # digits that a double keeps apart from any others


@dataclass(frozen=True)
class Bounds:
    """None: there is none."""

    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False  # the bound itself is outside
    high_open: bool = False

    @property
    def free(self) -> bool:
        return self.low is None and self.high is None

    def without(self, values: Collection[Fraction]) -> list[Bounds]:
        """The parts that some values leave."""
        parts, low, low_open = [], self.low, self.low_open
        for value in sorted(filter(self._holds, values)):
            if low is None or low < value:
                parts.append(Bounds(low, value, low_open, True))
            low, low_open = value, True
        if low is None or low != self.high or not low_open:
            parts.append(Bounds(low, self.high, low_open, self.high_open))
        return parts

    def _holds(self, value: Fraction) -> bool:
        above = self.low is None or value > self.low or (value == self.low and not self.low_open)
        return above and (
            self.high is None or value < self.high or (value == self.high and not self.high_open)
        )


def exact(value: float) -> Fraction:
    """A number of JSON as it was written."""
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


def integers(bounds: Bounds, multiple_of: int = 1) -> Expression:
    """Integers within bounds that are multiples. Raises GrammarRefused."""
    low = None if bounds.low is None else ceil(bounds.low)
    high = None if bounds.high is None else floor(bounds.high)
    low = low + 1 if low is not None and bounds.low_open and low == bounds.low else low
    high = high - 1 if high is not None and bounds.high_open and high == bounds.high else high
    if low is None and high is None and multiple_of == 1:
        return INTEGER
    parts = []
    if high is None or high >= 0:
        least = max(low or 0, 0)
        parts.append(_multiples(_naturals(least, high), multiple_of))
    if low is None or low < 0:
        least = max(1, 1 if high is None else -high)
        parts.append(
            sequence(literal("-"), _multiples(_naturals(least, None if low is None else -low), multiple_of))
        )
    return any_of(parts)


def _multiples(naturals: Expression, divisor: int) -> Expression:
    if divisor == 1 or naturals is NOTHING:
        return naturals
    zeros = len(str(divisor)) - len(str(divisor).rstrip("0"))  # which a multiple ends with, too
    _check_multiple(divisor // 10**zeros)
    found = multiples(divisor // 10**zeros)
    if zeros:
        found = any_of([literal("0"), sequence(without(found, literal("0")), literal("0" * zeros))])
    return both(naturals, found)


def _check_multiple(divisor: int, places: int = 0) -> None:
    if divisor * (places + 1) > MAX_MULTIPLE:
        written = f"{divisor} / 10^{places}" if places else str(divisor)
        raise GrammarRefused(f"multiples of {written} need more than {MAX_MULTIPLE} states")


def multiples_within(bounds: Bounds, step: Fraction) -> Expression:
    """Numbers within bounds that are multiples of a decimal fraction: without an exponent, and of so few
    digits that a double keeps them apart. Raises GrammarRefused.
    """
    places = 0
    while (step * 10**places).denominator != 1:
        places += 1
        if places >= SIGNIFICANT:
            raise GrammarRefused("it has too many digits behind the point")
    divisor = int(step * 10**places)
    _check_multiple(divisor, places)
    whole = any_of([literal("0"), sequence(_digits(1, 9), repeated(DIGIT, 0, SIGNIFICANT - places - 1))])
    short = sequence(whole, optional(sequence(literal("."), DIGITS)))
    found = sequence(optional(literal("-")), both(short, multiples(divisor, places)))
    return found if bounds.free else both(decimals(bounds), found)


def _digits(first: int, last: int) -> Expression:
    return one_character([(0x30 + first, 0x30 + last)]) if first <= last else NOTHING


def _naturals(low: int, high: int | None) -> Expression:
    """From low to high, both included; high None: without end."""
    if high is not None and high < low:
        return NOTHING
    written = str(low)
    if max(len(written), len(str(high or 0))) > MAX_DIGITS:
        raise GrammarRefused("a bound has too many digits")
    shortest, longest = len(written), None if high is None else len(str(high))
    if longest == shortest:
        return _between(written, str(high))
    parts = [_between(written, "9" * shortest)]
    if longest is not None:
        parts.append(_between("1" + "0" * (longest - 1), str(high)))
    if longest is None or longest > shortest + 1:  # of the lengths between, all there are
        more = repeated(DIGIT, shortest, None if longest is None else longest - 2)
        parts.append(sequence(_digits(1, 9), more))
    return any_of(parts)


def _between(low: str, high: str) -> Expression:
    """Digits of one length, none smaller than `low` and none larger than `high`."""
    if not low:
        return EMPTY
    first, last = int(low[0]), int(high[0])
    if first == last:
        return sequence(literal(low[0]), _between(low[1:], high[1:]))
    n = len(low) - 1
    return any_of(
        [
            sequence(literal(low[0]), _at_least(low[1:])),
            sequence(_digits(first + 1, last - 1), repeated(DIGIT, n, n)),
            sequence(literal(high[0]), _at_most(high[1:])),
        ]
    )


def _at_least(low: str) -> Expression:
    if not low:
        return EMPTY
    n = len(low) - 1
    larger = sequence(_digits(int(low[0]) + 1, 9), repeated(DIGIT, n, n))
    return any_of([sequence(literal(low[0]), _at_least(low[1:])), larger])


def _at_most(high: str) -> Expression:
    if not high:
        return EMPTY
    n = len(high) - 1
    smaller = sequence(_digits(0, int(high[0]) - 1), repeated(DIGIT, n, n))
    return any_of([sequence(literal(high[0]), _at_most(high[1:])), smaller])


def decimals(bounds: Bounds) -> Expression:
    """Numbers within bounds: without an exponent, and of as many digits as a double keeps, so that who reads
    them finds the same.

    Raises GrammarRefused where the bounds themselves have more.
    """
    if bounds.free:
        return NUMBER
    parts = []
    if bounds.high is None or bounds.high >= 0:
        low = bounds.low if bounds.low is not None and bounds.low >= 0 else Fraction(0)
        low_open = bounds.low_open and low == bounds.low
        parts.append(_positive(low, low_open, bounds.high, bounds.high_open))
    if bounds.low is None or bounds.low < 0:
        low = -bounds.high if bounds.high is not None and bounds.high <= 0 else Fraction(0)
        low_open = bounds.high_open if bounds.high is not None and bounds.high <= 0 else True
        high = None if bounds.low is None else -bounds.low
        parts.append(sequence(literal("-"), _positive(low, low_open, high, bounds.low_open)))
    return any_of(parts)


def _written(value: Fraction) -> tuple[int, str]:
    """The whole part, and the digits behind the point."""
    whole = floor(value)
    rest, digits = value - whole, ""
    while rest:
        rest *= 10
        digits += str(floor(rest))
        rest -= floor(rest)
        if len(digits) + len(str(whole)) > SIGNIFICANT:
            raise GrammarRefused("a bound of numbers has too many digits behind the point")
    return whole, digits


def _positive(low: Fraction, low_open: bool, high: Fraction | None, high_open: bool) -> Expression:
    """Numbers that are not negative."""
    if high is not None and (high < low or (high == low and (low_open or high_open))):
        return NOTHING
    whole_low, digits_low = _written(low)
    room = max(SIGNIFICANT - len(str(whole_low if high is None else floor(high))), 0)
    any_fraction = optional(sequence(literal("."), repeated(DIGIT, 1, room))) if room else EMPTY
    above = _fraction_above(digits_low, low_open, room)
    if high is None:
        more = sequence(
            _naturals(whole_low + 1, None),
            optional(FRACTION) if whole_low == 0 and not digits_low else any_fraction,
        )
        return any_of([sequence(literal(str(whole_low)), above), more])
    whole_high, digits_high = _written(high)
    below = _fraction_below(digits_high, high_open, room)
    if whole_low == whole_high:
        within = NOTHING if below is NOTHING or above is NOTHING else both(above, below)
        return sequence(literal(str(whole_low)), within)
    return any_of(
        [
            sequence(literal(str(whole_low)), above),
            sequence(_naturals(whole_low + 1, whole_high - 1), any_fraction),
            sequence(literal(str(whole_high)), below),
        ]
    )


def _fraction_above(digits: str, is_open: bool, room: int) -> Expression:
    """What may stand behind the whole part of a bound: at least these digits, or more than them."""
    tail = repeated(DIGIT, 0, max(room - len(digits), 0))
    parts = []
    for i, digit in enumerate(digits):  # larger for the first time here
        larger = _digits(int(digit) + 1, 9)
        parts.append(sequence(literal("." + digits[:i]), larger, repeated(DIGIT, 0, max(room - i - 1, 0))))
    positive = sequence(repeated(literal("0"), 0, max(room - len(digits) - 1, 0)), _digits(1, 9))
    if not is_open:
        parts.append(sequence(literal("." + digits), tail) if digits else EMPTY)
        if not digits:
            parts.append(sequence(literal("."), repeated(DIGIT, 1, room)) if room else NOTHING)
    elif room > len(digits):
        rest = repeated(DIGIT, 0, max(room - len(digits) - 1, 0))
        parts.append(sequence(literal("." + digits), _limited(sequence(positive, rest), room - len(digits))))
    return any_of(parts)


def _limited(language: Expression, most: int) -> Expression:
    """Of at most so many digits."""
    return both(language, repeated(DIGIT, 1, most))


def _fraction_below(digits: str, is_open: bool, room: int) -> Expression:
    """... at most these digits, or less than them."""
    parts = []
    for i, digit in enumerate(digits):  # smaller for the first time here, by a digit or by its end
        smaller = _digits(0, int(digit) - 1)
        parts.append(sequence(literal("." + digits[:i]), smaller, repeated(DIGIT, 0, max(room - i - 1, 0))))
        parts.append(literal("." + digits[:i]) if i else EMPTY)
    if not is_open:
        zeros = repeated(literal("0"), 0, max(room - len(digits), 0))
        parts.append(sequence(literal("." + digits), zeros) if digits else EMPTY)
        if not digits and room:
            parts.append(sequence(literal("."), repeated(literal("0"), 1, room)))
    return any_of(parts)
