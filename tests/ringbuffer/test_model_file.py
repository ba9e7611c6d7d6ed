"""Files of a model directory: what is read, and what is refused in one line, however it is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ringbuffer.model_file import (
    MAX_CONFIG_BYTES,
    ModelFileError,
    one_line,
    read_bytes,
    read_json,
    read_text,
    shown,
    whole,
)


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": [1, -9223372036854775808, 1.5, null]}')
    assert read_json(tmp_path / "f") == {"a": [1, -(2**63), 1.5, None]}


def test_what_honest_tools_write_is_read_as_it_is(tmp_path: Path) -> None:
    """transformers writes int(1e30) where a tokenizer has no longest text, Python's json numbers that are
    none, and some editors a byte-order mark."""
    values = b'{"a": 1000000000000000019884624838656, "b": [NaN, -Infinity, -0.0, 1e999], "c": 1e30}'
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + values)
    found = read_json(tmp_path / "f")
    assert (found["a"], found["c"]) == (int(1e30), 1e30)
    assert str(found["b"]) == "[nan, -inf, -0.0, inf]"
    for digits in ("9" * 400, "-" + "9" * 4300):
        (tmp_path / "f").write_text(f'{{"a": {digits}}}')
        assert str(read_json(tmp_path / "f")["a"]) == digits


def test_a_template_begins_behind_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf{{ x }}\xef\xbb\xbf")
    assert read_text(tmp_path / "f") == "{{ x }}\ufeff"


@pytest.mark.parametrize(
    ("value", "integer"),
    [
        (7, 7), (-7, -7), (8192.0, 8192), (-0.0, 0), (1e30, int(1e30)), (10**4000, 10**4000),
        (1.5, None), (True, None), ("7", None), (None, None), ([7], None), (float("inf"), None),
        (float("nan"), None),
    ],
)  # fmt: skip
def test_integers_may_have_a_fraction_of_zero(value: object, integer: int | None) -> None:
    assert whole(value) == integer


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "expected a JSON object, found list"),
        (b"\xff\xfe\xff", "not valid JSON"),
        (b"[" * 1_000_000, "nests too deeply"),
        (b'{"a":' * 1_000_000, "nests too deeply"),
        (b'{"a": ' + b"9" * 4301 + b"}", "an integer of 4301 digits"),
        (b'{"a": ' + b"9" * 1_000_000 + b"}", "an integer of 1000000 digits"),
    ],
)
def test_what_is_no_configuration_is_refused_in_a_short_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        read_json(tmp_path / "f")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("read", [read_json, read_text, lambda path: read_bytes(path, 10)])
def test_a_fifo_a_directory_and_a_device_are_refused_at_once(tmp_path: Path, read: Any) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "directory", "link"):
        with pytest.raises(ModelFileError, match="not a regular file"):
            read(tmp_path / name)


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelFileError, match="larger than 16 MiB"):
        read_bytes(tmp_path / "sparse", MAX_CONFIG_BYTES)


def test_values_are_shown_in_a_short_line() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x\n" * 1000, list(range(10**6)), {"a" * 1000: deep}, deep, 10**18, 10**4299):
        assert len(shown(value)) < 1000
        assert "\n" not in shown(value)
    assert shown("as it is") == "'as it is'"


def test_what_a_library_says_is_told_in_one_line() -> None:
    assert one_line("expected 'é' at line 3") == "expected 'é' at line 3"
    assert one_line("a\nb\r\x1b[2J\u2028c\ud800") == "a b  [2J c "
    assert one_line("x" * 80, 80) == "x" * 80
    assert one_line("\n" * 10**6, 80) == " " * 80 + "..."
