"""Calls of tools as the texts that models write them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nic_frontend.grammar.expression import Expression, any_of, literal, members, repeated, sequence
from nic_frontend.grammar.json_text import ANY_OBJECT, COMMA, enclosed, member, quoted, separated
from nic_frontend.grammar.keyword_arguments import ANY_ARGUMENTS, of_keywords
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_object_schema

Mark = Callable[[str], bytes]  # what an answer has where a model writes a mark


@dataclass(frozen=True)
class Function:
    """A tool. `strict`: its arguments are held to their schema, which must be one that can be enforced; those
    of others are where it can.
    """

    name: str
    parameters: dict[str, Any] | None
    strict: bool

    def arguments(self) -> Expression:
        """As an object of JSON. Raises GrammarRefused."""
        return self._held(of_object_schema, ANY_OBJECT)

    def keywords(self) -> Expression:
        """As Python's arguments by name. Raises GrammarRefused."""
        return self._held(of_keywords, ANY_ARGUMENTS)

    def _held(self, make: Callable[[Any], Expression], anything: Expression) -> Expression:
        if self.parameters is None:
            return anything
        try:
            return make(self.parameters)
        except GrammarRefused as error:
            if self.strict:
                raise GrammarRefused(f"the parameters of the tool {self.name!r}: {error}") from error
            return anything


def call_object(functions: list[Function], arguments: str) -> Expression:
    """A call as {"name": ..., "arguments": {...}}, with `arguments` for the latter key."""
    return any_of(
        enclosed("{", _members(function, arguments), "}", may_be_empty=False) for function in functions
    )


def _members(function: Function, arguments: str) -> Expression:
    name = member(literal('"name"'), literal(quoted(function.name)))
    value = member(literal(quoted(arguments)), function.arguments())
    return members(COMMA, [(name, True), (value, True)])


def call_list(functions: list[Function], arguments: str, many: bool) -> Expression:
    """An array of such objects: one, or any number."""
    call = call_object(functions, arguments)
    more = repeated(separated(call)) if many else literal("")
    return enclosed("[", sequence(call, more), "]", may_be_empty=False)
