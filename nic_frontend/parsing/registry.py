"""Which parsers there are, and which of them suits a model."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.parsing.hermes import Hermes
from nic_frontend.parsing.llama3_json import Llama3Json
from nic_frontend.parsing.mistral import Mistral
from nic_frontend.parsing.phi4_mini import Phi4Mini
from nic_frontend.parsing.pythonic import Pythonic
from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.tool_call_parser import ToolCallParser

AUTO, NONE = "auto", "none"

TOOL_CALL_PARSERS: dict[str, type[ToolCallParser]] = {
    "hermes": Hermes,
    "llama3_json": Llama3Json,
    "mistral": Mistral,
    "phi4_mini": Phi4Mini,
    "pythonic": Pythonic,
}

# What a model's template has when the model writes its calls so. Earlier ones decide.
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
    ("<|python_tag|>", "llama3_json"),
    ('{"name": function name', "llama3_json"),
)
SIGNS_OF_REASONING = (
    ("[THINK]", "magistral"),
    ("<\uff5cAssistant\uff5c>", "deepseek_r1"),
    ("</think>", "think"),
)


TAIL = 256  # characters of a prompt, at whose end a mark may stand


@dataclass(frozen=True)
class Marks:
    """Around what a model thinks."""

    opening: str
    closing: str
    opened: bool = False  # the model leaves the opening mark out

    @property
    def conclusion(self) -> str:
        """What ends the thoughts of a model that is made to."""
        return f"\n{self.closing}\n\n"


REASONING_PARSERS: dict[str, Marks] = {
    "think": Marks("<think>", "</think>"),  # Qwen3, Phi-4-reasoning
    "deepseek_r1": Marks("<think>", "</think>", opened=True),
    "magistral": Marks("[THINK]", "[/THINK]"),
}


@dataclass(frozen=True)
class Parsers:
    """What one server finds in its model's answers."""

    tool_calls: type[ToolCallParser] | None
    marks: Marks | None

    def reasoning(self, prompt: str) -> ReasoningParser | None:
        """For the answer to a prompt, which may have begun the reasoning, or ended it."""
        marks = self.marks
        if marks is None:
            return None
        end = prompt[-TAIL:].rstrip()
        if end.endswith(marks.closing):
            return None
        opened = marks.opened or end.endswith(marks.opening)
        return ReasoningParser(marks.opening, marks.closing, opened)


def choose(tool_calls: str, reasoning: str, template: str | None) -> Parsers:
    """The parsers of these names; for "auto" those that suit the model's template."""
    if tool_calls == AUTO:
        tool_calls = _first(SIGNS_OF_CALLS, template)
    if reasoning == AUTO:
        reasoning = _first(SIGNS_OF_REASONING, template)
    return Parsers(TOOL_CALL_PARSERS.get(tool_calls), REASONING_PARSERS.get(reasoning))


def _first(signs: tuple[tuple[str, str], ...], template: str | None) -> str:
    return next((name for sign, name in signs if sign in (template or "")), NONE)
