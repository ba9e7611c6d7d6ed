"""JSON schemas to languages.

Every keyword of the standard is enforced exactly or refused by name, with its place; what is only said about
a value (titles, defaults, unknown formats) is passed over. Answers are a part of what a schema allows:
json_text.py says how they are written, objects.py and arrays.py which properties and items they leave out,
keywords.py what a schema without a type means.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

from nic_frontend.grammar import keywords
from nic_frontend.grammar.arrays import arrays
from nic_frontend.grammar.choices import Alternative, Choices
from nic_frontend.grammar.expression import NOTHING, Expression, Rule, any_of, call
from nic_frontend.grammar.instance import Checker
from nic_frontend.grammar.json_text import ANY, BOOLEAN, NULL, constant
from nic_frontend.grammar.numbers import Bounds, decimals, exact, integers, multiples_within
from nic_frontend.grammar.objects import objects
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import LONE_SURROGATE, GrammarRefused
from nic_frontend.grammar.strings import strings
from nic_frontend.grammar.vocabulary import MORE_ITEMS, MORE_PROPERTIES, NOT, OPPOSITE

MAX_COMBINATIONS = 256
MAX_DEPTH = 60
MAX_RULES = 10_000  # sets of schemas that values must be valid for
MAX_VALUES = 2_000  # of an enum


def of_schema(document: Any) -> Expression:
    """The values that a schema allows. Raises GrammarRefused."""
    return Translation(References(document)).value()


def of_object_schema(document: Any) -> Expression:
    """Those that are objects. Raises GrammarRefused."""
    references = References(document)
    return Translation(references).value((references.root, Place({"type": "object"}, "#", "")))


class Translation:
    """A schema's places become rules: one for each set of schemas that a value must be valid for."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._checker = Checker(references)
        self._choices = Choices(references, self._checker)
        self._rules: dict[tuple[int, ...], Rule] = {}
        self._strings: dict[str, Rule] = {}
        self._kept: list[Place] = []  # whose values' ids are in use
        self._depth = 0

    def value(self, spec: tuple[Place, ...] | None = None) -> Expression:
        """Values that are valid for all of the schemas; without any, for the whole document."""
        places = self._references.expanded((self._references.root,) if spec is None else spec)
        if places is None:
            return NOTHING
        if not places:
            return ANY
        key = tuple(sorted(id(place.value) for place in places))
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = Rule(places[0].where)
            self._kept += places
            if len(self._rules) > MAX_RULES:
                raise GrammarRefused("too many schemas are combined", places[0].where)
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise GrammarRefused("schemas are nested too deeply", places[0].where)
            try:
                rule.body = self._body(places)
            except GrammarRefused:
                raise
            except UnicodeEncodeError as error:
                raise GrammarRefused(LONE_SURROGATE, places[0].where) from error
            except (ArithmeticError, ValueError) as error:  # numbers that Python does not compute or write
                raise GrammarRefused(f"it cannot be computed: {str(error)[:100]}", places[0].where) from error
            self._depth -= 1
        return NOTHING if rule.body is NOTHING else call(rule)

    def _body(self, places: list[Place]) -> Expression:
        base: list[Place] = []
        chosen: list[list[Alternative]] = []
        for place in places:
            rest, choices = self._choices.split(place)
            if rest is not None:
                base.append(rest)
            chosen += choices
        if not chosen:
            return self._plain(base)
        n = 1
        for alternatives in chosen:
            n *= len(alternatives)
        if n > MAX_COMBINATIONS:
            raise GrammarRefused(
                f"more than {MAX_COMBINATIONS} combinations of alternatives", places[0].where
            )
        combinations = itertools.product(*chosen)
        return any_of(self.value((*base, *itertools.chain(*combination))) for combination in combinations)

    def _plain(self, places: list[Place]) -> Expression:
        """Without alternatives."""
        _check_unevaluated(places)
        if not places:
            return ANY
        for place in places:
            assert isinstance(place.value, dict)
            if "const" in place.value or "enum" in place.value:
                return any_of(map(constant, self._finite(place, places)))
        types = keywords.types_of(places)
        found = []
        if "null" in types:
            found.append(NULL)
        if "boolean" in types:
            found.append(BOOLEAN)
        if types & {"integer", "fraction"}:
            found.append(numbers(places, integral="fraction" not in types))
        if "string" in types:
            found.append(strings(places, self._strings))
        if "array" in types:
            found.append(arrays(places, self.value, self.constants))
        if "object" in types:
            found.append(objects(places, self.value, self._checker))
        return any_of(found)

    def constants(self, spec: tuple[Place, ...]) -> list[Any] | None:
        """The values that are valid for all of the schemas, where one of these lists them."""
        places = self._references.expanded(spec) or []
        for place in places:
            assert isinstance(place.value, dict)
            if "const" in place.value or "enum" in place.value:
                return self._finite(place, places)
        return None

    def _finite(self, place: Place, places: list[Place]) -> list[Any]:
        assert isinstance(place.value, dict)
        name = "const" if "const" in place.value else "enum"
        values = [place.value["const"]] if name == "const" else place.value["enum"]
        if len(values) > MAX_VALUES:
            raise GrammarRefused(f"more than {MAX_VALUES} values", f"{place.where}/enum")
        return [value for value in values if all(self._checker.valid(value, other) for other in places)]


