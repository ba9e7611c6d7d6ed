"""Answers of gpt-oss models: what is found in them, however they are cut into tokens, and however wrong."""

# ruff: noqa: E501 (answers are long)

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nic_frontend.harmony.form import Begins, HarmonyForm
from nic_frontend.harmony.marks import MARKS
from nic_frontend.harmony.splitter import HarmonySplitter
from nic_frontend.parsing.delta import CallArguments, CallStart, Reasoning, Text

NAMES = frozenset(("get_weather", "f"))
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
CALLED = {"city": "Köln"}
ARGUMENTS = json.dumps(CALLED, ensure_ascii=False)


def found(pieces: list[str], splitter: HarmonySplitter) -> dict[str, Any]:
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + splitter.finish()
    calls: list[list[str]] = []
    for delta in deltas:
        if isinstance(delta, CallStart):
            calls.append([delta.name, ""])
        elif isinstance(delta, CallArguments):
            calls[delta.index][1] += delta.text
    texts = {
        kind: "".join(delta.text for delta in deltas if isinstance(delta, kind)) for kind in (Text, Reasoning)
    }
    return {"text": texts[Text], "thought": texts[Reasoning], "calls": calls, "called": splitter.called}


def split(answer: str, *, names: frozenset[str] = NAMES, within: bool = False) -> dict[str, Any]:
    """Whole, and in pieces of one character, which has to be the same."""
    whole, pieces = (
        found(cut, HarmonySplitter(names, False, None, within=within)) for cut in ([answer], list(answer))
    )
    assert whole == pieces
    return whole


def nothing(**expected: Any) -> dict[str, Any]:
    return {"text": "", "thought": "", "calls": [], "called": False, **expected}


CALLS = {"calls": [["get_weather", ARGUMENTS]], "called": True}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"{ANALYSIS}Hm.{NEXT}{FINAL}It rains.", {"thought": "Hm.", "text": "It rains."}),
        (f"{FINAL}It rains.<|return|>", {"text": "It rains."}),
        (f"{ANALYSIS}Hm.", {"thought": "Hm."}),  # cut off
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", {"text": "{}"}),
        (
            f"{ANALYSIS}One.{NEXT}<|channel|>commentary<|message|>Let me look.{NEXT}{ANALYSIS}Two.{NEXT}{FINAL}So.",
            {"thought": "One.\n\nTwo.", "text": "Let me look.\n\nSo."},
        ),
        (
            f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
            CALLS,
        ),
        (f" to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}", CALLS),
        (
            f" to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
            CALLS,
        ),
        (f"<|channel|>analysis to=functions.get_weather code<|message|>{ARGUMENTS}", CALLS),
        (f"<|channel|>commentary to=get_weather<|message|>{ARGUMENTS}", CALLS),
        ("<|channel|>commentary to=functions.f<|message|>", {"calls": [["f", "{}"]], "called": True}),
        ('<|channel|>commentary to=functions.f<|message|>{"a": ', {"calls": [["f", '{"a": ']]}),
        ("<|channel|>commentary to=functions.f<|message|>no JSON", {"calls": [["f", "no JSON"]]}),
        (
            '<|channel|>commentary to=functions.f<|message|>{"a": 1} more',
            {"calls": [["f", '{"a": 1}']], "called": True, "text": " more"},
        ),
        (
            f"{ANALYSIS}Hm.{NEXT} to=functions.f<|channel|>commentary<|message|>{{}}<|call|><|start|>assistant"
            f" to=functions.get_weather<|channel|>commentary<|message|>{ARGUMENTS}",
            {"thought": "Hm.", "calls": [["f", "{}"], ["get_weather", ARGUMENTS]], "called": True},
        ),
        ("<|channel|>analysis to=browser.search<|message|>query", {"thought": "query"}),
    ],
)
def test_what_models_write(answer: str, expected: dict[str, Any]) -> None:
    assert split(answer) == nothing(**expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("It rains.", {"text": "It rains."}),  # no header at all
        ("as", {"text": "as"}),
        ("to be or not to be", {"text": "to be or not to be"}),
        ("<|message|>It rains.", {"text": "It rains."}),
        ("<|channel|>poem<|message|>It rains.", {"text": "It rains."}),
        ("<|channel|><|message|>It rains.", {"text": "It rains."}),
        ("<|channel|>final<|end|>", {}),
        ("<|channel|>final It rains.<|end|>", {"text": "It rains."}),
        ("<|channel|>final", {}),
        (f"{ANALYSIS}Hm.<|start|>assistant{FINAL}It rains.", {"thought": "Hm.", "text": "It rains."}),
        (f"{ANALYSIS}Hm.{FINAL}It rains.", {"thought": "Hm.", "text": "It rains."}),
        (f"{ANALYSIS}Hm.<|end|>{FINAL}It rains.", {"thought": "Hm.", "text": "It rains."}),
        (f"{ANALYSIS}Hm.<|end|>It rains.", {"thought": "Hm.", "text": "It rains."}),
        (f"<|start|>assistant{FINAL}It rains.<|end|><|end|>", {"text": "It rains."}),
        (f"{FINAL}a <|message|> b", {"text": "a <|message|> b"}),
        (
            '<|channel|>commentary to=functions.f<|channel|>commentary json<|message|>{"a": 1}',
            {"calls": [["f", '{"a": 1}']], "called": True},
        ),
        (
            '<|channel|>commentary to=functions.f <|constrain|>json{"a": 1}<|call|>',
            {"calls": [["f", '{"a": 1}']], "called": True},
        ),
        ("<|channel|>final " + "x " * 400, {"text": "x " * 400}),
    ],
)
def test_what_is_malformed_is_shown(answer: str, expected: dict[str, Any]) -> None:
    got = split(answer)
    assert {**got, "text": got["text"].strip()} == nothing(
        **{**expected, "text": expected.get("text", "").strip()}
    )


