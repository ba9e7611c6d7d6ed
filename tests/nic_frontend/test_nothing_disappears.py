"""F22: whatever a model writes, each word of it is in a call or in the text, once."""

# ruff: noqa: E501 (tables are wide)

from __future__ import annotations

import re
from collections import Counter

import pytest
from found_calls import NAMES, collected, complete_arguments, cut, parsed, strict_json
from hypothesis import given, settings
from hypothesis import strategies as st

from nic_frontend.parsing.reasoning import ReasoningParser
from nic_frontend.parsing.registry import REASONING_PARSERS, TOOL_CALL_PARSERS, Marks
from nic_frontend.parsing.splitter import Splitter

WORD = re.compile(r"w\d+w")
MARKS = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{", "[ARGS]", "<|tool_call|>", "<|/tool_call|>",
    "functools[", "<|python_start|>", "<|python_end|>", "<|python_tag|>", "```tool_code\n", "```",
]  # fmt: skip
# Each @ becomes a word of its own.
CALLS = [
    '{"name": "f", "arguments": {"a": "@"}}', '{"name":"@","parameters":{}}', '[{"name":"g","arguments":{"@":"@"}}]',
    '{"arguments": {"a": "@"}, "name": "f"}', '{"name": "f", "arguments": "{\\"@\\": 1}"}', '{"name": "f"}',
    '{"name": "f", "@": 1, "arguments": {"@": NaN}, "@": {"@": []}}', '{"name": "f", "@": 1}', '{"name": "f", "arguments": null}',
    '{"name": "f", "name": "@", "arguments": {}}', '{"name": "f", "arguments": {}, "parameters": {"@": 1}}',
    '{"name": "f", "arguments": {"a": "\\ud800@"}, "name": "@"}', '{"name": "f", "arguments": {"a": @',
    'f(@="@", b=[1, ("@"), {"@": None}])', '[f(**{"@": 1}), g()]', "f(a='''@\n''' \"@\")", 'g(a=1, @="@\\ud83d")', 'f(a=r"\\@")',
]  # fmt: skip
PIECES = [
    "@", " @ ", "\n", " ", ", ", "; ", "{", "}", "[", "]", "(", ")", '"', "'", "\\", ":", "=", "f(", "f", "1", "NaN",
    '"name": "f"', '"name": "@"', '"arguments": {', '"parameters": ', '"@"', '"@": ', '@=', "\\ud83d", "-Infinity", "</", "``",
]  # fmt: skip


def with_words(parts: list[str]) -> str:
    text, *rest = "".join(parts).split("@")
    return "".join([text, *(f"w{i}w{part}" for i, part in enumerate(rest))])


ANSWERS = st.lists(
    st.sampled_from(CALLS) | st.sampled_from(MARKS) | st.sampled_from(PIECES), max_size=12
).map(with_words)


def words(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in WORD.findall(text))


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@settings(max_examples=80, deadline=None)
@given(pieces=cut(ANSWERS))
def test_every_word_is_somewhere(name: str, pieces: list[str]) -> None:
    answer = "".join(pieces)
    found = parsed(name, [answer])
    assert words([part for kind, text in found for part in (kind, text)]) == words([answer]), found
    assert parsed(name, pieces) == parsed(name, list(answer)) == found
    assert all(isinstance(strict_json(text), dict) for text in complete_arguments(name, answer))


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(TOOL_CALL_PARSERS)),
    marks=st.sampled_from(list(REASONING_PARSERS.values())),
    pieces=cut(ANSWERS),
    answer=ANSWERS,
)
def test_thoughts_may_have_marks(name: str, marks: Marks, pieces: list[str], answer: str) -> None:
    """They are shown as they are, and what looks like a call in them is none."""
    thoughts = "".join(pieces)
    for closing in (marks.closing, ""):
        splitter = Splitter(
            ReasoningParser(marks.opening, marks.closing, True), TOOL_CALL_PARSERS[name](NAMES)
        )
        parts = [*pieces, closing, answer] if closing else pieces
        deltas = [delta for piece in parts for delta in splitter.feed(piece)] + splitter.finish()
        found = collected(deltas)
        shown = "".join(text for kind, text in found if kind == "reasoning")
        assert shown.split() == thoughts.split()
        if closing:
            rest = [part for part in found if part[0] != "reasoning"]
            assert rest == parsed(name, [answer.lstrip()])
