"""What the text of an answer may be, as a request says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nic_frontend.grammar.ebnf import of_ebnf
from nic_frontend.grammar.expression import Expression, any_of, literal
from nic_frontend.grammar.json_text import ANY_OBJECT
from nic_frontend.grammar.regex import matched
from nic_frontend.grammar.schema import of_schema


@dataclass(frozen=True)
class Content:
    """`kind` is one of "json_object", "json" (`source` is a schema), "regex", "choice" and "grammar"; `param`
    the request's field that said so.
    """

    kind: str
    source: Any
    param: str

    @property
    def key(self) -> list[Any]:
        """Equal for equal languages."""
        return [self.kind, self.source]

    def expression(self) -> Expression:
        """Raises GrammarRefused."""
        if self.kind == "json":
            return of_schema(self.source)
        if self.kind == "regex":
            return matched(self.source)
        if self.kind == "choice":
            return any_of(literal(text) for text in self.source)
        if self.kind == "grammar":
            return of_ebnf(self.source)
        return ANY_OBJECT