def test_a_call_of_a_tool_that_nobody_gave_is_thought() -> None:
    answer = f"<|channel|>commentary to=functions.get_weather<|message|>{ARGUMENTS}"
    assert split(answer, names=frozenset()) == nothing(thought=ARGUMENTS)


def test_a_continued_message_has_no_header() -> None:
    assert split("ins.<|return|>", within=True) == nothing(text="ins.")
    assert split(f" assistant{NEXT}{FINAL}Well.", within=True) == nothing(text=" assistant\n\nWell.")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*MARKS, "assistant", "analysis", "final", " to=functions.f", "{}", "a b", " "]))
)
def test_nothing_breaks_and_no_text_disappears(parts: list[str]) -> None:
    answer = "".join(parts)
    got = split(answer)
    shown = got["text"] + got["thought"] + "".join(arguments for _, arguments in got["calls"])
    assert shown.count("a b") <= parts.count("a b")
    in_content = [after for before, after in pairwise(parts) if before == "<|message|>" and after == "a b"]
    assert shown.count("a b") >= len(in_content)


def test_tokens_of_thoughts_are_counted_and_bounded() -> None:
    splitter = HarmonySplitter(NAMES, False, 3, within=False)
    tokens = ["<|channel|>", "analysis", "<|message|>", "One", " two", " three", "<|end|>"]
    exhausted = []
    for token in tokens:
        splitter.feed(token)
        exhausted.append(splitter.exhausted)
    assert exhausted == [False, False, False, False, True, False, False]
    assert splitter.reasoning_tokens == 5


def test_one_call_ends_an_answer() -> None:
    splitter = HarmonySplitter(NAMES, True, None, within=False)
    splitter.feed(" to=functions.f<|channel|>commentary<|message|>{}")
    assert not splitter.complete
    splitter.feed("<|call|>")
    assert splitter.complete
    assert splitter.feed(f"<|start|>assistant{FINAL}More.") == []


@pytest.mark.parametrize(("end", "ends"), [("<|call|>", True), ("<|return|>", True), ("<|end|>", False)])
def test_what_ends_an_answer(end: str, ends: bool) -> None:
    splitter = HarmonySplitter(NAMES, False, None, within=False)
    splitter.feed(f" to=functions.f<|channel|>commentary<|message|>{{}}{end}")
    assert splitter.complete is ends


def test_what_ends_thoughts() -> None:
    plain, with_tools = (HarmonyForm(Begins.THINKING, tools) for tools in (False, True))
    assert plain.without_thoughts is not None
    assert plain.without_thoughts.text == FINAL
    assert plain.concluded.text == f"{NEXT}{FINAL}"
    assert with_tools.without_thoughts is None
    assert (with_tools.concluded.text, with_tools.concluded.form.finds_calls) == (NEXT, True)
