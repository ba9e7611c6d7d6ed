"""Files that a start leaves for the next."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

import pytest

from gpu_backend.cuda import cache
from gpu_backend.cuda.cache import (
    LEFT_S,
    LOCK,
    PARTIAL,
    Patience,
    cache_directory,
    drop_oldest,
    load,
    making,
    making_alone,
    mark_used,
    store,
)


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


def test_only_what_this_user_alone_may_write_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel that somebody else put there would run with our rights."""
    path = tmp_path / "new" / "entry"
    assert store(path, b"kernel")
    assert load(path) == b"kernel"
    assert path.parent.stat().st_mode & 0o077 == 0
    for mode in (0o620, 0o602):
        path.chmod(mode)
        assert load(path) is None
    assert capsys.readouterr().err.count("not this user's alone to write") == 1  # there may be many
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    assert load(tmp_path / "link") is None
    assert load(tmp_path / "fifo") is None
    assert load(tmp_path / "missing") is None
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
        assert load(path) is None


def test_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.plan", "b.plan", "c.plan", "d.cubin")]
    for age, path in enumerate(reversed(paths)):
        assert store(path, b"entry")
        os.utime(path, (age, age))
    mark_used(paths[2])
    drop_oldest(paths[0], 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.plan", "c.plan", "d.cubin"]


def test_what_killed_processes_have_left_goes_in_a_day(tmp_path: Path) -> None:
    entry, old, new = (tmp_path / name for name in ("a.cubin", "old", "new"))
    assert store(entry, b"entry")
    for stem in (old, new):
        for suffix in (LOCK, PARTIAL):
            stem.with_suffix(suffix).touch()
    for suffix in (LOCK, PARTIAL):
        os.utime(old.with_suffix(suffix), (time.time() - LEFT_S - 1,) * 2)
    drop_oldest(entry, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cubin", "new.lock", "new.partial"]


def test_all_waits_of_a_start_together_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many entries others have begun and do not end, as processes that are stopped."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(cache, "time", clock)
    monkeypatch.setattr(cache, "WAIT_S", 0.3)
    entries = [tmp_path / f"{n}.cubin" for n in range(20)]
    with contextlib.ExitStack() as others:
        for entry in entries:
            assert others.enter_context(making_alone(entry))
        patience = Patience(0.1)
        for entry in entries:
            with making(entry, patience):
                pass
        assert clock.now - 100.0 == pytest.approx(0.3, abs=1.5 * cache.POLL_S)
    assert capsys.readouterr().err.count("waiting for another process") == 1


def test_without_locks_nothing_is_made_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems: all would make the same side by side."""

    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(cache.fcntl, "flock", no_locks)
    with making_alone(tmp_path / "a.cubin") as alone:
        assert not alone
    with making(tmp_path / "a.cubin"):  # nobody waits for what cannot be known
        pass
