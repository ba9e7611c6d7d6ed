"""Why a grammar is refused."""

from __future__ import annotations

LONE_SURROGATE = "it has a lone surrogate, which no Unicode text has"


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


class GrammarTooSlow(GrammarRefused):
    """What may be possible, but not in the time that it was given."""


class OutOfTime(BaseException):
    """The same, wherever the work is when its time is over: no handler of exceptions is to go on."""
