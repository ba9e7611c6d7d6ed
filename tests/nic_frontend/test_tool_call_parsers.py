"""Each way of writing calls: what is found, what is not, and that pieces of an answer make no difference."""

# ruff: noqa: E501 (answers and templates are long)

from __future__ import annotations

import json
import re

import pytest
from found_calls import NAMES, Found, collected, cut, parsed, strict_json
from hypothesis import given, settings
from hypothesis import strategies as st
from known_work import least_cpu_s

from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS
from nic_frontend.parsing.splitter import Splitter

F = ("f", '{"a": 1}')
G = ("g", "{}")
CASES: list[tuple[str, str, Found]] = [
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [F]),
    ("hermes", 'Well.\n\n<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', [("text", "Well."), F]),
    ("hermes", '<tool_call>{"name":"f","arguments":{"a": 1}}</tool_call>\n<tool_call>{"name":"g"}</tool_call>\n', [F, G]),
    ("hermes", '<tool_call>{"name": "other", "arguments": {}}</tool_call>', [("other", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call> bye', [F, ("text", " bye")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}', [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>"}}</tool_call>', [("f", '{"s": "</tool_call>"}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"s": "x\ny"}}</tool_call>', [("f", '{"s": "x\\u000ay"}')]),
    ("hermes", "a <tool_call> is a tag", [("text", "a <tool_call> is a tag")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": 5}</tool_call>', [("text", '<tool_call>{"name": "f", "arguments": 5}</tool_call>')]),
    ("hermes", '<tool_call>{"name": {"a": 1}}</tool_call>', [("text", '<tool_call>{"name": {"a": 1}}</tool_call>')]),
    ("hermes", '<tool_call>{"name": "\\ud800"}</tool_call>', [("text", '<tool_call>{"name": "\\ud800"}</tool_call>')]),
    ("hermes", "1 < 2 <tool", [("text", "1 < 2 <tool")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}</tool_call>', [F, G]),
    ("hermes", '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]</tool_call> bye', [F, G, ("text", " bye")]),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}} and {"b"} or\n{"name": "g"}, so\n</tool_call>', [F, ("text", ' and {"b"} or'), G, ("text", ", so")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}\n\nThat is {"name": "Al", "age": 3}', [F, ("text", '\n\nThat is {"name": "Al", "age": 3}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}\n<tool_call>{"name": "g"}</tool_call>', [F, G]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_', [F]),
    ("hermes", '<tool_call>\ufeff\u00a0{"name": "f", "arguments": {"a": 1}}\u2003</tool_call>', [F]),
    ("hermes", '<tool_call>{"my word": 2, "name": "f", "arguments": {"a": 1}, "why": "so"} </tool_call>', [F, ("text", '"my word": 2, "why": "so"')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}, "name": "g", "parameters": 5, "x" </tool_call>', [F, ("text", '"name": "g", "parameters": 5, "x"')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}, "why": "so', [F, ("text", '"why": "so')]),
    ("hermes", '<tool_call>{"name": "f", "city": "Rome"}</tool_call>', [("text", '<tool_call>{"name": "f", "city": "Rome"}</tool_call>')]),
    ("hermes", '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>', [("text", '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [NaN, -Infinity, True, None]}}</tool_call>', [("f", '{"a": [null, -1e999, true, null]}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": NaN}"}</tool_call>', [("f", '{"a": null}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": ""}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "Rome"}</tool_call>', [("text", '<tool_call>{"name": "f", "arguments": "Rome"}</tool_call>')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"\\ud83d": "\\ud83d\\ude00 \\ude00\\ud83d\\n"}}</tool_call>', [("f", '{"\ufffd": "\\ud83d\\ude00 \ufffd\ufffd\\n"}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\ud83d', [("f", '{"a": "\\ud83d')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": Tr', [("f", '{"a": Tr')]),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}', [F]),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}, {"name": "g"} ok', [F, G, ("text", " ok")]),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}, "x": 1}', [F, ("text", '"x": 1}')]),
    ("llama3_json", '\n{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', [F, G]),
    ("llama3_json", '<|python_tag|>{"type": "function", "name": "other", "parameters": {}}', [("other", "{}")]),
    ("llama3_json", '{"name": "Alice", "age": 3}', [("text", '{"name": "Alice", "age": 3}')]),
    ("llama3_json", ' {"a": [1]} ', [("text", ' {"a": [1]} ')]),
    ("llama3_json", 'So {"name": "f", "parameters": {}}', [("text", 'So {"name": "f", "parameters": {}}')]),
    ("llama3_json", "<|python_tag|>print(1)", [("text", "<|python_tag|>print(1)")]),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]', [F, G]),
    ("mistral", 'Hm. [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{}', [("text", "Hm."), F, G]),
    ("mistral", '[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{"a": 1}', [F]),
    ("mistral", "[TOOL_CALLS]hello world", [("text", "[TOOL_CALLS]hello world")]),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, 5]', [F, ("text", ", 5]")]),
    ("phi4_mini", '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>', [F]),
    ("phi4_mini", '<|tool_call|>{"name": "f", "arguments": {"a": 1}}<|/tool_call|>', [F]),
    ("phi4_mini", '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}] so <|/tool_call|>!', [F, ("text", " so!")]),
    ("phi4_mini", 'functools[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]', [F, G]),
    ("phi4_mini", "the module functools has cache", [("text", "the module functools has cache")]),
    ("pythonic", '[f(a=1), g()]', [F, G]),
    ("pythonic", '[f(a="b)]", c=[1, {"d": None}], e=-2.5, ok=true)]', [("f", '{"a": "b)]", "c": [1, {"d": null}], "e": -2.5, "ok": true}')]),
    ("pythonic", "Sure!\n```tool_code\nf(a=1)\ng()\n```", [("text", "Sure!"), F, G]),
    ("pythonic", "```tool_code\nf(a=1)  # why\n\ng(); x\n```\nDone.", [F, ("text", "  # why"), G, ("text", "; x\nDone.")]),
    ("pythonic", "<|python_start|>[f(a=1)]<|python_end|>", [F]),
    ("pythonic", "<|python_start|>[f(a=1)] so <|python_end|>!", [F, ("text", " so!")]),
    ("pythonic", "[1, 2, 3]", [("text", "[1, 2, 3]")]),
    ("pythonic", "[other(a=1)]", [("text", "[other(a=1)]")]),
    ("pythonic", "[f(a=b)]", [("text", "[f(a=b)]")]),
    ("pythonic", "[f(1)]", [("text", "[f(1)]")]),
    ("pythonic", "[f(a=1)" , [F]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), CASES, ids=range(len(CASES)))
def test_what_is_found(name: str, text: str, expected: Found) -> None:
    assert parsed(name, [text]) == expected
    assert parsed(name, list(text)) == expected


def test_every_parser_has_cases() -> None:
    assert {name for name, _, _ in CASES} == set(TOOL_CALL_PARSERS)


FRAGMENTS = sorted(
    {piece for _, text, _ in CASES for piece in re.findall(r"\w+|\s+|[^\w\s]+", text)}
    | {"<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", '{"name": "f", "arguments": ', "```tool_code\n"}
)  # fmt: skip
ANSWERS = st.sampled_from([text for _, text, _ in CASES]) | st.lists(
    st.sampled_from(FRAGMENTS), max_size=14
).map("".join)


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@settings(max_examples=300, deadline=None)
@given(pieces=cut(ANSWERS))
def test_pieces_make_no_difference(name: str, pieces: list[str]) -> None:
    found = parsed(name, ["".join(pieces)])
    assert parsed(name, pieces) == found
    if not any(kind in NAMES for kind, _ in found) and len(found) == 1:
        assert found == [("text", "".join(pieces))] or found[0][0] != "text"


@settings(max_examples=300, deadline=None)
@given(pieces=cut(ANSWERS), opened=st.booleans())
def test_pieces_make_no_difference_to_reasoning(pieces: list[str], opened: bool) -> None:
    text = "".join(pieces)
    for whole in (f"<think>{text}</think>{text}", f"{text}</think>\n\n{text}", text):
        at = len(whole) // 2

        def split(parts: list[str]) -> Found:
            thinking = ReasoningParser("<think>", "</think>", opened)
            splitter = Splitter(thinking, TOOL_CALL_PARSERS["hermes"](NAMES))
            return collected([d for part in parts for d in splitter.feed(part)] + splitter.finish())

        assert split([whole[:at], whole[at:]]) == split([whole]) == split(list(whole))


def test_arguments_come_in_pieces() -> None:
    parser = TOOL_CALL_PARSERS["hermes"](NAMES)
    deltas = [
        parser.feed(piece) for piece in ("<tool_call>{", '"name": "f", "arguments": {"a', '": "b', 'c"}}')
    ]
    assert [type(delta).__name__ for delta in deltas[1]] == ["CallStart", "CallArguments"]
    assert [delta.text for delta in deltas[2] + deltas[3]] == ['": "b', 'c"}']  # type: ignore[union-attr]


LONG = "x" * 150_000
HOSTILE = {
    "hermes": ['<tool_call>{"name": "f", "arguments": {"a": 1}}' + '{"name": "x' * 9000, '<tool_call>{"name": "f", "arguments": {"a": 1' + "1" * 150_000, '<tool_call>{"name": "f", "arguments": {"a": "' + LONG, '<tool_call>{"b": "' + LONG, "<tool_call>" * 9000],
    "llama3_json": ['{"name": "f", "parameters": {"a": "' + LONG, '{"type": "' + LONG, "[" * 50_000],
    "mistral": ["[TOOL_CALLS]" + LONG, '[TOOL_CALLS][{"b": "' + LONG, "[TOOL_CALLS]f[ARGS]{" + LONG],
    "phi4_mini": ["functools" * 9000, '<|tool_call|>[{"b": ' + "[" * 99_000, "<|tool_call|>" + LONG],
    "pythonic": ["[f(a=1" + "1" * 150_000, "[f(a=0x1" + "1" * 150_000 + ")]", "[f(a=1e+" + "e+" * 50_000, "[f(" + LONG, "[f(a='" + "\\N{" * 40_000, "[f(a=" + "''" * 50_000, "```tool_code\nf()\n" + "f(\n" * 20_000, '[f(a="' + LONG, "[f(a=" + "(" * 50_000, "[f(a=" + "-" * 50_000 + "1)]"],
}  # fmt: skip


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
def test_long_answers_take_linear_time(name: str) -> None:
    """F10. It takes one second of the processor."""

    def parse() -> None:
        for text in [*HOSTILE[name], "{" * 20_000, '"' * 20_000, " " * 150_000, "<" * 20_000]:
            parsed(name, [text[at : at + 4] for at in range(0, len(text), 4)])

    assert least_cpu_s(parse, 3.0) < 3.0


def test_json_that_is_no_call_is_shown_at_once() -> None:
    parser = TOOL_CALL_PARSERS["llama3_json"](NAMES)
    assert collected(parser.feed('{"answer": 4')) == [("text", '{"answer": 4')]


def test_one_call() -> None:
    splitter = Splitter(None, TOOL_CALL_PARSERS["hermes"](NAMES), one_call=True)
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    assert collected(splitter.feed(f"Hm.{call[:-1]}")) == [("text", "Hm."), F]
    assert not splitter.complete
    assert splitter.feed(f">{call}x") == []
    assert splitter.complete


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, [("reasoning", "Hm."), ("text", "Yes.")]),
        ("Hm.</think> Yes.", True, [("reasoning", "Hm."), ("text", "Yes.")]),
        ("\n<think>Hm.</think>Yes.", True, [("reasoning", "Hm."), ("text", "Yes.")]),
        ("Yes <think>.", False, [("text", "Yes <think>.")]),
        ("<think>a </thi", False, [("reasoning", "a </thi")]),
        ("<thi", False, [("text", "<thi")]),
        ("<think>\n\n</think>\n\nYes.", False, [("text", "Yes.")]),
        ("", True, []),
    ],
)
def test_reasoning(text: str, opened: bool, expected: Found) -> None:
    for pieces in ([text], list(text)):
        splitter = Splitter(ReasoningParser("<think>", "</think>", opened), None)
        assert (
            collected([d for piece in pieces for d in splitter.feed(piece)] + splitter.finish()) == expected
        )


@settings(max_examples=300, deadline=None)
@given(value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
def test_all_arguments_come_through(value: object) -> None:
    arguments = {"value": value}
    for ascii_only in (True, False):
        written = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=ascii_only)
        if any("\ud800" <= character <= "\udfff" for character in written):
            continue
        ((name, found),) = parsed("hermes", [f"<tool_call>{written}</tool_call>"])
        assert (name, strict_json(found)) == ("f", arguments)
