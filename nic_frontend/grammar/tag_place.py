"""A place in a structural tag, and what may stand there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nic_frontend.grammar.expression import EMPTY, Expression
from nic_frontend.grammar.refusal import GrammarRefused


@dataclass(frozen=True)
class At:
    """Where a format stands. `ends`: what follows it; None: nothing, an answer may end there; empty: another
    format. `begun`: how free text does not begin there.
    """

    where: str
    ends: tuple[bytes, ...] | None
    begun: Expression = EMPTY

    def inner(self, *steps: object) -> At:
        """A part that is followed by others."""
        return At("/".join([self.where, *map(str, steps)]), ())

    def last(self, *steps: object) -> At:
        """A part that is all there is of this one, or its end."""
        return replace(self, where=self.inner(*steps).where)

    def refused(self, message: str) -> GrammarRefused:
        return GrammarRefused(message, self.where)

    def object(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refused("it must be an object")
        return value

    def items(self, given: dict[str, Any], name: str) -> list[Any]:
        value = given.get(name)
        if not isinstance(value, list) or not value:
            raise self.refused(f"{name!r} must be an array with at least one item")
        return value

    def fields(self, given: dict[str, Any], known: set[str]) -> None:
        """Refuses others: what is not read would change the answer."""
        if unknown := given.keys() - known:
            raise self.inner(min(unknown)).refused(f"{min(unknown)!r} is not supported")

    def boolean(self, given: dict[str, Any], name: str, default: bool = False) -> bool:
        value = given.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.inner(name).refused(f"{name!r} must be a boolean")
        return default if value is None else value

    def string(self, given: dict[str, Any], name: str, may_be_empty: bool = False) -> str:
        value = given.get(name)
        if not isinstance(value, str) or not (value or may_be_empty):
            raise self.refused(f"{name!r} must be a text")
        return value
