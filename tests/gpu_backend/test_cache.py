"""Files that a start leaves for the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_backend.cuda.cache import cache_directory, store


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "entry"
    for entry in (b"first", b"the second"):
        assert store(path, entry)
        assert path.read_bytes() == entry
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "entry"
    directory.mkdir()
    assert not store(directory, b"no file can take the name of a directory")
    assert list(tmp_path.iterdir()) == [directory]


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "blink"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "blink"
