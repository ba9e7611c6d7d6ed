"""What answers are held to, as grammars: a form of their text, calls of tools, or both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from nic_frontend.api.parameters import Parameters
from nic_frontend.api.served import Served
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.characters import ALL
from nic_frontend.grammar.content import Content
from nic_frontend.grammar.expression import (
    EMPTY,
    Expression,
    any_of,
    characters,
    literal,
    one_of,
    repeated,
    sequence,
    until,
    without,
)
from nic_frontend.grammar.store import Looser
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.tool_call_parser import ToolCallParser

BLANKS = repeated(one_of(" \n"), 0, 4)  # around what a model thinks


@dataclass(frozen=True)
class Constraint:
    """`content` is what the text may be. `tools` are those that may be called: one at least if `must`, one at
    most if not `many`.
    """

    content: Content | None = None
    tools: list[Function] = field(default_factory=list)
    must: bool = False
    many: bool = True

    @property
    def param(self) -> str:
        """The request's field that it comes from."""
        return "tool_choice" if self.must else self.content.param if self.content else "tools"

    @property
    def loosened(self) -> Constraint:
        """The same without the parameters of tools that are not strict."""
        free = [tool if tool.strict else replace(tool, parameters=None) for tool in self.tools]
        return replace(self, tools=free)

    def narrows(self, parser: type[ToolCallParser] | None, available: bool) -> bool:
        """Whether an answer may not be any text. `available`: grammars."""
        return self.content is not None or self.must or (available and self.holds_calls(parser))

    def holds_calls(self, parser: type[ToolCallParser] | None) -> bool:
        """Whether a model that need not call tools is held to their schemas where it does: behind a mark."""
        return parser is not None and not parser.first_marks and any(tool.strict for tool in self.tools)


class Blocks(NamedTuple):
    """Grammars. None: an answer may be any text."""

    whole: bytes | None = None
    concluding: bytes | None = None  # of an answer whose thinking was ended
    param: str = ""  # the request's field that they come from


NO_BLOCKS = Blocks()


async def blocks_of(
    constraint: Constraint,
    parser: type[ToolCallParser] | None,
    reasoning: ReasoningParser | None,
    served: Served,
    concludes: bool,
) -> Blocks:
    """`reasoning`: where the model may think first. Raises ApiError 400 naming a field."""
    if not constraint.narrows(parser, served.grammars.available):
        return NO_BLOCKS
    maker = Maker(constraint, parser, served)
    whole = await maker.block(reasoning)
    concluding = await maker.block(None) if concludes and reasoning is not None else None
    return Blocks(whole, concluding, constraint.param)


class Maker:
    def __init__(self, constraint: Constraint, parser: type[ToolCallParser] | None, served: Served) -> None:
        self._constraint = constraint
        self._parser = parser
        self._mark = served.tokenizer.answer_bytes
        self._special = served.tokenizer.special_places
        self._served = served

    async def block(self, reasoning: ReasoningParser | None) -> bytes:
        wanted, otherwise = self._constraint, None
        if wanted.loosened != wanted:
            looser = Maker(wanted.loosened, self._parser, self._served)
            otherwise = Looser(looser.source(reasoning), lambda: looser.expression(reasoning))
        return await self._served.grammars.block(
            self.source(reasoning), lambda: self.expression(reasoning), wanted.param, otherwise=otherwise
        )

    def source(self, reasoning: ReasoningParser | None) -> dict[str, Any]:
        """What decides which grammar it is."""
        wanted = self._constraint
        return {
            "content": wanted.content.key if wanted.content else None,
            "tools": [[tool.name, tool.parameters, tool.strict] for tool in wanted.tools],
            "calls": [wanted.must, wanted.many, self._parser.__name__ if self._parser else None],
            "thinks": [reasoning.opening, reasoning.closing, reasoning.inside] if reasoning else None,
        }

    def expression(self, reasoning: ReasoningParser | None) -> Expression:
        return self._answer(EMPTY) if reasoning is None else self._behind_thoughts(reasoning)

    def _answer(self, thought: Expression) -> Expression:
        """`thought`: how it cannot begin, because then the model thinks. EMPTY: it may begin anyhow."""
        wanted, parser = self._constraint, self._parser
        found = []
        if parser is not None and wanted.tools:
            if not wanted.must and wanted.content is None:
                return self._text_and_calls(parser, thought)
            found.append(parser.language(wanted.tools, wanted.many, self._mark))
        if wanted.content is not None and not wanted.must:
            found.append(wanted.content.expression(self._special, thought))
        return any_of(found)

    def _text_and_calls(self, parser: type[ToolCallParser], thought: Expression) -> Expression:
        """Any text, and where the mark of a call stands, calls."""
        anything = repeated(characters(ALL))
        mark = literal(self._mark(parser.marks[0]))  # with which `language` begins
        text = without(anything, sequence(anything, mark, anything))
        if thought is not EMPTY:
            text = without(text, sequence(thought, anything))
        calls = parser.language(self._constraint.tools, self._constraint.many, self._mark)
        return any_of([text, sequence(text, calls)])

    def _behind_thoughts(self, reasoning: ReasoningParser) -> Expression:
        """Whatever the model thinks comes first."""
        thoughts = sequence(until(self._mark(reasoning.closing)), BLANKS)
        if reasoning.inside:
            return sequence(thoughts, self._answer(EMPTY))
        opening = sequence(BLANKS, literal(self._mark(reasoning.opening)))
        return any_of([sequence(opening, thoughts, self._answer(EMPTY)), self._answer(opening)])


def check_ends(parameters: Parameters, grammars: Blocks) -> None:
    """Raises ApiError 400 for answers that would have to go on where their grammar ends."""
    for name in ("min_tokens", "ignore_eos"):
        if grammars.whole is not None and getattr(parameters, name):
            raise bad_request(
                f"{name!r} does not go with {grammars.param!r}, which says where an answer ends",
                name,
                "invalid_value",
            )


def chosen(
    tools: list[Function], kind: str, names: list[str] | None, one_call: bool, content: Content | None
) -> Constraint:
    """Of a request's `tool_choice`: "auto", "none" or "required", of all tools or of those with `names`.

    Raises ApiError 400 where there is no such tool.
    """
    if kind == "none":
        return Constraint(content)
    given = {tool.name for tool in tools}
    for name in names or ():
        if name not in given:
            raise bad_request(
                f"'tool_choice' names {name!r}, which is none of the 'tools' that the model can be shown",
                "tool_choice",
                "invalid_value",
            )
    found = [tool for tool in tools if names is None or tool.name in names]
    if kind == "required" and not found:
        raise bad_request(
            "'tool_choice' asks for a call, and 'tools' has none that the model can be shown",
            "tool_choice",
            "invalid_value",
        )
    return Constraint(content, found, must=kind == "required", many=not one_call)
