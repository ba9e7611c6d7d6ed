"""Strings with a format or a pattern and a `maxLength`: what is enforced, and what is too large."""

from __future__ import annotations

import random
from typing import Any

import pytest
from walking import RandomAnswers, grammar_of, schema_taken

from nic_frontend.grammar import compiler
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_schema
from ringbuffer.grammar import accepts

SMALL = 1 << 18  # words, of a small server's grammar
URL: dict[str, Any] = {
    "type": "string",
    "format": "uri",
    "minLength": 1,
    "maxLength": 2083,
}  # as pydantic has it
EMAIL: dict[str, Any] = {"type": "string", "format": "email", "maxLength": 254}
LONG: dict[str, Any] = {"type": "string", "pattern": r"^\S.*", "maxLength": 50_000}


def longest(schema: dict[str, Any], begin: str, end: str = "") -> int:
    """How long a text between the two may be."""
    grammar = grammar_of(of_schema(schema))
    taken = [n for n in range(2100) if accepts(grammar, f'"{begin}{"a" * n}{end}"'.encode())]
    assert taken == list(range(taken[0], taken[-1] + 1))
    return taken[-1]


def test_a_url_of_pydantics() -> None:
    good = [
        "https://example.org",
        "http://a.b-c.de:8080/x%20y?q=1&r=/#top",
        "mailto:x@example.org",
        "urn:a:b",
    ]
    bad = ["", "example.org", "https://-a.org", "https://a..b", "https://a.org/x y", "https://a.org/%2"]
    assert schema_taken(URL, *(f'"{text}"' for text in good)) == [True] * len(good)
    assert schema_taken(URL, *(f'"{text}"' for text in bad)) == [False] * len(bad)
    assert len(compiled(of_schema(URL), SMALL)) // 4 < SMALL // 4


@pytest.mark.parametrize("most", [128, 255, pytest.param(2083, marks=pytest.mark.slow)])
def test_no_url_is_longer_than_it_may_be(most: int) -> None:
    schema = {**URL, "maxLength": most}
    scheme = longest(schema, "", "://b")
    host = longest(schema, "http://")
    path = longest(schema, "http://b/")
    query = longest(schema, "http://b?")
    fragment = longest(schema, "http://b#")
    a = "a"
    url = f"{a * scheme}://{a * host}:8080/{a * path}?{a * query}#{a * fragment}"
    assert schema_taken(schema, f'"{url}"') == [True]
    assert len(url) <= most
    assert path + query + fragment > most // 3


def test_email_addresses() -> None:
    address = f"{'a' * longest(EMAIL, '', '@b.de')}@{'a' * longest(EMAIL, 'x@')}"
    assert len(address) == 128
    assert schema_taken(EMAIL, f'"{address}"', '"x@y"', '"x"', '"@y"') == [True, True, False, False]


def test_references() -> None:
    schema = {"format": "uri-reference", "type": "string", "maxLength": 300}
    assert schema_taken(schema, '""', '"/a?b"', '"a/b#c"', '"https://a.org"', '"a b"') == [True] * 4 + [False]
    assert longest(schema, "/") < 300


def test_every_condition_counts() -> None:
    both = {"allOf": [URL, {"pattern": "[.]pdf$"}, {"format": "iri"}]}
    assert schema_taken(both, '"https://a.org/x.pdf"', '"https://a.org/x.png"') == [True, False]
    assert schema_taken({**URL, "minLength": 15}, '"https://a.org"', '"https://abc.org"') == [False, True]
    assert schema_taken({**URL, "minLength": 100, "maxLength": 110}, f'"urn:{"a" * 100}"') == [True]


def test_answers_end() -> None:
    answers = RandomAnswers(grammar_of(of_schema({"properties": {"u": URL, "v": URL}})), random.Random(2))
    assert any(answers.one(b'{"u"') for _ in range(10))


def test_equal_strings_are_there_once() -> None:
    """Else eight of them would be too large."""
    for string in (URL, {"type": "string", "pattern": r"^\S+( \S+)*$", "maxLength": 100}):
        schema = {"properties": {f"p{i}": string for i in range(8)}}
        sizes = [len(compiled(of_schema(wanted), SMALL)) for wanted in (string, schema)]
        assert sizes[1] < 3 * sizes[0]


def test_what_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "SEARCH_S", 60)  # however busy the machine is
    items = {"properties": {"a": {"type": "string"}, "b": {"type": "array", "items": LONG}}}
    with pytest.raises(GrammarRefused, match=r"\(at #/properties/b/items\)"):
        compiled(of_schema(items), SMALL, time_s=60)
