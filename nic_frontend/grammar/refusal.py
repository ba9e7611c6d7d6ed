"""Why a grammar is refused."""

from __future__ import annotations


class GrammarRefused(ValueError):
    """What cannot be enforced, or is wrong. `where` is the place: a JSON pointer into a schema, or a line of
    a grammar; empty where the whole is meant.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(f"{message} (at {where})" if where else message)
        self.message = message
        self.where = where

    def within(self, place: str) -> GrammarRefused:
        """The same of a schema, or of a text, that stands at a place of something larger."""
        if self.where.startswith("#"):
            return GrammarRefused(self.message, place + self.where[1:])
        return GrammarRefused(str(self), place)
