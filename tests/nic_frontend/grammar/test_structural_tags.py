"""Structural tags as languages: what an answer may be, and which are refused with their place."""

# ruff: noqa: E501 (structures are long)

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from walking import MAX_WORDS, RandomAnswers, grammar_of

from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import literal
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.structural_tag import of_structural_tag
from ringbuffer.grammar import Grammar, accepts, unpack
from ringbuffer.token_bytes import SPECIAL

SPECIAL_TEXT = "<call>"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
LEGACY = {
    "structures": [
        {"begin": "<function=weather>", "schema": CITY, "end": "</function>"},
        {"begin": "<function=time>", "schema": {"type": "integer"}, "end": "</function>"},
    ],
    "triggers": ["<function="],
}
WEATHER = '<function=weather>{"city": "Oslo"}</function>'
TIME = "<function=time>12</function>"


def special(text: str) -> list[int]:
    return [found.start() for found in re.finditer(SPECIAL_TEXT, text)]


def made(document: Any, **options: Any) -> Grammar:
    return grammar_of(of_structural_tag(document, special, **options))


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def check(document: Any, good: list[str], bad: list[str]) -> None:
    grammar = made(document)
    assert [text for text in good if not accepts(grammar, text.encode())] == []
    assert [text for text in bad if accepts(grammar, text.encode())] == []


def test_structures_and_triggers() -> None:
    """Free text, and behind a trigger one of its tags, whose content is held to its schema."""
    check(
        LEGACY,
        ["", "Hello, <b>world</b>!", WEATHER, f"So: {WEATHER} and {TIME}.", TIME + TIME, "<function", "a<<function"],
        ["<function=", "<function=other>1</function>", "<function=time>1.5</function>", "<function=weather>{}</function>",
         "<function=time>12", f"{WEATHER}<function=x", "<<function=time>x"],
    )  # fmt: skip


def test_the_newer_form_says_the_same() -> None:
    tags = [
        tag(one["begin"], {"type": "json_schema", "json_schema": one["schema"]}, one["end"])
        for one in LEGACY["structures"]
    ]
    newer = {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": LEGACY["triggers"], "tags": tags},
    }
    assert compiled(of_structural_tag(newer, special), MAX_WORDS) == compiled(
        of_structural_tag(LEGACY, special), MAX_WORDS
    )


