"""Files of a model directory: what is read, and what is refused in one line, however it is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ringbuffer.model_file import MAX_CONFIG_BYTES, ModelFileError, read_bytes, read_json, read_text, shown


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": [1, -9223372036854775808, 1.5, null]}')
    assert read_json(tmp_path / "f") == {"a": [1, -(2**63), 1.5, None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "expected a JSON object, found list"),
        (b"\xff\xfe\xff", "not valid JSON"),
        (b"[" * 1_000_000, "nests too deeply"),
        (b'{"a":' * 1_000_000, "nests too deeply"),
        (b'{"a": ' + b"9" * 400 + b"}", "an integer of 400 digits"),
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
    for value in ("x\n" * 1000, list(range(10**6)), {"a" * 1000: deep}, deep, 10**18):
        assert len(shown(value)) < 1000
        assert "\n" not in shown(value)
    assert shown("as it is") == "'as it is'"
