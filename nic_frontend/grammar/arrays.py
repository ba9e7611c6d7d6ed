"""Arrays of a schema.

Behind items that have schemas of their own (`prefixItems`) more follow only if the schema says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    any_of,
    members,
    optional,
    repeated,
    sequence,
)
from nic_frontend.grammar.instance import equal, item_place
from nic_frontend.grammar.json_text import COMMA, constant, enclosed, separated
from nic_frontend.grammar.keywords import bounds_of, count, few
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.vocabulary import MORE_ITEMS

MAX_PREFIX = 200
MAX_CONTAINED = 32

Value = Callable[[tuple[Place, ...]], Expression]
Constants = Callable[[tuple[Place, ...]], list[Any] | None]


def arrays(places: list[Place], value: Value, constants: Constants) -> Expression:
    """Arrays that are valid for all of the schemas; `value` makes expressions of their items, and `constants`
    knows the values of those of which there are some only.
    """
    least, most = bounds_of(places, "minItems", "maxItems")
    contained = _contains(places)
    own = max(map(_prefix_length, places))
    if own > MAX_PREFIX:
        raise GrammarRefused(f"more than {MAX_PREFIX} items with schemas of their own", places[0].where)
    items = [value(_spec(places, i)) for i in range(own)]
    more = NOTHING if own and own >= least and not _says_more(places) else value(_spec(places, own))
    if contained is not None:
        if own:
            raise GrammarRefused("'contains' is not supported beside 'prefixItems'", contained.place.where)
        _check_unique(places, most)
        return _containing(_spec(places, 0), value, contained, least, most)
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
    return len(prefix)


def _spec(places: list[Place], index: int) -> tuple[Place, ...]:
    """The schemas of an item."""
    found = [item_place(place, index) for place in places]
    closing = [] if any(found) else [_unevaluated(place) for place in places]
    return tuple(place for place in (*found, *closing) if place is not None)


def _unevaluated(place: Place) -> Place | None:
    assert isinstance(place.value, dict)
    closes = place.value.get(MORE_ITEMS)
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


@dataclass(frozen=True)
class Contained:
    """How many items must be valid for one more schema; `most` None: any number may be."""

    place: Place
    least: int
    most: int | None

    @property
    def others(self) -> Place:
        """The schema of those that are not."""
        place = self.place
        return Place({"not": place.value}, place.where, place.base, place.alone)


def _contains(places: list[Place]) -> Contained | None:
    found = []
    for place in places:
        assert isinstance(place.value, dict)
        if "contains" not in place.value:
            continue
        least = few(place, "minContains", 1)
        most = count(place, "maxContains", 0) if "maxContains" in place.value else None
        if least or most is not None:
            found.append(Contained(place.inner(place.value["contains"], "contains"), least, most))
    if len(found) > 1:
        raise GrammarRefused("'contains' is not supported more than once", found[1].place.where)
    return found[0] if found else None


def _containing(
    spec: tuple[Place, ...], value: Value, contained: Contained, least: int, most: int | None
) -> Expression:
    """The items that have to be there come first; where there may only be so many, the others are none of
    them.
    """
    wanted = value((*spec, contained.place))
    if contained.most is None:
        return _begun(wanted, contained.least, value(spec), least, most)
    if contained.most - contained.least > MAX_CONTAINED:
        raise GrammarRefused(
            f"'maxContains' is supported up to {MAX_CONTAINED} above 'minContains'", contained.place.where
        )
    others = value((*spec, contained.others))
    numbers = range(contained.least, contained.most + 1)
    return any_of(_begun(wanted, n, others, least, most) for n in numbers)


def _begun(first: Expression, n: int, more: Expression, least: int, most: int | None) -> Expression:
    """Arrays that begin with n items of one kind, then any number of others."""
    if most is not None and most < n:
        return NOTHING
    if not n and (most == 0 or more is NOTHING):
        return NOTHING if least else enclosed("[", EMPTY, "]", True)
    if not n:
        return enclosed("[", _items([], more, max(least, 1), most), "]", least == 0)
    rest = repeated(separated(more), max(least - n, 0), None if most is None else most - n)
    return enclosed("[", sequence(first, repeated(separated(first), n - 1, n - 1), rest), "]", False)
