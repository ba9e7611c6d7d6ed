"""What is valid where a schema is not, as schemas: for `not`, `if`, and alternatives of `oneOf`."""

from __future__ import annotations

import itertools
from typing import Any

from nic_frontend.grammar.keywords import count, is_number, named_types, type_of
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.shapes import check_all
from nic_frontend.grammar.vocabulary import ASSERTIONS, NOT, NOT_PATTERN, OPPOSITE, TYPES

MAX_DEPTH = 20
MAX_PAIRS = 64
NAMES = ("null", "boolean", "string", "array", "object")
OPPOSITES = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
LENGTHS = {
    "minLength": ("maxLength", -1),
    "maxLength": ("minLength", 1),
    "minItems": ("maxItems", -1),
    "maxItems": ("minItems", 1),
    "minProperties": ("maxProperties", -1),
    "maxProperties": ("minProperties", 1),
}


class Negation:
    def __init__(self, references: References) -> None:
        self._references = references
        self._known: dict[int, list[Place]] = {}
        self._kept: list[Place] = []
        self._depth = 0

    def of(self, place: Place) -> list[Place]:
        """Schemas, of which one at least is valid where this one is not. Raises GrammarRefused."""
        if isinstance(place.value, bool):
            return [] if place.value else [Place(True, place.where, place.base)]
        if id(place.value) not in self._known:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise GrammarRefused("its opposite is nested too deeply", place.where)
            if not ("$ref" in place.value and self._references.alone):
                check_all(place)
            self._kept.append(place)
            self._known[id(place.value)] = self._negated(place, place.value)
            self._depth -= 1
        return self._known[id(place.value)]

    def _negated(self, place: Place, schema: dict[str, Any]) -> list[Place]:
        found = [other for target in self._references.targets(place) for other in self.of(target)]
        for keyword, value in schema.items():
            if keyword == "$ref" and self._references.alone:
                return [other for target in self._references.targets(place) for other in self.of(target)]
            if keyword == "allOf":
                found += [
                    other
                    for i, inner in enumerate(value)
                    for other in self.of(place.inner(inner, keyword, i))
                ]
            elif keyword == "anyOf":
                found += self._none_of(
                    [place.inner(inner, keyword, i) for i, inner in enumerate(value)], place
                )
            elif keyword == "not":
                found.append(place.inner(value, keyword))
            elif keyword == "oneOf":
                found += self._none_or_several(place, value)
            elif keyword == "if":
                found += self._condition(place, schema)
            elif keyword in ("contains", "minContains", "maxContains"):
                found += _counted_otherwise(place, schema) if keyword == "contains" else []
            elif keyword in ASSERTIONS and keyword != OPPOSITE:
                found += self._keyword(place, keyword, value)
        return found

    def _none_of(self, places: list[Place], where: Place) -> list[Place]:
        found = [Place(True, where.where, where.base)]
        for place in places:
            opposites = self.of(place)
            found = [
                Place({"allOf": [a.value, b.value]}, f"{where.where}/anyOf", where.base)
                for a in found
                for b in opposites
            ]
            if len(found) > 64:
                raise GrammarRefused("its opposite has too many alternatives", f"{where.where}/anyOf")
        return found

    def _none_or_several(self, place: Place, listed: list[Any]) -> list[Place]:
        """For `oneOf`."""
        inner = [place.inner(one, "oneOf", i) for i, one in enumerate(listed)]
        pairs = [{"allOf": [a.value, b.value]} for a, b in itertools.combinations(inner, 2)]
        if len(pairs) > MAX_PAIRS:
            raise GrammarRefused("its opposite has too many alternatives", f"{place.where}/oneOf")
        several = [Place(pair, f"{place.where}/oneOf", place.base) for pair in pairs]
        return [*self._none_of(inner, place), *several]

    def _condition(self, place: Place, schema: dict[str, Any]) -> list[Place]:
        """For `if`: what it asks for then, or else, is not so."""
        condition = place.inner(schema["if"], "if")
        found = []
        for keyword, cases in (("then", [condition]), ("else", self.of(condition))):
            if keyword not in schema:
                continue
            opposites = self.of(place.inner(schema[keyword], keyword))
            found += [
                Place({"allOf": [case.value, other.value]}, f"{place.where}/if", place.base)
                for case in cases
                for other in opposites
            ]
        return found

    def _keyword(self, place: Place, keyword: str, value: Any) -> list[Place]:
        def schema(content: dict[str, Any]) -> Place:
            return Place(content, f"{place.where}/{keyword}", place.base)

        if keyword == "type":
            return [schema({"type": name}) for name in _other_types(named_types(place), place)]
        if keyword in ("const", "enum"):
            return _other_values([value] if keyword == "const" else value, schema)
        if keyword in OPPOSITES and isinstance(place.value, dict):
            if isinstance(value, bool):  # in draft 4, it says that the other bound is outside
                return []
            exclusive = f"exclusive{keyword.capitalize()}"
            bound = exclusive if place.value.get(exclusive) is True else keyword
            return [schema({"type": "number", OPPOSITES[bound]: value})]
        if keyword in LENGTHS:
            opposite, step = LENGTHS[keyword]
            kinds = {"Length": "string", "Items": "array", "Properties": "object"}
            limit = count(place, keyword, 0) + step
            return [] if limit < 0 else [schema({"type": kinds[keyword[3:]], opposite: limit})]
        if keyword == "required":
            return [schema({"type": "object", "properties": {name: False}}) for name in value]
        if keyword == "properties":
            return [
                schema({"type": "object", "required": [name], "properties": {name: other.value}})
                for name, inner in value.items()
                for other in self.of(place.inner(inner, keyword, name))
            ]
        if keyword == "pattern":
            return [schema({"type": "string", NOT_PATTERN: [value]})]
        if keyword == NOT:
            return [schema({"enum": value})]
        if keyword == NOT_PATTERN:
            return [schema({"type": "string", "allOf": [{"pattern": pattern} for pattern in value]})]
        if keyword == "dependentRequired":
            return [
                schema({"type": "object", "required": [name], "properties": {need: False}})
                for name, needs in value.items()
                for need in needs
            ]
        if keyword == "prefixItems" or (keyword == "items" and isinstance(value, list)):
            return [
                schema({"type": "array", "minItems": i + 1, keyword: [True] * i + [other.value]})
                for i, inner in enumerate(value)
                for other in self.of(place.inner(inner, keyword, i))
            ]
        if keyword == "items" and isinstance(place.value, dict) and "prefixItems" not in place.value:
            return [
                schema({"type": "array", "contains": other.value})
                for other in self.of(place.inner(value, keyword))
            ]
        raise GrammarRefused(f"the opposite of {keyword!r} is not supported", f"{place.where}/{keyword}")


