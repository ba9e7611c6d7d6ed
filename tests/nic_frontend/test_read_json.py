"""JSON is read by msgspec, and as `json` reads it (json_text.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nic_frontend.http.json_text import MOST_LENIENT, read_json

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def read(reader: Any, text: bytes) -> str:
    """What was read, with its types and the order of its members."""
    try:
        return repr(reader(text))
    except ValueError:
        return "none"


@given(value=VALUES, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
@example(value=[10**300, -(10**30), 2**64, -0.0, 5e-324, 1.7976931348623157e308], is_ascii=True, indent=None)
def test_it_is_read_as_json_is(value: Any, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode(errors="surrogatepass")
    assert read(read_json, text) == read(lambda given: json.loads(given.decode()), text)


@given(text=st.text(alphabet='{}[]",:0123456789.eE+-truefalsnNaIity\\u \ud800é').map(str))
@example(text='{"a":1,"a":2}')
@example(text="[1e400, -0, 1E5, NaN, -Infinity, 9007199254740993]")
@example(text='["\\ud800", "\\ud83d\\ude00", "\\udc00\\ud800"]')
@example(text="\ufeff{}")
@example(text="[01]")
@example(text="")
def test_what_is_no_strict_json_is_read_as_json_reads_it(text: str) -> None:
    encoded = text.encode(errors="surrogatepass")
    assert read(read_json, encoded) == read(lambda given: json.loads(given.decode("utf-8-sig")), encoded)


@pytest.mark.parametrize("odd", ["NaN", "1e400", '"\\ud800"'])
def test_what_is_no_strict_json_may_not_be_long(odd: str) -> None:
    assert len(read_json(f"[{'7,' * (MOST_LENIENT - 1)}{odd}]".encode())) == MOST_LENIENT
    with pytest.raises(ValueError, match="it has to be strict JSON"):
        read_json(f"[{'7,' * (MOST_LENIENT + 1)}{odd}]".encode())
