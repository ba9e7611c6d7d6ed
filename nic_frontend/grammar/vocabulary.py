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