def _counted_otherwise(place: Place, schema: dict[str, Any]) -> list[Place]:
    """For `contains`: arrays in which too few, or too many, are valid for it."""
    wanted = {"type": "array", "contains": schema["contains"]}
    where = f"{place.where}/contains"
    least = count(place, "minContains", 1)
    found = [{**wanted, "minContains": 0, "maxContains": least - 1}] if least else []
    if "maxContains" in schema:
        found.append({**wanted, "minContains": count(place, "maxContains", 0) + 1})
    return [Place(one, where, place.base) for one in found]


def _other_types(types: frozenset[str], place: Place) -> list[str]:
    """The other types. Numbers with a fraction alone cannot be asked for."""
    found = [name for name in NAMES if name not in types]
    if not types & TYPES["number"]:
        found.append("number")
    return found


def _other_values(values: list[Any], schema: Any) -> list[Place]:
    """Values of other types, and strings and numbers but for these. Other arrays, and other objects, are left
    out where there is one among these.
    """
    types = {type_of(value) for value in values}
    found = [schema({"type": name}) for name in NAMES if name not in types | {"boolean", "string"}]
    others = [value for value in (True, False) if not any(value is given for given in values)]
    found += [schema({"const": value}) for value in others]
    found.append(schema({"type": "number", NOT: [value for value in values if is_number(value)]}))
    found.append(schema({"type": "string", NOT: [value for value in values if isinstance(value, str)]}))
    return found