def _check_unevaluated(places: list[Place]) -> None:
    """What a schema must not be evaluates nothing, but its opposite here would."""
    if not any(OPPOSITE in place.value for place in places if isinstance(place.value, dict)):
        return
    for place in places:
        assert isinstance(place.value, dict)
        for keyword in (MORE_PROPERTIES, MORE_ITEMS):
            if keyword in place.value:
                raise GrammarRefused(
                    "'unevaluated...' is not supported beside 'not', 'if' and 'oneOf'", place.where
                )


def numbers(places: list[Place], integral: bool) -> Expression:
    """Numbers that are valid for all of the schemas."""
    bounds, step, where = Bounds(), None, places[0].where
    excluded: set[Fraction] = set()
    for place in places:
        assert isinstance(place.value, dict)
        bounds = _tighter(bounds, place)
        excluded.update(exact(value) for value in place.value.get(NOT, ()) if keywords.is_number(value))
        if (given := place.value.get("multipleOf")) is None:
            continue
        where = f"{place.where}/multipleOf"
        step = exact(given) if step is None else _common(step, exact(given))
    try:
        return any_of(_steps(part, step, integral) for part in bounds.without(excluded))
    except GrammarRefused as error:
        raise GrammarRefused(str(error), where) from error


def _steps(bounds: Bounds, step: Fraction | None, integral: bool) -> Expression:
    if step is None:
        return integers(bounds) if integral else decimals(bounds)
    if integral or step.denominator == 1:
        return integers(bounds, step.numerator)  # those of a fraction that are whole, too
    return multiples_within(bounds, step)


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The least multiple of both."""
    return Fraction(math.lcm(a.numerator, b.numerator), math.gcd(a.denominator, b.denominator))


def _tighter(bounds: Bounds, place: Place) -> Bounds:
    """The bounds with those of one more schema. In draft 4, `exclusiveMinimum` says that `minimum` is one."""
    schema = place.value
    assert isinstance(schema, dict)
    low, low_open = bounds.low, bounds.low_open
    high, high_open = bounds.high, bounds.high_open
    for keyword, is_low, is_open in (
        ("minimum", True, schema.get("exclusiveMinimum") is True),
        ("exclusiveMinimum", True, True),
        ("maximum", False, schema.get("exclusiveMaximum") is True),
        ("exclusiveMaximum", False, True),
    ):
        given = schema.get(keyword)
        if given is None or isinstance(given, bool):
            continue
        value = exact(given)
        if is_low and (low is None or value > low or (value == low and is_open)):
            low, low_open = value, is_open
        if not is_low and (high is None or value < high or (value == high and is_open)):
            high, high_open = value, is_open
    return Bounds(low, high, low_open, high_open)
