"""What schemas say about types and counts."""

from __future__ import annotations

import math
from typing import Any

from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.vocabulary import ALL_TYPES, OF_KEYWORDS, TYPES

MOST_NEEDED = 65_535  # things that there must be: an automaton has no more states
BOUNDLESS = 1 << 31  # no answer has so many


def named_types(place: Place) -> frozenset[str]:
    """Those that a schema's `type` allows."""
    assert isinstance(place.value, dict)
    given = place.value.get("type")
    if given is None:
        return ALL_TYPES
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) and name in TYPES for name in names):
        raise GrammarRefused(f"'type' must be one of {', '.join(TYPES)}", f"{place.where}/type")
    return frozenset().union(*(TYPES[name] for name in names))


def types_of(places: list[Place]) -> frozenset[str]:
    """Those that an answer may have. Where no schema names any, its keywords tell which are meant."""
    found = ALL_TYPES
    for place in places:
        found &= named_types(place)
    if any("type" in place.value for place in places if isinstance(place.value, dict)):
        return found
    used = {keyword for place in places if isinstance(place.value, dict) for keyword in place.value}
    meant = frozenset().union(*(types for keywords, types in OF_KEYWORDS if used & keywords))
    return meant or found


def count(place: Place, keyword: str, default: int) -> int:
    """A keyword that is a number of things."""
    assert isinstance(place.value, dict)
    value = place.value.get(keyword, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise GrammarRefused(
            f"{keyword!r} must be an integer that is not negative", f"{place.where}/{keyword}"
        )
    return value


def bounds_of(places: list[Place], least: str, most: str) -> tuple[int, int | None]:
    """How many there may be, with all of the schemas. Raises GrammarRefused where it must be too many."""
    low = max(few(place, least, 0) for place in places)
    highs = [
        count(place, most, 0) for place in places if isinstance(place.value, dict) and most in place.value
    ]
    high = min(highs, default=BOUNDLESS)
    return low, None if high >= BOUNDLESS else high


def few(place: Place, keyword: str, default: int) -> int:
    """A keyword that is the least number of things, each of which has a state of its own."""
    found = count(place, keyword, default)
    if found > MOST_NEEDED:
        raise GrammarRefused(f"{keyword!r} is supported up to {MOST_NEEDED}", f"{place.where}/{keyword}")
    return found


def is_number(value: Any) -> bool:
    """And one of JSON: there is nothing infinite in it."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    kinds = {float: "fraction", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]
