"""Objects as Python's arguments by name, `a=1, b="x"`, with constants and strings as in JSON."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

from nic_frontend.grammar.expression import EMPTY, Expression, literal, members, optional, repeated, sequence
from nic_frontend.grammar.instance import Checker
from nic_frontend.grammar.json_text import ANY, COMMA, separated
from nic_frontend.grammar.objects import Shape
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import matched
from nic_frontend.grammar.schema import Translation
from nic_frontend.grammar.vocabulary import CHOICES

NAME = matched("[a-z_][a-zA-Z0-9_]*")
ANY_ARGUMENT = sequence(NAME, literal("="), ANY)
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
        if spec is None or not name.isidentifier() or iskeyword(name):
            raise GrammarRefused(f"{name!r} cannot be an argument's name", "#/properties")
        pairs.append((sequence(literal(f"{name}="), translation.value(spec)), name in shape.required))
    found = members(COMMA, pairs) if pairs else EMPTY
    return found if shape.required else optional(found)
