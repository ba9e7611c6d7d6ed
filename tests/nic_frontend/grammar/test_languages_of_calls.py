"""F22: what a grammar lets a model write as calls, its parser reads as just these calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest
from found_calls import Found, parsed, strict_json
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from walking import MAX_WORDS, RandomAnswers

from nic_frontend.api.chat import choice_of, functions_of
from nic_frontend.api.constraint import blocks_of, chosen
from nic_frontend.api.schema.chat import ChatRequest, NamedChoice
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.served import Served
from nic_frontend.compiling.answer import expression_of
from nic_frontend.compiling.store import Source
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.spelling import SpecialTexts
from nic_frontend.parsing.answer_form import MarkedForm
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS
from ringbuffer.grammar import Grammar, unpack
from ringbuffer.token_bytes import SPECIAL

ODD = b"\\\n .-eE0*(,\xf0\xc3"  # begins escapes, spaces, long numbers and characters, keys, further calls
UNENFORCEABLE: dict[str, Any] = {"type": "array", "uniqueItems": True}

TOOL_NAMES = st.sampled_from(
    ["weather", "now", "7zip", "-x", ".net", "class", "functools", "a.b-c", "__", "true"]
)
PARAMETERS = st.sampled_from(
    ["a", "from", "class", "None", "lambda", "user-id", "x.y", "$ref", "@type", "xml:lang", "größe", "漢",
     "two words", "", "it's", 'say "x"', "a=b", "a)", "filter[x]", "-", "1st", "data-", "a\nb", "\\", "**",
     "#"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)  # fmt: skip
LEAVES = st.sampled_from([
    {"type": "string"},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": r"^[\\\"'\n]\w+$"},
    {"type": "string", "format": "date-time"},
    {"type": "integer"},
    {"type": "integer", "minimum": -(10**30), "exclusiveMaximum": 12},
    {"type": "number"},
    {"type": "number", "minimum": -0.5, "maximum": 1e3},
    {"type": ["boolean", "null"]},
    {"enum": ["None", None, True, 1e22, -0.0, "\"'\\\t\u2028", "<tool_call>", {"a b": [1]}, "</tool_call>"]},
    {"const": ["[TOOL_CALLS]", "```", {"class": "]"}]},
    {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "number"}]},
    {},
])  # fmt: skip


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(PARAMETERS, inner, max_size=3)},
        optional={
            "additionalProperties": LEAVES,
            "required": st.lists(st.sampled_from(["a", "from", "user-id", "x y"]), max_size=2),
        },
    )


SCHEMAS = objects(
    st.recursive(
        LEAVES,
        lambda inner: st.builds(lambda items: {"type": "array", "items": items}, inner) | objects(inner),
        max_leaves=3,
    )
)
LOOSE: list[Any] = [None, {}, {"type": "object"}, {"properties": {"x": UNENFORCEABLE}}]
TOOL = st.fixed_dictionaries({"name": TOOL_NAMES, "parameters": SCHEMAS | SCHEMAS | st.sampled_from(LOOSE)})
CHOICES = st.fixed_dictionaries(
    {"tools": st.lists(TOOL, min_size=1, max_size=3, unique_by=lambda tool: tool["name"])},
    optional={"parallel_tool_calls": st.booleans(), "named": st.just(True)},
)


class Forced:
    """The calls that a chat's request forces, in the way of a parser."""

    def __init__(self, name: str, tools: list[dict[str, Any]], named: bool, parallel: bool) -> None:
        shown = [{"type": "function", "function": tool} for tool in tools]
        choice: Any = {"type": "function", "function": {"name": tools[0]["name"]}} if named else "required"
        body = {"messages": [{"role": "user", "content": "x"}], "tools": shown, "tool_choice": choice}
        request = checked({**body, "parallel_tool_calls": parallel}, ChatRequest)
        self.one_call = not parallel or isinstance(request.tool_choice, NamedChoice)
        self.tools: list[Function] = functions_of(request)
        self._constraint = chosen(self.tools, *choice_of(request.tool_choice), self.one_call, None)
        self._parser = TOOL_CALL_PARSERS[name]

    def grammar(self) -> Grammar:
        """As it is compiled, for a model whose marks are special tokens."""
        served = cast(Served, SimpleNamespace(grammars=self, asker=None))
        blocks = asyncio.run(blocks_of(self._constraint, MarkedForm(self._parser), served))
        assert blocks.whole is not None
        return unpack(blocks.whole)

    available = True

    async def block(self, source: Source, param: str, *, otherwise: Source | None, asker: None) -> bytes:
        """In the place of Grammars.block: here, without a process for each."""
        special = SpecialTexts(self._parser.marks)
        try:
            return compiled(expression_of(json.loads(json.dumps(source)), special), MAX_WORDS)
        except GrammarRefused:
            assert otherwise is not None
            return compiled(expression_of(json.loads(json.dumps(otherwise)), special), MAX_WORDS)


