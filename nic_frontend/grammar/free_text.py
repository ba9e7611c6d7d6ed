"""Any text, until one of some marks stands in it for the first time."""

from __future__ import annotations

from collections.abc import Iterable

from nic_frontend.grammar import characters
from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    any_of,
    literal,
    repeated,
    sequence,
    without,
)
from nic_frontend.grammar.expression import characters as one_character
from ringbuffer.token_bytes import SPECIAL

TEXT = repeated(one_character(characters.ALL))  # without special tokens
ANYTHING = repeated(any_of([one_character(characters.ALL), literal(SPECIAL)]))
MORE = repeated(any_of([one_character(characters.ALL), literal(SPECIAL)]), 1)


class FreeText:
    """A text has none of the marks, but for the one it may end with, and nothing that is excluded. `begun`:
    how it does not begin.
    """

    def __init__(
        self, marks: Iterable[bytes], excluded: Iterable[bytes] = (), begun: Expression = EMPTY
    ) -> None:
        self._marks = any_of(map(literal, dict.fromkeys(marks)))
        self._excluded = any_of(map(literal, dict.fromkeys(excluded)))
        self._begun = begun

    def until(self, mark: bytes) -> Expression:
        """Those that end with this one of the marks, which stands nowhere before, nor does another one."""
        found = self._kept(sequence(TEXT, literal(mark)), self._excluded)
        return without(found, sequence(TEXT, self._marks, MORE))

    def whole(self) -> Expression:
        """Those without any mark."""
        return self._kept(TEXT, any_of([self._marks, self._excluded]))

    def _kept(self, texts: Expression, forbidden: Expression) -> Expression:
        if forbidden is not NOTHING:
            texts = without(texts, sequence(TEXT, forbidden, ANYTHING))
        return texts if self._begun is EMPTY else without(texts, sequence(self._begun, ANYTHING))
