"""The file of a batch's answers where writing fails: it keeps whole lines, and says that it failed."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from blink.batch.answers import Answers
from blink.batch.lines import Index
from blink.errors import CommandError


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """The kernel writes what fits, and refuses the rest, as where a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def is_open(path: Path) -> bool:
    """Whether this process has the file open. Other files may come and go meanwhile."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if descriptor.readlink() == path:
                return True
    return False


@pytest.fixture
def index(tmp_path: Path) -> Index:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"custom_id":"{name}"}}\n' for name in "abc"))
    return Index(path, 1000)


def test_a_file_without_lines_is_not_read_to_its_end(tmp_path: Path, index: Index) -> None:
    """Here a disk image, which has more than fits into memory."""
    (path := tmp_path / "out.jsonl").touch()
    os.truncate(path, 1 << 43)
    with pytest.raises(CommandError, match=r"out\.jsonl, line 1 is no answer of a batch"):
        Answers(path, index)
    assert path.stat().st_size == 1 << 43


def test_half_an_answer_is_taken_back(tmp_path: Path, index: Index) -> None:
    answers = Answers(path := tmp_path / "out.jsonl", index)
    answers.write(1, "a", 200, "r1", b"{}")
    with files_of_at_most(path.stat().st_size + 40):
        with pytest.raises(CommandError, match=r"out\.jsonl: cannot be written: File too large; .* goes on"):
            answers.write(2, "b", 200, "r2", b"{}")
        assert [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] == ["a"]
    assert (index.n_answered, answers.n_failed) == (1, 0)
    answers.write(3, "c", 200, "r3", b"{}")  # one that was computed meanwhile
    answers.close()
    assert [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] == ["a", "c"]


def test_a_disk_that_fails_late_is_told(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    answers = Answers(tmp_path / "out.jsonl", index)
    assert is_open(tmp_path / "out.jsonl")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CommandError, match=r"out\.jsonl: cannot be written: Input/output error"):
        answers.close()
    assert not is_open(tmp_path / "out.jsonl")
