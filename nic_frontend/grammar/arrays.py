"""Arrays of a schema.

Behind items that have schemas of their own (`prefixItems`) more follow only if the schema says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    members,
    optional,
    repeated,
    sequence,
)
from nic_frontend.grammar.instance import equal, item_place
from nic_frontend.grammar.json_text import COMMA, constant, enclosed, separated
from nic_frontend.grammar.keywords import bounds_of, count
from nic_frontend.grammar.references import Place
from nic_frontend.grammar.refusal import GrammarRefused

MAX_PREFIX = 200

Value = Callable[[tuple[Place, ...]], Expression]
Constants = Callable[[tuple[Place, ...]], list[Any] | None]


def arrays(places: list[Place], value: Value, constants: Constants) -> Expression:
    """Arrays that are valid for all of the schemas; `value` makes expressions of their items, and `constants`
    knows the values of those of which there are some only.
    """
    least, most = bounds_of(places, "minItems", "maxItems")
    wanted, contained = _contains(places)
    least = max(least, wanted)
    own = max(map(_prefix_length, places))
    if own > MAX_PREFIX:
        raise GrammarRefused(f"more than {MAX_PREFIX} items with schemas of their own", places[0].where)
    items = [value(_spec(places, i)) for i in range(own)]
    more = NOTHING if own and own >= least and not _says_more(places) else value(_spec(places, own))
    if wanted:
        return _containing(places, items, more, value(_spec(places, own) + contained), (wanted, least, most))
    listed = constants(_spec(places, 0)) if _are_unique(places) and not own else None
    if listed is not None and least <= 1 and most is None:
        return _each_once(listed, least)
    _check_unique(places, most)
    if most == 0 or (not items and more is NOTHING):
        return enclosed("[", EMPTY, "]", True) if least == 0 else NOTHING
    inner = _items(items, more, least, most)
    return (
        enclosed("[", inner, "]", least == 0)
        if inner is not NOTHING or least
        else enclosed("[", EMPTY, "]", True)
    )


def _items(items: list[Expression], more: Expression, least: int, most: int | None) -> Expression:
    """At least one."""
    first = items[0] if items else more
    n = max(len(items), 1)
    behind: Expression
    if most is not None and most <= n:
        behind = EMPTY if least <= n else NOTHING
    else:
        behind = repeated(separated(more), max(least - n, 0), None if most is None else most - n)
    for i in range(n - 1, 0, -1):
        if most is not None and i >= most:
            behind = EMPTY
            continue
        behind = sequence(separated(items[i]), behind)
        if i >= least:
            behind = optional(behind) if behind is not NOTHING else EMPTY
    return sequence(first, behind)


def _prefix_length(place: Place) -> int:
    schema = place.value
    assert isinstance(schema, dict)
    items = schema.get("items")
    prefix = items if isinstance(items, list) else schema.get("prefixItems", [])
    if not isinstance(prefix, list):
        raise GrammarRefused("'prefixItems' must be an array", f"{place.where}/prefixItems")
    return len(prefix)


def _spec(places: list[Place], index: int) -> tuple[Place, ...]:
    """The schemas of an item."""
    found = [item_place(place, index) for place in places]
    closing = [] if any(found) else [_unevaluated(place) for place in places]
    return tuple(place for place in (*found, *closing) if place is not None)


def _unevaluated(place: Place) -> Place | None:
    assert isinstance(place.value, dict)
    closes = place.value.get("x-more-items")
    return None if closes is None else place.inner(closes, "unevaluatedItems")


def _says_more(places: list[Place]) -> bool:
    """Whether some schema has a word about what comes behind those of their own."""
    own = max(map(_prefix_length, places))
    return any(item_place(place, own) is not None or _unevaluated(place) is not None for place in places)


def _are_unique(places: list[Place]) -> bool:
    return any(place.value.get("uniqueItems") for place in places if isinstance(place.value, dict))


def _each_once(values: list[Any], least: int) -> Expression:
    """Some of the values, in their order."""
    distinct: list[Any] = []
    for value in values:
        if not any(equal(value, other) for other in distinct):
            distinct.append(value)
    if not distinct:
        return NOTHING if least else enclosed("[", EMPTY, "]", True)
    inner = members(COMMA, [(constant(value), False) for value in distinct])
    return enclosed("[", inner, "]", least == 0)


def _check_unique(places: list[Place], most: int | None) -> None:
    for place in places:
        assert isinstance(place.value, dict)
        if place.value.get("uniqueItems") and (most is None or most > 1):
            raise GrammarRefused("'uniqueItems' is not supported", f"{place.where}/uniqueItems")


def _contains(places: list[Place]) -> tuple[int, tuple[Place, ...]]:
    """How many items must be valid for more, and for what."""
    found = []
    for place in places:
        assert isinstance(place.value, dict)
        if "contains" not in place.value:
            continue
        if "maxContains" in place.value:
            raise GrammarRefused("'maxContains' is not supported", f"{place.where}/maxContains")
        if wanted := count(place, "minContains", 1):
            found.append((wanted, place.inner(place.value["contains"], "contains")))
    if len(found) > 1:
        raise GrammarRefused("'contains' is not supported more than once", found[1][1].where)
    return (found[0][0], (found[0][1],)) if found else (0, ())


def _containing(
    places: list[Place],
    items: list[Expression],
    more: Expression,
    wanted: Expression,
    counts: tuple[int, int, int | None],
) -> Expression:
    """The items that have to be there come first."""
    n, least, most = counts
    if items:
        where = next(
            place.where for place in places if isinstance(place.value, dict) and "contains" in place.value
        )
        raise GrammarRefused("'contains' is not supported beside 'prefixItems'", f"{where}/contains")
    _check_unique(places, most)
    if most is not None and most < n:
        return NOTHING
    rest = repeated(separated(more), max(least - n, 0), None if most is None else most - n)
    return enclosed("[", sequence(wanted, *([separated(wanted)] * (n - 1)), rest), "]", False)
