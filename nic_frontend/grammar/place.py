"""Where a schema stands in its document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from nic_frontend.grammar.refusal import GrammarRefused


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A schema: what it says, its JSON pointer, and the URI that its references start from. `alone`: of an
    old draft, where nothing beside a `$ref` counts.
    """

    value: dict[str, Any] | bool
    where: str
    base: str
    alone: bool = False

    def inner(self, value: Any, *steps: object) -> Place:
        """One within it. Raises GrammarRefused if it is no schema."""
        where = "/".join([self.where, *(escaped(str(step)) for step in steps)])
        return place(value, where, self.base, self.alone)


def place(value: Any, where: str, base: str, alone: bool) -> Place:
    if not isinstance(value, dict | bool):
        raise GrammarRefused("a schema must be an object or a boolean", where)
    name = value.get("$id") if isinstance(value, dict) and not (alone and "$ref" in value) else None
    if isinstance(name, str) and not name.startswith("#"):
        base = joined(base, name, f"{where}/$id")
    return Place(value, where, base, alone)


def joined(base: str, reference: str, where: str) -> str:
    """A URI reference against its base. Raises GrammarRefused if it is none."""
    try:
        urlsplit(reference)  # without a base, nothing looks at it
        return urljoin(base, reference)
    except ValueError as error:
        raise GrammarRefused(f"{reference[:200]!r} is no URI: {error}", where) from error


def escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
