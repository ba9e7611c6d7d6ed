"""Objects as Python's arguments by name, `a=1, b="x"`, with constants and strings as in JSON. What is no name
is a key, `**{"two words": 1}`.
"""

from __future__ import annotations

import re
from typing import Any

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
from nic_frontend.grammar.json_text import ANY, ANY_OBJECT, COMMA, enclosed, member, quoted, separated
from nic_frontend.grammar.objects import Shape
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import matched
from nic_frontend.grammar.schema import Translation
from nic_frontend.grammar.vocabulary import CHOICES

# A name that stands before its value as it is, in answers and where they are read. Python has fewer of them,
# but models write what tools have: `from`, `user-id`, `$ref`.
BARE_NAME = re.compile(r"[\w$@](?:[\w$@.:/-]*\w)?")
NAME = matched("[a-zA-Z_]([a-zA-Z0-9_.-]*[a-zA-Z0-9_])?")
ANY_ARGUMENT = any_of([sequence(NAME, literal("="), ANY), sequence(literal("**"), ANY_OBJECT)])
ANY_ARGUMENTS = optional(sequence(ANY_ARGUMENT, repeated(separated(ANY_ARGUMENT))))
UNSUPPORTED = (*CHOICES, "minProperties", "maxProperties")


def of_keywords(document: Any) -> Expression:
    """The properties of the objects that a schema allows. Raises GrammarRefused."""
    references = References(document)
    translation = Translation(references)
    places = references.expanded((references.root,)) or []
    for place in places:
        assert isinstance(place.value, dict)
        if wrong := next((name for name in UNSUPPORTED if name in place.value), None):
            raise GrammarRefused(
                f"{wrong!r} is not supported for arguments by name", f"{place.where}/{wrong}"
            )
    shape = Shape(places, Checker(references))
    pairs = []
    for name in shape.names:
        spec = shape.spec(name)
        if spec is not None:
            pairs.append((argument(name, translation.value(spec)), name in shape.required))
        elif name in shape.required:
            return NOTHING
    further = _further(shape, translation)
    found = members(COMMA, pairs, further) if pairs or further is not NOTHING else EMPTY
    return found if shape.required else optional(found)


def _further(shape: Shape, translation: Translation) -> Expression:
    """An argument that no schema names, unless schemas say something about such names."""
    others = shape.others()
    if others is None or shape.patterns() or shape.name_places():
        return NOTHING
    name = without(NAME, any_of(map(literal, shape.names))) if shape.names else NAME
    return sequence(name, literal("="), translation.value(others))


def argument(name: str, value: Expression) -> Expression:
    """With any name at all: one that cannot stand by itself is a key in a dictionary."""
    if BARE_NAME.fullmatch(name):
        return sequence(literal(f"{name}="), value)
    return sequence(literal("**"), enclosed("{", member(literal(quoted(name)), value), "}", False))