EXACT = {"parse_int": str, "parse_float": str}  # numbers with the digits that they have
DECODER = json.JSONDecoder(**EXACT)


def read_otherwise(name: str, answer: str) -> list[tuple[str, Any]]:
    """The calls of an answer that a grammar allows: all values in it are JSON, whatever is around them."""
    calls: list[tuple[str, Any]] = []
    at = 0
    if name == "mistral" and not answer.startswith("[TOOL_CALLS]["):
        while found := re.compile(r"\[TOOL_CALLS\](.*?)\[ARGS\]").match(answer, at):
            value, at = DECODER.raw_decode(answer, found.end())
            calls.append((found[1], value))
    elif name == "pythonic":
        while found := re.compile(r"(?:\[|, ?)([\w.-]+)\(").match(answer, at):
            arguments: dict[str, Any] = {}
            at = found.end()
            while answer[at] != ")":
                at = re.compile(r"(,\s*)?(\*\*)?").match(answer, at).end()
                if answer[at] == "{":
                    members, at = DECODER.raw_decode(answer, at)
                    arguments |= members
                else:
                    key, equals, _ = answer[at:].partition("=")
                    arguments[key], at = DECODER.raw_decode(answer, at + len(key + equals))
            calls.append((found[1], arguments))
            at += 1
        assert answer[at:] == "]"
        return calls
    else:
        while (at := answer.find("{", at)) >= 0:
            value, at = DECODER.raw_decode(answer, at)
            assert set(value) - {"name"} in ({"arguments"}, {"parameters"})
            calls.append((value.pop("name"), *value.values()))
    return calls


def check(name: str, forced: Forced, answer: str, source: random.Random) -> None:
    names = frozenset(tool.name for tool in forced.tools)
    cuts = [0, *sorted(source.choices(range(len(answer) + 1), k=5)), len(answer)]
    found: Found = parsed(name, [answer], names)
    for pieces in ([answer[a:b] for a, b in itertools.pairwise(cuts)], list(answer)):
        assert parsed(name, pieces, names) == found, answer
    assert [(called, strict_json(text, **EXACT)) for called, text in found] == read_otherwise(name, answer)
    assert found
    assert len(found) == 1 or not forced.one_call
    schemas = {tool.name: tool.parameters or {} for tool in forced.tools}
    enforced = "uniqueItems" not in json.dumps(schemas)
    for called, text in found:
        jsonschema.Draft202012Validator(schemas[called] if enforced else {"type": "object"}).validate(
            strict_json(text)
        )


def check_answers(name: str, choice: dict[str, Any], seed: int) -> None:
    parallel = choice.get("parallel_tool_calls", True)
    forced = Forced(name, choice["tools"], choice.get("named", False), parallel)
    source = random.Random(seed)
    answers = RandomAnswers(forced.grammar(), source, ends=0.1, odd=ODD)
    for _ in range(4):
        if answer := answers.one():
            check(name, forced, answer.replace(SPECIAL, b"").decode(), source)


FEW = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller tool has another answer
)
FORCED = given(choice=CHOICES, seed=st.integers(0, 1 << 32))


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@FEW
@FORCED
def test_whatever_a_forced_call_may_be_is_read(name: str, choice: dict[str, Any], seed: int) -> None:
    check_answers(name, choice, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@settings(FEW, max_examples=60)
@FORCED
def test_whatever_many_forced_calls_may_be_is_read(name: str, choice: dict[str, Any], seed: int) -> None:
    check_answers(name, choice, seed)


@pytest.mark.parametrize("name", TOOL_CALL_PARSERS)
@pytest.mark.parametrize("parallel", [False, True])
def test_there_may_be_several_calls(name: str, parallel: bool) -> None:
    """Else nothing above says that they are found."""
    forced = Forced(name, [{"name": "f"}, {"name": "g"}], False, parallel)
    answers = RandomAnswers(forced.grammar(), random.Random(1), ends=0.1)
    found = [read_otherwise(name, (answers.one() or b"").replace(SPECIAL, b"").decode()) for _ in range(12)]
    assert (max(map(len, found)) > 1) == parallel
