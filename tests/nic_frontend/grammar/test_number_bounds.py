"""Numbers within bounds: just those that are, in the one form that is taken."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from walking import grammar_of

from nic_frontend.grammar.expression import NOTHING
from nic_frontend.grammar.numbers import Bounds, decimals, integers, multiples_within
from nic_frontend.grammar.refusal import GrammarRefused
from ringbuffer.grammar import accepts

LOWS = (None, "0", "1.1", "-2.5", "10", "-0.1")
HIGHS = (None, "3", "1.1", "100", "-1", "11.11")
WHOLE = ("0", "1", "2", "3", "9", "10", "11", "12", "99", "100", "101")
PARTS = ("", ".0", ".09", ".1", ".10", ".11", ".5", ".999")
TEXTS = [sign + whole + part for sign in ("", "-") for whole in WHOLE for part in PARTS]


def within(value: Fraction, bounds: Bounds) -> bool:
    low, high = bounds.low, bounds.high
    above = low is None or value > low or (value == low and not bounds.low_open)
    return above and (high is None or value < high or (value == high and not bounds.high_open))


def test_a_bound_of_many_digits() -> None:
    """Its lengths are not gone through one by one, which took seconds."""
    most = 10**308
    grammar = grammar_of(integers(Bounds(Fraction(7), Fraction(most))))
    texts = ("6", "7", "10", "9" * 308, str(most), str(most + 1), "9" * 309)
    assert [accepts(grammar, text.encode()) for text in texts] == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("low", "high"), [pair for pair in itertools.product(LOWS, HIGHS) if any(pair)])
def test_bounds(low: str | None, high: str | None) -> None:
    for low_open, high_open in itertools.product((False, True), repeat=2):
        bounds = Bounds(low and Fraction(low), high and Fraction(high), low_open, high_open)
        for language, integral in ((decimals(bounds), False), (integers(bounds), True)):
            texts = [text for text in TEXTS if not (integral and "." in text)]
            texts = [text for text in texts if not (text.startswith("-") and Fraction(text) == 0)]
            if language is NOTHING:
                assert not any(within(Fraction(text), bounds) for text in texts)
                continue
            try:
                grammar = grammar_of(language)
            except GrammarRefused:
                assert not any(within(Fraction(text), bounds) for text in texts)
                continue
            for text in texts:
                assert accepts(grammar, text.encode()) == within(Fraction(text), bounds), (text, bounds)


def test_multiples() -> None:
    grammar = grammar_of(integers(Bounds(Fraction(-30), Fraction(100)), 15))
    taken = [n for n in range(-200, 200) if accepts(grammar, str(n).encode())]
    assert taken == [-30, -15, 0, 15, 30, 45, 60, 75, 90]


@pytest.mark.parametrize("step", ["0.1", "0.01", "0.25", "2.5", "1.1", "0.003", "7.5"])
@pytest.mark.parametrize(("low", "high"), [(None, None), ("1.1", None), (None, "11.11"), ("-2.5", "100")])
def test_decimal_multiples(step: str, low: str | None, high: str | None) -> None:
    """Of which the digits decide, and no division of doubles: 0.3 is a multiple of 0.1."""
    bounds = Bounds(low and Fraction(low), high and Fraction(high), True, False)
    grammar = grammar_of(multiples_within(bounds, Fraction(step)))
    places = len(step.partition(".")[2])
    parts = ("", ".0", ".00", ".1", ".10", ".11", ".25", ".3", ".5", ".75", ".009", ".0090")
    for text in (sign + whole + part for sign in ("", "-") for whole in WHOLE for part in parts):
        if text.startswith("-") and Fraction(text) == 0:
            continue
        short = len(text.partition(".")[2]) <= places
        right = short and Fraction(text) % Fraction(step) == 0 and within(Fraction(text), bounds)
        assert accepts(grammar, text.encode()) == right, text


def test_multiples_keep_to_what_a_double_tells_apart() -> None:
    grammar = grammar_of(multiples_within(Bounds(), Fraction("0.01")))
    assert accepts(grammar, b"1234567890123.45")
    assert not accepts(grammar, b"12345678901234.56")
    assert not accepts(grammar, b"1e2")


def test_multiples_of_round_numbers() -> None:
    """Zeros at the end need no remainders."""
    grammar = grammar_of(integers(Bounds(high=Fraction(10_000_000)), 2_500_000))
    assert [n for n in range(0, 20_000_000, 250_000) if accepts(grammar, str(n).encode())] == [
        0, 2_500_000, 5_000_000, 7_500_000, 10_000_000,
    ]  # fmt: skip
    assert accepts(grammar, b"-2500000")
    assert not accepts(grammar, b"00")


def test_digits_that_a_double_would_lose() -> None:
    """1.099... with more digits would be read as 1.1, which is outside."""
    grammar = grammar_of(decimals(Bounds(None, Fraction("1.1"), high_open=True)))
    assert accepts(grammar, b"1.0999")
    assert not accepts(grammar, b"1.0999999999999999999999")


def test_what_is_refused() -> None:
    with pytest.raises(GrammarRefused, match="multiples"):
        integers(Bounds(), 1_000_003)
    with pytest.raises(GrammarRefused, match="multiples"):
        multiples_within(Bounds(), Fraction("1.234567"))
    with pytest.raises(GrammarRefused, match="digits"):
        multiples_within(Bounds(), Fraction(1, 3))
    with pytest.raises(GrammarRefused, match="digits"):
        decimals(Bounds(Fraction(1, 3)))
