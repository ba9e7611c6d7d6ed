"""Whether a given value is valid: for `enum`, `const` and names of properties."""

from __future__ import annotations

from typing import Any

from nic_frontend.grammar import keywords
from nic_frontend.grammar.matching import Patterns
from nic_frontend.grammar.numbers import exact
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.shapes import check
from nic_frontend.grammar.vocabulary import NOT, NOT_PATTERN

UNCHECKED = (
    "contains",
    "dependencies",
    "if",
    "unevaluatedItems",
    "unevaluatedProperties",
    "dependentSchemas",
)


def equal(a: Any, b: Any) -> bool:
    """As JSON Schema has it: 1 is 1.0, and not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return (type(a) is type(b) and a == b) or (
        isinstance(a, int | float) and isinstance(b, int | float) and a == b
    )


def listed(value: Any, values: list[Any]) -> bool:
    """Whether a value is among others. Of strings there may be many."""
    return value in values if isinstance(value, str) else any(equal(value, other) for other in values)


class Checker:
    """Raises GrammarRefused for what it does not know."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._patterns = Patterns()
        self._depth = 0

    def valid(self, value: Any, place: Place) -> bool:
        schema = place.value
        if isinstance(schema, bool):
            return schema
        for keyword in UNCHECKED:
            if keyword in schema:
                raise GrammarRefused(
                    f"{keyword!r} is not supported for constants", f"{place.where}/{keyword}"
                )
        self._depth += 1
        if self._depth > 50:
            raise GrammarRefused("references lead in a circle", place.where)
        try:
            if not all(self.valid(value, target) for target in self._references.targets(place)):
                return False
            if "$ref" in schema and self._references.alone:
                return True
            check(place)
            return self._combined(value, place, schema) and self._plain(value, place, schema)
        finally:
            self._depth -= 1

    def _combined(self, value: Any, place: Place, schema: dict[str, Any]) -> bool:
        def inner(keyword: str) -> list[bool]:
            parts = schema.get(keyword, ())
            return [self.valid(value, place.inner(part, keyword, i)) for i, part in enumerate(parts)]

        return (
            all(inner("allOf"))
            and ("anyOf" not in schema or any(inner("anyOf")))
            and ("oneOf" not in schema or sum(inner("oneOf")) == 1)
            and not ("not" in schema and self.valid(value, place.inner(schema["not"], "not")))
        )

    def _plain(self, value: Any, place: Place, schema: dict[str, Any]) -> bool:
        if keywords.type_of(value) not in keywords.named_types(place):
            return False
        if "const" in schema and not equal(value, schema["const"]):
            return False
        if "enum" in schema and not listed(value, schema["enum"]):
            return False
        if any(equal(value, other) for other in schema.get(NOT, ())):
            return False
        if isinstance(value, bool) or value is None:
            return True
        if isinstance(value, int | float):
            return self._number(value, schema)
        if isinstance(value, str):
            least, most = keywords.bounds_of([place], "minLength", "maxLength")
            pattern = schema.get("pattern")
            long_enough = len(value) >= least and (most is None or len(value) <= most)
            if any(self._patterns.found(other, value, place.where) for other in schema.get(NOT_PATTERN, ())):
                return False
            return long_enough and (
                pattern is None or self._patterns.found(pattern, value, f"{place.where}/pattern")
            )
        return (
            self._array(value, place, schema)
            if isinstance(value, list)
            else self._object(value, place, schema)
        )

    def _number(self, value: float, schema: dict[str, Any]) -> bool:
        number = exact(value)
        for bound in ("minimum", "maximum"):  # in draft 4, a boolean says that it is outside
            is_outside = schema.get(f"exclusive{bound.capitalize()}") is True
            if is_outside and bound in schema and number == exact(schema[bound]):
                return False
        return (
            ("minimum" not in schema or number >= exact(schema["minimum"]))
            and ("maximum" not in schema or number <= exact(schema["maximum"]))
            and (
                not keywords.is_number(schema.get("exclusiveMinimum"))
                or number > exact(schema["exclusiveMinimum"])
            )
            and (
                not keywords.is_number(schema.get("exclusiveMaximum"))
                or number < exact(schema["exclusiveMaximum"])
            )
            and ("multipleOf" not in schema or number % exact(schema["multipleOf"]) == 0)
        )

    def _array(self, value: list[Any], place: Place, schema: dict[str, Any]) -> bool:
        least, most = keywords.bounds_of([place], "minItems", "maxItems")
        if len(value) < least or (most is not None and len(value) > most):
            return False
        if schema.get("uniqueItems") and any(equal(a, b) for i, a in enumerate(value) for b in value[:i]):
            return False
        items = ((item, item_place(place, i)) for i, item in enumerate(value))
        return all(where is None or self.valid(item, where) for item, where in items)

    def _object(self, value: dict[str, Any], place: Place, schema: dict[str, Any]) -> bool:
        least, most = keywords.bounds_of([place], "minProperties", "maxProperties")
        if len(value) < least or (most is not None and len(value) > most):
            return False
        if any(name not in value for name in schema.get("required", ())):
            return False
        dependent = schema.get("dependentRequired", {})
        if any(name in value and not set(others) <= value.keys() for name, others in dependent.items()):
            return False
        if "propertyNames" in schema:
            names = place.inner(schema["propertyNames"], "propertyNames")
            if not all(self.valid(name, names) for name in value):
                return False
        members = ((value[name], inner) for name in value for inner in self.member_places(place, name))
        return all(self.valid(member, inner) for member, inner in members)

    def member_places(self, place: Place, name: str) -> list[Place]:
        """The schemas of a property."""
        schema = place.value
        assert isinstance(schema, dict)
        properties = schema.get("properties", {})
        places = [place.inner(properties[name], "properties", name)] if name in properties else []
        for pattern, inner in schema.get("patternProperties", {}).items():
            if self._patterns.found(pattern, name, f"{place.where}/patternProperties"):
                places.append(place.inner(inner, "patternProperties", pattern))
        if not places and "additionalProperties" in schema:
            places.append(place.inner(schema["additionalProperties"], "additionalProperties"))
        return places


def item_place(place: Place, index: int) -> Place | None:
    """The schema of an item; None: any value."""
    schema = place.value
    assert isinstance(schema, dict)
    keyword = "prefixItems"
    if isinstance(schema.get("items"), list):  # as it was written before 2020
        keyword = "items"
    prefix = schema.get(keyword, [])
    if index < len(prefix):
        return place.inner(prefix[index], keyword, index)
    rest = "additionalItems" if keyword == "items" else "items"
    return place.inner(schema[rest], rest) if rest in schema else None
