"""The keywords of JSON Schema that say something about values."""

from __future__ import annotations

NUMERIC = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
STRING = {"minLength", "maxLength", "pattern", "format"}
ARRAY = {
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
}
OBJECT = {
    "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties",
    "propertyNames",
}  # fmt: skip
OTHER = {"type", "enum", "const"}


class Own(str):
    """A keyword of schemas that are made here: no text of a client's is equal to it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)


NOT = Own("not")  # values, of which it is none
NOT_PATTERN = Own("pattern")  # that is not in a string
OPPOSITE = Own("not")  # it stands beside schemas that only tell what a value must not be
MORE_PROPERTIES = Own("unevaluatedProperties")  # in the outermost of combined schemas
MORE_ITEMS = Own("unevaluatedItems")
CHOICES = ("anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies")
ASSERTIONS = {
    *NUMERIC,
    *STRING,
    *ARRAY,
    *OBJECT,
    *OTHER,
    "unevaluatedItems",
    "unevaluatedProperties",
    *CHOICES,
    NOT,
    NOT_PATTERN,
    OPPOSITE,
    MORE_PROPERTIES,
    MORE_ITEMS,
}
UNSUPPORTED = ("extends", "disallow", "divisibleBy")

# Numbers with a fraction, or without, are two types here: "number" is both.
TYPES = {
    "null": {"null"},
    "boolean": {"boolean"},
    "integer": {"integer"},
    "number": {"integer", "fraction"},
    "string": {"string"},
    "array": {"array"},
    "object": {"object"},
}
ALL_TYPES = frozenset().union(*TYPES.values())
OF_KEYWORDS = (
    (NUMERIC, TYPES["number"]),
    (STRING, TYPES["string"]),
    (ARRAY | {"unevaluatedItems"}, TYPES["array"]),
    (
        OBJECT | {"unevaluatedProperties", "dependentRequired", "dependentSchemas", "dependencies"},
        TYPES["object"],
    ),
)
