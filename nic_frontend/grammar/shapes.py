"""What keywords of a schema have to be before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nic_frontend.grammar.keywords import is_number, named_types
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.vocabulary import ALL_TYPES, CHOICES, OF_KEYWORDS

Shape = tuple[Callable[[Any], bool], str]


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


NUMBER: Shape = is_number, "a number"
NUMBER_OR_BOOLEAN: Shape = lambda value: is_number(value) or isinstance(value, bool), "a number"  # in draft 4
STRING: Shape = lambda value: isinstance(value, str), "a string"
STRINGS: Shape = _strings, "an array of strings"
ARRAY: Shape = lambda value: isinstance(value, list), "an array"
OBJECT: Shape = lambda value: isinstance(value, dict), "an object"
SCHEMAS: Shape = (
    lambda value: isinstance(value, list) and bool(value),
    "an array with at least one schema",
)
SHAPES: dict[str, Shape] = {
    "minimum": NUMBER,
    "maximum": NUMBER,
    "exclusiveMinimum": NUMBER_OR_BOOLEAN,
    "exclusiveMaximum": NUMBER_OR_BOOLEAN,
    "multipleOf": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "pattern": STRING,
    "enum": ARRAY,
    "allOf": ARRAY,
    "anyOf": SCHEMAS,
    "oneOf": SCHEMAS,
    "prefixItems": ARRAY,
    "required": STRINGS,
    "properties": OBJECT,
    "patternProperties": OBJECT,
    "dependencies": OBJECT,
    "dependentSchemas": OBJECT,
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_strings, value.values())),
        "an object of arrays of strings",
    ),
}
# Where a schema names other types, these mean nothing: tools are often sloppy there.
TYPES_OF = {
    keyword: types for keywords, types in OF_KEYWORDS for keyword in keywords if keyword not in CHOICES
}


def check(place: Place) -> None:
    """Raises GrammarRefused for a keyword that says something of the schema's types, and is malformed."""
    _check(place, named_types(place))


def check_all(place: Place) -> None:
    """The same of every keyword: of opposites, each is one."""
    _check(place, ALL_TYPES)


def _check(place: Place, types: frozenset[str]) -> None:
    assert isinstance(place.value, dict)
    for keyword, value in place.value.items():
        if keyword not in SHAPES or not TYPES_OF.get(keyword, types) & types:
            continue
        fits, what = SHAPES[keyword]
        if not fits(value):
            raise GrammarRefused(f"{keyword!r} must be {what}", f"{place.where}/{keyword}")
