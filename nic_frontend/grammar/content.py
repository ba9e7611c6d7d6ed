"""What the text of an answer may be, as a request says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nic_frontend.grammar.ebnf import of_ebnf
from nic_frontend.grammar.expression import EMPTY, Expression, any_of, literal
from nic_frontend.grammar.json_text import ANY_OBJECT
from nic_frontend.grammar.regex import matched
from nic_frontend.grammar.schema import of_schema
from nic_frontend.grammar.spelling import Places
from nic_frontend.grammar.structural_tag import of_structural_tag


@dataclass(frozen=True)
class Content:
    """`kind` is one of "json_object", "json" (`source` is a schema), "regex", "choice", "grammar" and
    "structural_tag"; `param` the request's field that said so.
    """

    kind: str
    source: Any
    param: str

    @property
    def key(self) -> list[Any]:
        """Equal for equal languages."""
        return [self.kind, self.source]

    def expression(self, special: Places, thought: Expression = EMPTY) -> Expression:
        """`special` and `thought`: as of_structural_tag has them; only there is free text.

        Raises GrammarRefused.
        """
        return language_of(self.kind, self.source, special, thought)


def language_of(kind: str, source: Any, special: Places, thought: Expression) -> Expression:
    """As Content.expression."""
    if kind == "json":
        return of_schema(source)
    if kind == "regex":
        return matched(source)
    if kind == "choice":
        return any_of(literal(text) for text in source)
    if kind == "grammar":
        return of_ebnf(source)
    if kind == "structural_tag":
        return of_structural_tag(source, special, thought)
    return ANY_OBJECT
