"""Whether a schema's patterns are found in given texts, in time that grows with the text's length alone."""

from __future__ import annotations

from array import array

from nic_frontend.grammar.abi import GrammarStatus
from nic_frontend.grammar.compiler import REASONS
from nic_frontend.grammar.native import match_program
from nic_frontend.grammar.program import Program
from nic_frontend.grammar.refusal import GrammarRefused, GrammarTooSlow
from nic_frontend.grammar.regex import searched

TIME_MS = 500  # of a processor, for one text


class Patterns:
    """Those of one schema."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, bool], array[int]] = {}

    def found(self, pattern: str, text: str, where: str) -> bool:
        """Whether it is in a text.

        Raises GrammarRefused where that depends on the dialect, or is not known.
        """
        if self._found(pattern, text, where, broad=False):
            return True
        if all(" " <= character <= "~" for character in text):
            return False  # there, the dialects do not differ
        if self._found(pattern, text, where, broad=True):
            raise GrammarRefused(
                f"dialects of regular expressions differ on whether {pattern[:200]!r} matches {text[:200]!r}",
                where,
            )
        return False

    def _found(self, pattern: str, text: str, where: str, broad: bool) -> bool:
        try:
            words = self._programs.get((pattern, broad))
            if words is None:
                words = self._programs[pattern, broad] = Program(searched(pattern, broad=broad)).words
            status = match_program(words, text.encode(), TIME_MS)
        except GrammarRefused as error:
            raise GrammarRefused(str(error), where) from error
        if status == GrammarStatus.TOO_SLOW:
            raise GrammarTooSlow(REASONS[status], where)
        if status not in (GrammarStatus.OK, GrammarStatus.EMPTY_LANGUAGE):
            raise GrammarRefused(REASONS[status], where)
        return status == GrammarStatus.OK