A, B = tag("<a>", NUMBER, "</a>"), tag("<b>", {"type": "regex", "pattern": "[xy]+"}, ["</b>", ";"])
TRIGGERED = {"type": "triggered_tags", "triggers": ["<a", "<b"], "tags": [A, B]}


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ({"type": "const_string", "value": "yes"}, ["yes"], ["", "no", "yes "]),
        (NUMBER, ["12"], ["x"]),
        ({"type": "regex", "pattern": "a|b"}, ["a"], ["ab"]),
        ({"type": "grammar", "grammar": 'root ::= "a" root "b" | "c"'}, ["aacbb"], ["acbb"]),
        ({"type": "any_text"}, ["", "any thing\n"], []),
        ({"type": "any_text", "excludes": ["bad", "worse"]}, ["", "ba d wors"], ["a bad one", "worse"]),
        ({"type": "sequence", "elements": [NUMBER, {"type": "const_string", "value": ": "}, {"type": "any_text"}]}, ["1: x", "12: "], ["x", ": x"]),
        ({"type": "or", "elements": [NUMBER, A]}, ["1", "<a>1</a>"], ["", "<a>", "<a>1"]),
        (A, ["<a>-5</a>"], ["<a></a>", "<a>5</a> ", "x<a>5</a>"]),
        (B, ["<b>xy</b>", "<b>y;"], ["<b>y", "<b>;"]),
        (tag("<a>", {"type": "any_text"}, "</a>"), ["<a></a>", "<a>x < /a></a>", "<a><a></a>"], ["<a>x", "<a></a></a>", "<a></a>x"]),
        (tag("<a>", {"type": "any_text"}, ["aab", "b"]), ["<a>b", "<a>aab", "<a>xab"], ["<a>aabb", "<a>a"]),
        (tag("<t>", TRIGGERED, "</t>"), ["<t></t>", "<t>x<a>1</a>y<b>x;</t>"], ["<t>x<a>1</t>", "<t>x", "<t><b>z</b></t>"]),
        (tag("<a>", NUMBER, ""), ["<a>1"], ["<a>"]),
        (TRIGGERED, ["", "x<a>1</a><b>y;z", "<", "<<a>1</a>"], ["<a", "x<b>z</b>", "<a>1", "<bx"]),
        ({**TRIGGERED, "at_least_one": True}, ["<a>1</a>", "<a>1</a> and <b>x;!"], ["", "x<a>1</a>", "<a>1</a><b"]),
        ({**TRIGGERED, "stop_after_first": True}, ["", "text", "x<a>1</a>"], ["<a>1</a> ", "<a>1</a><b>x;"]),
        ({**TRIGGERED, "at_least_one": True, "stop_after_first": True}, ["<a>1</a>", "<b>x;"], ["", "x", "<a>1</a>x", "x<a>1</a>"]),
        ({**TRIGGERED, "triggers": ["<a", "<b", "<c"]}, ["x<a>1</a>", "c>"], ["<c", "x<c>1</c>", "<a>1</a><c>"]),
        ({**TRIGGERED, "at_least_one": None, "stop_after_first": False}, ["", "x<a>1</a>y"], []),
        ({**TRIGGERED, "excludes": ["</"]}, ["a<a>1</a>b"], ["</", "<a>1</a></a>"]),
        ({"type": "tags_with_separator", "tags": [A, B], "separator": ", "}, ["", "<a>1</a>", "<a>1</a>, <b>x;, <a>2</a>"], [", ", "<a>1</a><a>1</a>", "<a>1</a>, "]),
        ({"type": "tags_with_separator", "tags": [A], "separator": "", "at_least_one": True}, ["<a>1</a><a>2</a>"], ["", "<a>1</a> "]),
        ({"type": "tags_with_separator", "tags": [A], "separator": ",", "stop_after_first": True}, ["", "<a>1</a>"], ["<a>1</a>,<a>1</a>"]),
        ({"type": "optional", "content": A}, ["", "<a>1</a>"], ["<a>1</a><a>1</a>"]),
        ({"type": "star", "content": A}, ["", "<a>1</a><a>1</a>"], ["<a>"]),
        ({"type": "plus", "content": A}, ["<a>1</a>", "<a>1</a><a>1</a>"], [""]),
        ({"type": "repeat", "min": 1, "max": 2, "content": A}, ["<a>1</a>", "<a>1</a><a>1</a>"], ["", 3 * "<a>1</a>"]),
        ({"type": "repeat", "min": 2, "max": -1, "content": A}, [3 * "<a>1</a>"], ["<a>1</a>"]),
        ({"type": "dispatch", "rules": [["n=", NUMBER], ["x=", {"type": "const_string", "value": "x"}]]}, ["", "n=5 and x=x", "nx=x"], ["n=x", "n=", "x=5"]),
        ({"type": "dispatch", "rules": [["n=", NUMBER]], "loop": False}, ["a n=5", "a"], ["n=5 "]),
    ],
)  # fmt: skip
def test_formats(form: dict[str, Any], good: list[str], bad: list[str]) -> None:
    check({"format": form}, good, bad)


def test_free_text_ends_where_the_first_mark_does() -> None:
    """Against all texts of some letters, with triggers that overlap."""
    triggers = ("aab", "ba")
    tags = [tag(f"{trigger}:", {"type": "const_string", "value": "x"}, "") for trigger in triggers]
    grammar = made({"format": {"type": "triggered_tags", "triggers": list(triggers), "tags": tags}})
    expected = re.compile("(?:(?!aab|ba).)*?(?:(?:aab|ba):x(?:(?!aab|ba).)*?)*", re.DOTALL)
    for length in range(7):
        for letters in itertools.product("ab:x", repeat=length):
            text = "".join(letters)
            assert accepts(grammar, text.encode()) == bool(expected.fullmatch(text)), text


