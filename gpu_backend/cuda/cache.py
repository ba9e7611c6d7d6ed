"""Files that a start leaves for the next one on the same machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpu_backend.messages import say

WAIT_S = 300.0  # for an entry that somebody else makes: it takes a minute or so, on a busy machine several
POLL_S = 0.05
LOCK, PARTIAL = ".lock", ".partial"  # how files end beside entries
LEFT_S = 24 * 3600.0  # so old, they are nobody's any more
LOCK_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/blink, or ~/.cache/blink."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blink"


def load(path: Path) -> bytes | None:
    """What `store` has written; None where there is nothing, or somebody else could have written it: a kernel
    of another user would run with this one's rights."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if not _is_own(found):
            _tell_of_others(path)
            return None
        return file.read()


_told_of: set[Path] = set()  # directories


def _tell_of_others(path: Path) -> None:
    """Once for all entries, of which there may be many."""
    if path.parent not in _told_of:
        _told_of.add(path.parent)
        say(f"{path} is not used, nor others like it: it is not this user's alone to write")


def _is_own(found: os.stat_result) -> bool:
    """Whether this user alone may write it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def store(path: Path, entry: bytes) -> bool:
    """Replaces a file as a whole. False where it cannot be written, as in a read-only home."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as owned:
        path.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        # The file gets its name when it is whole, and goes where that fails.
        file = owned.enter_context(tempfile.NamedTemporaryFile(dir=path.parent, suffix=PARTIAL, delete=False))
        owned.callback(Path(file.name).unlink, missing_ok=True)
        file.write(entry)
        file.flush()
        Path(file.name).replace(path)
        return True
    return False


class Patience:
    """How long one start waits for what other processes make, in all: WAIT_S. It says so once, when it has
    waited for `quiet_s`."""

    def __init__(self, quiet_s: float = 0.0) -> None:
        self._quiet_s = quiet_s
        self._left_s = WAIT_S
        self._told = False

    def wait(self, until: Callable[[], bool]) -> None:
        while not until() and self._left_s > 0:
            if not self._told and WAIT_S - self._left_s >= self._quiet_s:
                self._told = True
                say("waiting for another process, which compiles the same")
            began = time.monotonic()
            time.sleep(POLL_S)
            self._left_s -= time.monotonic() - began


@contextlib.contextmanager
def making(path: Path, patience: Patience | None = None) -> Iterator[None]:
    """Who makes an entry does it in here, and looks first whether it is there. While another process makes
    the same, this waits, as long as `patience` lasts. Who has waited makes it without a lock: what the other
    could not make or keep, the others need not make one after the other. Nobody waits where this user cannot
    have a lock."""
    with _locked(path.with_suffix(LOCK)) as (descriptor, has):
        if descriptor is None or has is not False:
            yield
            return
        (patience or Patience()).wait(lambda: _takes(descriptor) is not False)
    yield


@contextlib.contextmanager
def making_alone(path: Path) -> Iterator[bool]:
    """The same for an entry that is worth making only if nobody else makes it: whether this has the lock."""
    with _locked(path.with_suffix(LOCK)) as (_, has):
        yield has is True


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[tuple[int | None, bool | None]]:
    """The lock's file while it is open, and whether this has the lock, as `_takes` says it. The file is
    removed at the end, unless another has it."""
    with contextlib.ExitStack() as owned:
        if (descriptor := _opened(lock)) is None:
            yield None, None
            return
        owned.callback(os.close, descriptor)
        has = _takes(descriptor)
        if has is not False:
            owned.callback(_remove, lock)
        yield descriptor, has


def _opened(lock: Path) -> int | None:
    """None where it cannot be opened, or somebody else could hold it for ever."""
    with contextlib.suppress(OSError):
        lock.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        descriptor = os.open(lock, LOCK_FLAGS, 0o600)
        if _is_own(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
    return None


def _takes(descriptor: int) -> bool | None:
    """Whether this process now has the lock, until it closes the file or ends; None where there are none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(lock: Path) -> None:
    """Those who wait for it have it open."""
    with contextlib.suppress(OSError):
        lock.unlink()


def drop_oldest(like: Path, kept: int) -> None:
    """Removes the files beside `like` that end as it does, but for the `kept` that were used last; and what
    processes that were killed have left."""
    with contextlib.suppress(OSError):
        files = list(like.parent.iterdir())
        entries = [file for file in files if file.suffix == like.suffix]
        if len(entries) > kept:
            for old in sorted(entries, key=lambda entry: entry.stat().st_mtime)[:-kept]:
                old.unlink()
        for file in files:
            if file.suffix in (PARTIAL, LOCK) and time.time() - file.stat().st_mtime > LEFT_S:
                file.unlink()


def mark_used(path: Path) -> None:
    """For drop_oldest."""
    with contextlib.suppress(OSError):
        path.touch()
