"""How a model writes answers that are more than text: its thoughts, and its calls of tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.splitter import Splitter
from nic_frontend.parsing.tool_call_parser import ToolCallParser
from nic_frontend.templates.marks import Marks


class Ended(NamedTuple):
    """Thoughts that are over: the text that ends them, and the form of what follows it."""

    text: str
    form: AnswerForm


class AnswerForm(Protocol):
    """How the answer to one prompt is written."""

    @property
    def finds_reasoning(self) -> bool:
        """Thoughts are looked for."""
        ...

    @property
    def finds_calls(self) -> bool:
        """Calls of tools are looked for."""
        ...

    @property
    def holds_calls(self) -> bool:
        """Calls begin with a mark, behind which they can be held to a schema."""
        ...

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Whose text the splitter has to see."""
        ...

    @property
    def key(self) -> tuple[str | None, Any]:
        """Says in a grammar's source how answers are written (compiling/answer.py). It becomes JSON."""
        ...

    @property
    def without_thoughts(self) -> Ended | None:
        """What a prompt gets at its end where there may be no thoughts; None where that does not keep the
        model from thinking.
        """
        ...

    @property
    def concluded(self) -> Ended:
        """What an answer gets in the middle of thoughts that have become too many."""
        ...

    def splitter(self, names: frozenset[str], one_call: bool, budget: int | None) -> AnswerSplitter:
        """For one choice. `names`: of the tools that may be called."""
        ...


class AnswerForms(Protocol):
    """How the model of a server writes its answers."""

    @property
    def finds_reasoning(self) -> bool: ...

    def form(self, prompt: str, *, tools: bool, continued: str | None = None) -> AnswerForm:
        """Of the answer to a prompt, whose text is empty where it was made of tokens. `tools`: it shows some.
        `continued`: the text of the message with which it ends.
        """
        ...


@dataclass(frozen=True)
class MarkedForm:
    """Thoughts come first, between `marks`, and `parser` finds calls behind them. `reasoning` makes a parser
    of thoughts for a choice, or None where this answer has none.
    """

    parser: type[ToolCallParser] | None = None
    marks: Marks | None = None
    reasoning: Callable[[], ReasoningParser | None] = lambda: None

    @property
    def finds_reasoning(self) -> bool:
        return self.reasoning() is not None

    @property
    def finds_calls(self) -> bool:
        return self.parser is not None

    @property
    def holds_calls(self) -> bool:
        return self.parser is not None and not self.parser.first_marks

    @property
    def special_tokens(self) -> tuple[str, ...]:
        of_calls = self.parser.special_tokens if self.parser else ()
        return of_calls + ((self.marks.opening, self.marks.closing) if self.marks else ())

    @property
    def key(self) -> tuple[str | None, Any]:
        thoughts = self.reasoning()
        name = self.parser.__name__ if self.parser else None
        return name, [thoughts.opening, thoughts.closing, thoughts.inside] if thoughts else None

    @property
    def without_thoughts(self) -> Ended | None:
        thoughts = self.reasoning()
        return self.concluded if thoughts is not None and thoughts.inside else None

    @property
    def concluded(self) -> Ended:
        assert self.marks is not None
        return Ended(self.marks.conclusion, MarkedForm(self.parser, self.marks))

    def splitter(self, names: frozenset[str], one_call: bool, budget: int | None) -> AnswerSplitter:
        parser = self.parser(names) if self.parser is not None else None
        return Splitter(self.reasoning(), parser, one_call, budget)


TEXT_ALONE = MarkedForm()
