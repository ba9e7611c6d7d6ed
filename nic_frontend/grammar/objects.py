"""Objects of a schema.

Properties come in the order of the schemas; those that are not required may be left out. Others may follow
only where a schema says so (`additionalProperties`, `patternProperties`), or where none has `properties`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    any_of,
    literal,
    members,
    optional,
    repeated,
    sequence,
    without,
)
from nic_frontend.grammar.instance import Checker
from nic_frontend.grammar.json_text import COMMA, QUOTE, enclosed, member, quoted, separated, string
from nic_frontend.grammar.keywords import bounds_of
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import searched
from nic_frontend.grammar.shapes import check
from nic_frontend.grammar.strings import PLAIN, conditions, within
from nic_frontend.grammar.vocabulary import MORE_PROPERTIES

MAX_PATTERNS = 4
MAX_COUNTED = 12  # properties, where their number matters

Value = Callable[[tuple[Place, ...]], Expression]
Pair = tuple[Expression, bool]  # and whether it is required


class Shape:
    """What several schemas together say about objects."""

    def __init__(self, places: list[Place], checker: Checker) -> None:
        self.places = places
        self._checker = checker
        names: dict[str, None] = {}
        self.required: set[str] = set()
        for place in places:
            assert isinstance(place.value, dict)
            names |= dict.fromkeys(place.value.get("properties", {}))
            self.required |= set(place.value.get("required", []))
        for place in places:
            assert isinstance(place.value, dict)
            names |= dict.fromkeys(place.value.get("required", []))
        self.names = list(names)
        self.has_properties = any(
            "properties" in place.value for place in places if isinstance(place.value, dict)
        )

    def spec(self, name: str) -> tuple[Place, ...] | None:
        """The schemas of a property; None where there may be none of this name."""
        found = [inner for place in self.places for inner in self._checker.member_places(place, name)]
        if not found:
            found += self._unevaluated()
        allowed = all(self._checker.valid(name, where) for where in self.name_places())
        if not allowed or any(place.value is False for place in found):
            return None
        return tuple(found)

    def name_places(self) -> list[Place]:
        return [
            place.inner(place.value["propertyNames"], "propertyNames")
            for place in self.places
            if isinstance(place.value, dict) and "propertyNames" in place.value
        ]

    def _unevaluated(self) -> list[Place]:
        return [
            place.inner(place.value[MORE_PROPERTIES], "unevaluatedProperties")
            for place in self.places
            if isinstance(place.value, dict) and MORE_PROPERTIES in place.value
        ]

    def others(self) -> tuple[Place, ...] | None:
        """The schemas of properties that no schema names and no pattern matches; None: there may be none."""
        rest = [
            place.inner(place.value["additionalProperties"], "additionalProperties")
            for place in self.places
            if isinstance(place.value, dict) and "additionalProperties" in place.value
        ] or self._unevaluated()
        if any(place.value is False for place in rest):
            return None
        if not rest and (self.has_properties or self.patterns()):
            return None
        return tuple(rest)

    def patterns(self) -> list[tuple[Place, str]]:
        found = [
            (place, pattern)
            for place in self.places
            if isinstance(place.value, dict)
            for pattern in place.value.get("patternProperties", {})
        ]
        if len(found) > MAX_PATTERNS:
            raise GrammarRefused(
                f"more than {MAX_PATTERNS} 'patternProperties' are not supported",
                f"{found[0][0].where}/patternProperties",
            )
        return found


def objects(places: list[Place], value: Value, checker: Checker) -> Expression:
    """Objects that are valid for all of the schemas; `value` makes expressions of their properties."""
    shape = Shape(places, checker)
    pairs: list[Pair] = []
    for name in shape.names:
        spec = shape.spec(name)
        if spec is not None:
            pairs.append((member(literal(quoted(name)), value(spec)), name in shape.required))
        elif name in shape.required:
            return NOTHING
    extra = _extra(shape, value)
    least, most = bounds_of(places, "minProperties", "maxProperties")
    n_required = sum(required for _, required in pairs)
    if least > n_required or (most is not None and (most < len(pairs) or extra is not NOTHING)):
        return _counted(pairs, extra, least, most, places)
    if not pairs and extra is NOTHING:
        return enclosed("{", EMPTY, "}", True)
    return enclosed("{", members(COMMA, pairs, extra), "}", n_required == 0)


def _extra(shape: Shape, value: Value) -> Expression:
    """A property that no schema names."""
    names = [language for place in shape.name_places() for language in _name_conditions(place)]
    others = shape.others()
    patterns = shape.patterns()
    if not patterns:
        return NOTHING if others is None else member(_key(names, shape.names), value(others))
    languages = [_pattern(place, pattern) for place, pattern in patterns]
    broad = [_pattern(place, pattern, broad=True) for place, pattern in patterns]
    found = []
    for chosen in itertools.product((True, False), repeat=len(patterns)):
        spec = _spec_of_matching(shape, patterns, chosen)
        if spec is None or (not any(chosen) and others is None):
            continue
        language = within([*names, *(one for one, taken in zip(languages, chosen, strict=True) if taken)], [])
        for one, taken in zip(broad, chosen, strict=True):
            language = language if taken else without(language, one)
        if shape.names:
            language = without(language, any_of([literal(quoted(name)[1:-1]) for name in shape.names]))
        found.append(member(sequence(QUOTE, language, QUOTE), value(spec)))
    return any_of(found)


def _pattern(place: Place, pattern: str, broad: bool = False) -> Expression:
    try:
        return searched(pattern, in_json=True, broad=broad)
    except GrammarRefused as error:
        raise GrammarRefused(str(error), f"{place.where}/patternProperties") from error


def _spec_of_matching(
    shape: Shape, patterns: list[tuple[Place, str]], chosen: tuple[bool, ...]
) -> tuple[Place, ...] | None:
    """The schemas of a property whose name has just these patterns in it."""
    spec = []
    for place in shape.places:
        assert isinstance(place.value, dict)
        inner = [
            place.inner(place.value["patternProperties"][pattern], "patternProperties", pattern)
            for (owner, pattern), taken in zip(patterns, chosen, strict=True)
            if taken and owner is place
        ]
        if not inner and "additionalProperties" in place.value:
            inner = [place.inner(place.value["additionalProperties"], "additionalProperties")]
        spec += inner
    return None if any(place.value is False for place in spec) else tuple(spec)


def _name_conditions(place: Place) -> list[Expression]:
    """What `propertyNames` says of any name."""
    if isinstance(place.value, bool):
        return [] if place.value else [NOTHING]
    known = {
        "pattern",
        "format",
        "minLength",
        "maxLength",
        "enum",
        "const",
        "type",
        "$comment",
        "description",
    }
    if unknown := place.value.keys() - known:
        raise GrammarRefused(f"{min(unknown)!r} is not supported in 'propertyNames'", place.where)
    check(place)
    found = conditions(place)
    if "const" in place.value or "enum" in place.value:
        values = place.value.get("enum", [place.value.get("const")])
        found.append(any_of([literal(quoted(v)[1:-1]) for v in values if isinstance(v, str)]))
    least, most = bounds_of([place], "minLength", "maxLength")
    if least or most is not None:
        found.append(repeated(PLAIN, least, most))
    return found


def _key(conditions_: list[Expression], names: list[str]) -> Expression:
    if not conditions_ and not names:
        return string()
    return sequence(QUOTE, within(conditions_, names), QUOTE)


def _counted(
    pairs: list[Pair], extra: Expression, least: int, most: int | None, places: list[Place]
) -> Expression:
    """With bounds on the number of properties. Of the others one counts: two may have the same name."""
    where = next(
        f"{place.where}/{keyword}"
        for place in places
        for keyword in ("minProperties", "maxProperties")
        if isinstance(place.value, dict) and keyword in place.value
    )
    if len(pairs) > MAX_COUNTED:
        raise GrammarRefused(f"it is supported for objects of up to {MAX_COUNTED} properties", where)
    if least > len(pairs) + (extra is not NOTHING):
        if extra is NOTHING:
            return NOTHING
        raise GrammarRefused("it cannot be reached without counting properties that may be the same", where)
    limit = most if most is not None else len(pairs) + 1

    def rest(i: int, n: int) -> Expression:
        """What may follow behind n properties, from the i-th on."""
        if n > limit:
            return NOTHING
        if i == len(pairs):
            return _others(extra, n, least, most)
        pair, required = pairs[i]
        taken = sequence(separated(pair) if n else pair, rest(i + 1, n + 1))
        return taken if required else any_of([taken, rest(i + 1, n)])

    may_be_empty = least == 0 and not any(required for _, required in pairs)
    return enclosed("{", rest(0, 0), "}", may_be_empty)


def _others(extra: Expression, n: int, least: int, most: int | None) -> Expression:
    """What may follow behind n properties that are named; something has to, where there are none."""
    room = None if most is None else most - n
    if extra is NOTHING or room == 0:
        return EMPTY if n >= max(least, 1) else NOTHING
    more = repeated(separated(extra), 0, None if room is None else room - 1)
    some = sequence(separated(extra) if n else extra, more)
    if n >= max(least, 1):
        return optional(some)
    return some if n + 1 >= least else NOTHING