def test_special_tokens_are_marks_however_they_are_spelled() -> None:
    document = {
        "structures": [{"begin": "<call>f:", "schema": {"type": "integer"}, "end": SPECIAL_TEXT}],
        "triggers": ["<ca"],
    }
    grammar = made(document)
    for begin, end in itertools.product((b"", SPECIAL), repeat=2):
        assert accepts(grammar, b"x" + begin + b"<call>f:1" + end + b"<call>y")
        assert not accepts(grammar, b"x" + begin + b"<call>f:1")
        assert not accepts(grammar, begin + b"<call>g:1" + end + b"<call>")
    assert not accepts(grammar, SPECIAL + b"<other>")


def test_free_text_does_not_begin_as_a_thought() -> None:
    grammar = made(LEGACY, thought=literal("<think>"))
    texts = ("<think>", f"<think> {TIME}", "<thin", f"a<think>{TIME}<think>", TIME)
    assert [accepts(grammar, text.encode()) for text in texts] == [False, False, True, True, True]


def test_answers_at_random() -> None:
    answers = RandomAnswers(made(LEGACY), random.Random(3))
    begins = [b"", b"So <function=weather>", b"<function=time>"]
    for begin in begins * 10:
        answer = answers.one(begin)
        if answer is None:
            continue
        for content in re.findall(rb"<function=weather>(.*?)</function>", answer, re.DOTALL):
            assert isinstance(json.loads(content)["city"], str)


MANY = [tag(f"<tool{i}>", NUMBER, "</tool>") for i in range(60)]


