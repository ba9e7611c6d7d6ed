"""The lines of a batch's file: what is a request, which have been answered, which have the same id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blink.batch.lines import LONGEST_ID, Index, Line, WrongLine, asked_by, id_of, key_of, lines_of
from blink.errors import CommandError

LONGEST = 1000
BODY = {"prompt": "x"}


def request(**changes: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": BODY, **changes}


def line(**changes: Any) -> Line:
    return Line(3, json.dumps(request(**changes)).encode(), True)


def written(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join(one if isinstance(one, bytes) else one.encode() + b"\n" for one in lines))
    return path


def test_a_request_keeps_its_body_as_it_is_written() -> None:
    text = b'{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt": "\\u00e9" , "n":1.0}}'
    assert asked_by(Line(1, text, True), LONGEST) == ("/v1/completions", b'{"prompt": "\\u00e9" , "n":1.0}')


@pytest.mark.parametrize("body", [b'{"prompt": "\\ud83d"}', b'{"prompt": "x", "temperature": NaN}'])
def test_what_is_not_strict_json_is_judged_where_it_is_answered(body: bytes) -> None:
    """As over HTTP."""
    text = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": %b}' % body
    assert id_of(text) == "a"
    assert asked_by(Line(1, text, True), LONGEST).body == body


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"custom_id": None}, "'custom_id' must be a string"),
        ({"custom_id": 5}, "'custom_id' must be a string"),
        ({"custom_id": "x" * 1001}, "of 1 to 1000 characters"),
        ({"method": "GET"}, "'method' must be \"POST\", it is 'GET'"),
        ({"url": "/v1/embeddings"}, "'url' must be one of .*; it is '/v1/embeddings'"),
        ({"url": None}, "'url' must be one of"),
        ({"body": None}, "'body' must be an object"),
        ({"body": [BODY]}, "'body' must be an object"),
        ({"body": {"stream": True}}, "cannot be streamed"),
    ],
)
def test_what_is_no_request_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongLine, match=message):
        asked_by(line(**changes), LONGEST)


@pytest.mark.parametrize("content", [b"nonsense", b"[1]", b"\xff\xfe", b'{"custom_id":' * 50_000])
def test_what_is_no_json_is_told(content: bytes) -> None:
    assert id_of(content) is None
    with pytest.raises(WrongLine, match="the line is no JSON object"):
        asked_by(Line(1, content, True), LONGEST)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["custom_id", "method", "url", "body", "stream"])
KNOWN = st.sampled_from(["a", "POST", "/v1/completions", {"stream": True}, {"prompt": "x"}])


@given(st.binary(max_size=200) | st.dictionaries(NAMES, VALUES | KNOWN).map(lambda d: json.dumps(d).encode()))
def test_any_line_is_a_request_or_is_told(content: bytes) -> None:
    name = id_of(content)
    assert name is None or 0 < len(name) <= LONGEST_ID
    try:
        asked = asked_by(Line(1, content, True), LONGEST)
    except WrongLine as error:
        str(error).encode()  # which a file can hold
    else:
        assert name is not None
        assert asked.body.lstrip().startswith(b"{")


@pytest.mark.parametrize(
    "body",
    [b'{"str\\u0065am": true}', b'{"stream": false, "stream": true}', b'{"x": NaN, "strea\\u006d": true}'],
)
def test_a_body_that_streams_is_told_however_it_is_written(body: bytes) -> None:
    text = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": %b}' % body
    with pytest.raises(WrongLine, match="cannot be streamed"):
        asked_by(Line(1, text, True), LONGEST)


def test_a_body_that_does_not_stream_may_say_so() -> None:
    assert asked_by(line(body={"stream": False}), LONGEST).body == b'{"stream": false}'


def test_lines_may_be_empty_long_or_without_an_end(tmp_path: Path) -> None:
    long = "x" * (3 * LONGEST)
    path = written(tmp_path / "in", b"\xef\xbb\xbffirst\r\n", "", long, " \t", b"last")
    assert [(one.number, one.content.strip()[:6], one.is_whole) for one in lines_of(path, LONGEST)] == [
        (1, b"first", True),
        (3, b"xxxxxx", False),
        (5, b"last", True),
    ]
    (_, cut, _) = lines_of(path, LONGEST)
    assert len(cut.content) == LONGEST + 1
    with pytest.raises(WrongLine, match="more than 1000 bytes"):
        asked_by(cut, LONGEST)


def test_an_index_knows_each_line(tmp_path: Path) -> None:
    path = written(
        tmp_path / "in", *(json.dumps(request(custom_id=f"id {i}")) for i in range(100)), "bad", "bad"
    )
    index = Index(path, LONGEST)
    assert (len(index), index.n_answered) == (102, 0)
    assert index.mark(key_of("id 7", 0))
    assert index.mark(key_of(None, 102))
    assert not index.mark(key_of("id 100", 0))
    assert not index.mark(key_of(None, 7))  # it has an id
    assert [i for i in range(100) if index.answered(key_of(f"id {i}", i + 1))] == [7]
    assert index.n_answered == 2


def test_ids_that_occur_twice_are_told_with_their_lines(tmp_path: Path) -> None:
    lines = [json.dumps(request(custom_id=name)) for name in ("a", "b", "c", "b")]
    with pytest.raises(CommandError, match="lines 2 and 4 have the same custom_id 'b'"):
        Index(written(tmp_path / "in", *lines), LONGEST)
