"""What a grammar lets a model write as calls, its parser reads as just these calls."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from walking import RandomAnswers, grammar_of

from nic_frontend.grammar.calls import Function
from nic_frontend.parsing.delta import CallArguments, CallStart, Text
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "units": {"enum": ["metric", "imperial", None, True]},
        "where": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
    },
    "required": ["city", "units"],
}
FUNCTIONS = [Function("weather", SCHEMA, True), Function("now", None, False), Function("stop", {}, True)]
SCHEMAS = {"weather": SCHEMA, "now": {"type": "object"}, "stop": {"type": "object"}}


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_calls(name: str, many: bool) -> None:
    parser = TOOL_CALL_PARSERS[name]
    grammar = grammar_of(parser.language(FUNCTIONS, many, str.encode))
    answers = RandomAnswers(grammar, random.Random(name))
    most = 0
    for _ in range(25):
        answer = answers.one()
        if answer is None:
            continue
        reader = parser(frozenset(SCHEMAS))
        deltas = [*reader.feed(answer.decode()), *reader.finish()]
        assert not any(isinstance(delta, Text) for delta in deltas), answer
        calls = {delta.index: delta.name for delta in deltas if isinstance(delta, CallStart)}
        assert calls, answer
        most = max(most, len(calls))
        for index, called in calls.items():
            pieces = (d.text for d in deltas if isinstance(d, CallArguments) and d.index == index)
            jsonschema.validate(json.loads("".join(pieces)), SCHEMAS[called])
    assert (most > 1) == many