def test_many_tags() -> None:
    """Behind one trigger, and each with its own."""
    one = {"type": "triggered_tags", "triggers": ["<tool"], "tags": MANY}
    each = {**one, "triggers": [one["begin"] for one in MANY]}
    for form in (one, each):
        check({"format": form}, ["a<tool7>1</tool>b<tool59>2</tool>"], ["<tool7>x</tool>"])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "it must have a 'format', or 'structures' and 'triggers' (at #)"),
        ([], "it must be an object (at #)"),
        ({**LEGACY, "at_least_one": True}, "'at_least_one' is not supported (at #/at_least_one)"),
        ({**LEGACY, "format": NUMBER}, "'structures' is not supported (at #/structures)"),
        ({"structures": [{"begin": "a", "schema": {}, "end": "b", "style": "xml"}], "triggers": ["a"]}, "'style' is not supported (at #/structures/0/style)"),
        ({"format": {**TRIGGERED, "at_least_one": "no"}}, "'at_least_one' must be a boolean (at #/format/at_least_one)"),
        ({"format": {**TRIGGERED, "stop_after_first": 1}}, "'stop_after_first' must be a boolean (at #/format/stop_after_first)"),
        ({"format": {"type": "dispatch", "rules": [["n=", NUMBER]], "loop": 0}}, "'loop' must be a boolean (at #/format/loop)"),
        ({"format": {**TRIGGERED, "excludes": ["x", "a"]}}, "'a' is in a trigger or an end, which could not come (at #/format/excludes)"),
        ({"format": tag("<t>", {"type": "any_text", "excludes": ["/"]}, "</t>")}, "'/' is in a trigger or an end, which could not come (at #/format/content/excludes)"),
        ({"structures": []}, "'structures' must be an array with at least one item (at #)"),
        ({"structures": [{"begin": "a", "schema": {}, "end": "b"}]}, "'triggers' must be an array"),
        ({**LEGACY, "triggers": ["<tool"]}, "'begin' must begin with one trigger (at #/structures/0)"),
        ({**LEGACY, "triggers": ["<", "<f"]}, "'begin' must begin with one trigger alone (at #/structures/0)"),
        ({**LEGACY, "triggers": [""]}, "none of them empty (at #/triggers)"),
        ({"structures": [{"begin": "a", "end": "b"}], "triggers": ["a"]}, "'schema' is missing (at #/structures/0)"),
        ({"structures": [{"begin": "a", "schema": {"items": {"type": "x"}}, "end": "b"}], "triggers": ["a"]}, "(at #/structures/0/schema/items/type)"),
        ({"format": {"type": "json_schema", "json_schema": {"$ref": "#/x"}}}, "(at #/format/json_schema/$ref)"),
        ({"format": {"type": "regex", "pattern": "("}}, "(at #/format/pattern)"),
        ({"format": {"type": "grammar", "grammar": "root ::= a"}}, "'a' is not defined (at line 1) (at #/format/grammar)"),
        ({"format": {"type": "xml"}}, "'type' must be one of any_text, const_string, "),
        ({"format": {"type": ["tag"]}}, "'type' must be one of any_text, const_string, "),
        ({"format": {"type": "token", "token": 5}}, "'type' must be one of any_text, const_string, "),
        ({"format": {**NUMBER, "style": "qwen_xml"}}, "'style' is not supported (at #/format/style)"),
        ({"format": {**NUMBER, "excludes": ["a"]}}, "'excludes' is not supported (at #/format/excludes)"),
        ({"format": {"type": "any_text", "max_chars": 5}}, "'max_chars' is not supported (at #/format/max_chars)"),
        ({"format": {"type": "any_text", "exclude": ["a"]}}, "'exclude' is not supported (at #/format/exclude)"),
        ({"format": {"type": "any_text", "excludes": [""]}}, "none of them empty (at #/format/excludes)"),
        ({"format": {"type": "sequence", "elements": [{"type": "any_text"}, A]}}, "free text is supported only where an answer ends, or in a tag with an end (at #/format/elements/0)"),
        ({"format": {"type": "star", "content": {"type": "any_text"}}}, "(at #/format/content)"),
        ({"format": tag("<a>", {"type": "any_text"}, "")}, "in a tag with an end (at #/format/content)"),
        ({"format": tag("<a>", NUMBER, [])}, "'end' must be a text"),
        ({"format": tag("<a>", NUMBER, ["", "b"])}, "'end' may be empty only by itself"),
        ({"format": {"type": "tag", "begin": {"type": "token", "token": 5}, "content": NUMBER, "end": "a"}}, "'begin' must be a text (at #/format)"),
        ({"format": {"type": "triggered_tags", "triggers": ["a"], "tags": [NUMBER]}}, "it must be a tag (at #/format/tags/0)"),
        ({"format": {"type": "repeat", "min": 2, "max": 1, "content": A}}, "'min' must be at least 0"),
        ({"format": {"type": "repeat", "min": 2, "max": 10**9, "content": A}}, "'max' must be an integer up to 1000"),
        ({"format": {"type": "dispatch", "rules": [["", A]]}}, "(at #/format/rules/0)"),
    ],
)  # fmt: skip
def test_what_is_refused(document: Any, told: str) -> None:
    with pytest.raises(GrammarRefused) as refused:
        of_structural_tag(document, special)
    assert told in str(refused.value)


def test_a_tag_may_have_any_depth_that_the_stack_has() -> None:
    form: dict[str, Any] = NUMBER
    for i in range(40):
        form = tag(f"<{i}>", form, f"</{i}>")
    begin = "".join(f"<{i}>" for i in range(39, -1, -1))
    end = "".join(f"</{i}>" for i in range(40))
    check({"format": form}, [f"{begin}1{end}"], [f"{begin}1{end}x"])


def test_special_places_of_the_grammar_are_kept_apart() -> None:
    """A special token in free text, which no tag begins with, is none of the answer's."""
    assert not accepts(
        unpack(compiled(of_structural_tag({"format": {"type": "any_text"}}, special), MAX_WORDS)),
        SPECIAL + b"<call>",
    )
