"""Which parsers there are, and which of them suits a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from nic_frontend.parsing.answer_form import AnswerForm, MarkedForm
from nic_frontend.parsing.delta import CallArguments, CallStart
from nic_frontend.parsing.hermes import Hermes
from nic_frontend.parsing.llama3_json import Llama3Json
from nic_frontend.parsing.mistral import Mistral
from nic_frontend.parsing.phi4_mini import Phi4Mini
from nic_frontend.parsing.pythonic import Pythonic
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.tool_call_parser import ToolCallParser
from nic_frontend.templates.calls import WrittenCalls
from nic_frontend.templates.chat_template import ChatTemplate, TemplateSource
from nic_frontend.templates.forms import TemplateForms
from nic_frontend.templates.marks import REASONING_PARSERS, Marks
from nic_frontend.templates.tools import ARGUMENTS, CALLED_NAME

AUTO, NONE = "auto", "none"

TOOL_CALL_PARSERS: dict[str, type[ToolCallParser]] = {
    "hermes": Hermes,
    "llama3_json": Llama3Json,
    "mistral": Mistral,
    "phi4_mini": Phi4Mini,
    "pythonic": Pythonic,
}

# What the prompt of a model tells it about tools, where its template shows no calls. Earlier ones decide.
SIGNS_OF_CALLS = (
    ("<function=", NONE),  # calls in XML inside <tool_call>: no parser reads them
    ("<arg_key>", NONE),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call|>", "phi4_mini"),
    ("<|tool|>", "phi4_mini"),
    ("<|python_start|>", "pythonic"),
    ("[func_name1(", "pythonic"),
    ("tool_code", "pythonic"),
    ('{"name": function name', "llama3_json"),
)

TAIL = 256  # characters of a prompt, at whose end a mark may stand


@dataclass(frozen=True)
class Parsers:
    """What one server finds in its model's answers."""

    tool_calls: type[ToolCallParser] | None
    marks: Marks | None

    @property
    def finds_reasoning(self) -> bool:
        return self.marks is not None

    def form(self, prompt: str, *, tools: bool, continued: str | None = None) -> AnswerForm:
        """As AnswerForms has it."""
        parser = self.tool_calls if tools else None
        return MarkedForm(parser, self.marks, partial(self.reasoning, prompt, continued))

    def reasoning(self, prompt: str, continued: str | None = None) -> ReasoningParser | None:
        """For the answer to a prompt, which may have begun the reasoning, or ended it.

        `continued`: the text of the message with which the prompt ends. What continues it is no reasoning,
        unless a thought is open in it.
        """
        marks = self.marks
        if marks is None:
            return None
        if continued is not None:
            within = continued.rfind(marks.opening) > continued.rfind(marks.closing)
            return ReasoningParser(marks.opening, marks.closing, True, within=True) if within else None
        end = prompt[-TAIL:].rstrip()
        if end.endswith(marks.closing):
            return None
        opened = marks.opened or end.endswith(marks.opening)
        return ReasoningParser(marks.opening, marks.closing, opened)


def choose(tool_calls: str, reasoning: str, template: TemplateForms | str | None) -> Parsers:
    """The parsers of these names; for "auto" those that suit the model's template, as trials have shown it.

    A template that is given as its source is tried here, without limits on time and memory: whoever does so
    trusts it. Raises jinja2.TemplateError where it does not compile.
    """
    forms = ChatTemplate(TemplateSource(template, {})).forms if isinstance(template, str) else template
    if tool_calls == AUTO:
        tool_calls = _of_calls(forms.with_tools.written) if forms and forms.with_tools else NONE
    if reasoning == AUTO:
        uses = (forms.plain, forms.with_tools) if forms else ()
        reasoning = next((use.thoughts.parser for use in uses if use and use.thoughts.parser), NONE)
    return Parsers(TOOL_CALL_PARSERS.get(tool_calls), REASONING_PARSERS.get(reasoning))


def _of_calls(written: WrittenCalls) -> str:
    """The name of the parser that reads what the template writes for a call."""
    if not written.calls:
        return next((name for sign, name in SIGNS_OF_CALLS if sign in written.prompt), NONE)
    readers = (
        name
        for text in written.calls
        for name, parser in TOOL_CALL_PARSERS.items()
        if _reads(parser(frozenset((CALLED_NAME,))), text)
    )
    return next(readers, NONE)


def _reads(parser: ToolCallParser, text: str) -> bool:
    """Whether the call of a probe is what the parser finds in a text."""
    deltas = [*parser.feed(text), *parser.finish()]
    names = [delta.name for delta in deltas if isinstance(delta, CallStart)]
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, CallArguments))
    try:
        return names == [CALLED_NAME] and bool(json.loads(arguments) == ARGUMENTS)
    except ValueError:
        return False
