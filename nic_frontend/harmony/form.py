"""How gpt-oss models write their answers, as parsing/answer_form.py asks it of a model."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from nic_frontend.harmony.marks import ASSISTANT, CHANNEL, END, FINAL, MARKS, MESSAGE, START
from nic_frontend.harmony.splitter import HarmonySplitter
from nic_frontend.parsing.answer_form import AnswerForm, Ended
from nic_frontend.parsing.answer_splitter import AnswerSplitter

NAME = "Harmony"  # in sources of grammars
ANSWERS = f"{CHANNEL}{FINAL}{MESSAGE}"  # what begins a final message, behind the role
CONCLUDES = f"{END}{START}{ASSISTANT}"  # what ends a message and begins another


class Begins(enum.StrEnum):
    """Where an answer begins."""

    THINKING = "thinking"  # behind the role; the model may think first
    CONCLUDED = "concluded"  # behind the role, when it has thought
    WITHIN = "within"  # within a final message


@dataclass(frozen=True)
class HarmonyForm:
    begins: Begins
    tools: bool
    finds_reasoning = True
    special_tokens = MARKS

    @property
    def finds_calls(self) -> bool:
        return self.tools

    @property
    def holds_calls(self) -> bool:
        return self.tools

    @property
    def key(self) -> tuple[str | None, Any]:
        return NAME, self.begins

    @property
    def without_thoughts(self) -> Ended | None:
        if self.tools or self.begins is not Begins.THINKING:
            return None
        return Ended(ANSWERS, HarmonyForm(Begins.WITHIN, False))

    @property
    def concluded(self) -> Ended:
        if self.tools:  # the model may still call one
            return Ended(CONCLUDES, HarmonyForm(Begins.CONCLUDED, True))
        return Ended(CONCLUDES + ANSWERS, HarmonyForm(Begins.WITHIN, False))

    def splitter(self, names: frozenset[str], one_call: bool, budget: int | None) -> AnswerSplitter:
        return HarmonySplitter(names, one_call, budget, within=self.begins is Begins.WITHIN)


class HarmonyForms:
    """As AnswerForms."""

    finds_reasoning = True

    def form(self, prompt: str, *, tools: bool, continued: str | None = None) -> AnswerForm:
        return HarmonyForm(Begins.THINKING if continued is None else Begins.WITHIN, tools)
