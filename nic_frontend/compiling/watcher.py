"""What whoever counts is told of grammars."""

from __future__ import annotations

from typing import Protocol


class GrammarWatcher(Protocol):
    def on_grammar_compiled(self, seconds: float) -> None:
        """`seconds` after it was asked for."""
        ...

    def on_grammar_reused(self) -> None: ...

    def on_grammar_refused(self) -> None: ...

    def on_grammar_process_restart(self) -> None: ...
