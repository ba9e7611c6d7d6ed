"""What an answer is held to, as a request's source says it: a form of its text, calls of tools, or both.

A source is JSON, and all that decides which grammar it is: api/constraint.py writes it, and a process without
the frontend's objects makes the expression of it.
"""

from __future__ import annotations

from typing import Any

from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.characters import ALL
from nic_frontend.grammar.content import language_of
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
from nic_frontend.grammar.spelling import SpecialTexts
from nic_frontend.harmony.form import NAME as HARMONY
from nic_frontend.harmony.form import Begins
from nic_frontend.harmony.language import HarmonyLanguage
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS
from nic_frontend.parsing.tool_call_parser import ToolCallParser

BLANKS = repeated(one_of(" \n"), 0, 4)  # around what a model thinks
PARSERS = {parser.__name__: parser for parser in TOOL_CALL_PARSERS.values()}


def expression_of(source: dict[str, Any], special: SpecialTexts) -> Expression:
    """Raises GrammarRefused."""
    if source["calls"][-1] == HARMONY:
        return _of_harmony(source, special)
    answers = Answers(source, special)
    thinks = source["thinks"]
    return answers.any(EMPTY) if thinks is None else answers.behind_thoughts(*thinks)


def _of_harmony(source: dict[str, Any], special: SpecialTexts) -> Expression:
    content = None
    if source["content"] is not None:
        kind, wanted = source["content"]
        content = language_of(kind, wanted, special.places, EMPTY)
    tools = [Function(*tool) for tool in source["tools"]]
    must, _, _ = source["calls"]
    return HarmonyLanguage(content, tools, must, special.answer_bytes).answers(Begins(source["thinks"]))


class Answers:
    def __init__(self, source: dict[str, Any], special: SpecialTexts) -> None:
        self._content = source["content"]
        self._tools = [Function(*tool) for tool in source["tools"]]
        self._must, self._many, parser = source["calls"]
        self._parser = PARSERS[parser] if parser is not None else None
        self._special = special

    def any(self, thought: Expression) -> Expression:
        """`thought`: how it cannot begin, because then the model thinks. EMPTY: it may begin anyhow."""
        found = []
        if self._parser is not None and self._tools:
            if not self._must and self._content is None:
                return self._text_and_calls(self._parser, thought)
            found.append(self._parser.language(self._tools, self._many, self._special.answer_bytes))
        if self._content is not None and not self._must:
            kind, content = self._content
            found.append(language_of(kind, content, self._special.places, thought))
        return any_of(found)

    def _text_and_calls(self, parser: type[ToolCallParser], thought: Expression) -> Expression:
        """Any text, and where the mark of a call stands, calls."""
        anything = repeated(characters(ALL))
        mark = literal(self._special.answer_bytes(parser.marks[0]))  # with which `language` begins
        text = without(anything, sequence(anything, mark, anything))
        if thought is not EMPTY:
            text = without(text, sequence(thought, anything))
        calls = parser.language(self._tools, self._many, self._special.answer_bytes)
        return any_of([text, sequence(text, calls)])

    def behind_thoughts(self, opening: str, closing: str, inside: bool) -> Expression:
        """Whatever the model thinks comes first."""
        thoughts = sequence(until(self._special.answer_bytes(closing)), BLANKS)
        if inside:
            return sequence(thoughts, self.any(EMPTY))
        begun = sequence(BLANKS, literal(self._special.answer_bytes(opening)))
        return any_of([sequence(begun, thoughts, self.any(EMPTY)), self.any(begun)])
