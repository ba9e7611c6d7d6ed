"""Grammars of harmony: a structure holds in the final message, a schema in a call, both behind thoughts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from nic_frontend.api.constraint import Constraint, source_of
from nic_frontend.compiling.answer import expression_of
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.content import Content
from nic_frontend.grammar.spelling import SpecialTexts
from nic_frontend.harmony.form import Begins, HarmonyForm
from nic_frontend.harmony.marks import MARKS
from nic_frontend.harmony.splitter import HarmonySplitter
from nic_frontend.parsing.delta import CallArguments
from ringbuffer.grammar import Grammar, accepts, unpack
from ringbuffer.token_bytes import SPECIAL

MAX_WORDS = 1 << 18
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CITY |= {"additionalProperties": False}
AS_JSON = Content("json", CITY, "response_format")
TOOL = Function("get_weather", CITY, True)
THOUGHT = "<|channel|>analysis<|message|>Hm, {.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CALL = " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>"
VALUE = '{"city": "Köln"}'


def grammar(constraint: Constraint, begins: Begins = Begins.THINKING) -> Grammar:
    source: Any = json.loads(json.dumps(source_of(constraint, HarmonyForm(begins, bool(constraint.tools)))))
    return unpack(compiled(expression_of(source, SpecialTexts(MARKS)), MAX_WORDS))


def allows(of: Grammar, answer: str) -> bool:
    """Marks are special tokens."""
    marks = re.compile("|".join(map(re.escape, MARKS)).encode())
    return accepts(of, marks.sub(lambda found: SPECIAL + found[0], answer.encode()))


def test_a_structure_holds_in_the_final_message() -> None:
    found = grammar(Constraint(AS_JSON))
    for answer in (
        f"{THOUGHT}{THOUGHT}{FINAL}{VALUE}",
        f"{FINAL}{VALUE}",
        f"<|channel|>final <|constrain|>json<|message|>{VALUE}",
    ):
        assert allows(found, answer), answer
    for answer in (
        f"{FINAL}It rains.",
        f"{THOUGHT}{FINAL}{{}}",
        VALUE,
        f"{CALL}{VALUE}",
        f"{PREAMBLE}{FINAL}{VALUE}",
    ):
        assert not allows(found, answer), answer


@pytest.mark.parametrize("head", [CALL, "<|channel|>commentary to=functions.get_weather json<|message|>"])
def test_a_call_may_be_forced(head: str) -> None:
    found = grammar(Constraint(None, [TOOL], must=True))
    for answer in (f"{head}{VALUE}", f"{THOUGHT}{PREAMBLE}{THOUGHT}{head}{VALUE}"):
        assert allows(found, answer), answer
        splitter = HarmonySplitter(frozenset((TOOL.name,)), False, None, within=False)
        deltas = splitter.feed(answer) + splitter.finish()
        assert "".join(delta.text for delta in deltas if isinstance(delta, CallArguments)) == VALUE
        assert (splitter.n_calls, splitter.called) == (1, True)
    for answer in (
        f"{head}{{}}",
        f"{FINAL}It rains.",
        f"{THOUGHT}",
        f"{head.replace('weather', 'news')}{VALUE}",
    ):
        assert not allows(found, answer), answer


def test_a_model_may_answer_instead_of_calling() -> None:
    strict = grammar(Constraint(None, [TOOL]))
    assert allows(strict, f"{THOUGHT}{FINAL}It rains.")
    assert allows(strict, f"{THOUGHT}{CALL}{VALUE}")
    assert not allows(strict, f"{THOUGHT}{CALL}{{}}")
    both = grammar(Constraint(AS_JSON, [TOOL]))
    assert allows(both, f"{FINAL}{VALUE}")
    assert allows(both, f"{CALL}{VALUE}")
    assert not allows(both, f"{FINAL}It rains.")


def test_behind_thoughts_that_were_ended_there_are_none() -> None:
    concluded = grammar(Constraint(None, [TOOL], must=True), Begins.CONCLUDED)
    assert allows(concluded, f"{CALL}{VALUE}")
    assert not allows(concluded, f"{THOUGHT}{CALL}{VALUE}")
    begun = grammar(Constraint(None, [TOOL], must=True), Begins.WITHIN)
    assert allows(begun, f"ins.<|end|><|start|>assistant{THOUGHT}{CALL}{VALUE}")
    assert not allows(begun, "ins.")
    within = grammar(Constraint(AS_JSON), Begins.WITHIN)
    assert allows(within, VALUE)
    assert not allows(within, f"{FINAL}{VALUE}")
