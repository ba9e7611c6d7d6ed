"""Files that a start leaves for the next one on the same machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_backend.messages import say

WAIT_S = 300.0  # for an entry that somebody else makes: it takes a minute or so, on a busy machine several
POLL_S = 0.05
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
            say(f"{path} is not used: it is not this user's alone to write")
            return None
        return file.read()


def _is_own(found: os.stat_result) -> bool:
    """Whether this user alone may write it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def store(path: Path, entry: bytes) -> bool:
    """Replaces a file as a whole. False where it cannot be written, as in a read-only home."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as owned:
        path.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        # The file gets its name when it is whole, and goes where that fails.
        file = owned.enter_context(tempfile.NamedTemporaryFile(dir=path.parent, delete=False))
        owned.callback(Path(file.name).unlink, missing_ok=True)
        file.write(entry)
        file.flush()
        Path(file.name).replace(path)
        return True
    return False


@contextlib.contextmanager
def making(path: Path, *, quietly: bool = False) -> Iterator[None]:
    """Who makes an entry does it in here, and looks first whether it is there. While another process makes
    the same, this waits, WAIT_S at most, and says so unless `quietly`. Who has waited makes it without a
    lock: what the other could not make or keep, the others need not make one after the other. Nobody waits
    where this user cannot have a lock."""
    lock = path.with_suffix(".lock")
    with contextlib.ExitStack() as owned:
        descriptor = _opened(lock)
        if descriptor is not None:
            owned.callback(os.close, descriptor)
            if _takes(descriptor):
                owned.callback(_remove, lock)
            else:
                if not quietly:
                    say("waiting for another process, which compiles the same")
                deadline = time.monotonic() + WAIT_S
                while not _takes(descriptor) and time.monotonic() < deadline:
                    time.sleep(POLL_S)
                owned.close()
        yield


@contextlib.contextmanager
def making_alone(path: Path) -> Iterator[bool]:
    """The same for an entry that is worth making only if nobody else makes it: whether this has the lock."""
    lock = path.with_suffix(".lock")
    with contextlib.ExitStack() as owned:
        descriptor = _opened(lock)
        alone = False
        if descriptor is not None:
            owned.callback(os.close, descriptor)
            alone = _takes(descriptor)
            if alone:
                owned.callback(_remove, lock)
        yield alone


def _opened(lock: Path) -> int | None:
    """None where it cannot be opened, or somebody else could hold it for ever."""
    with contextlib.suppress(OSError):
        lock.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        descriptor = os.open(lock, LOCK_FLAGS, 0o600)
        if _is_own(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
    return None


def _takes(descriptor: int) -> bool:
    """Whether this process now has the lock, until it closes the file or ends; also where there are none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove(lock: Path) -> None:
    """Those who wait for it have it open."""
    with contextlib.suppress(OSError):
        lock.unlink()


def drop_oldest(like: Path, kept: int) -> None:
    """Removes the files beside `like` that end as it does, but for the `kept` that were used last."""
    with contextlib.suppress(OSError):
        entries = list(like.parent.glob(f"*{like.suffix}"))
        if len(entries) > kept:
            for old in sorted(entries, key=lambda entry: entry.stat().st_mtime)[:-kept]:
                old.unlink()


def mark_used(path: Path) -> None:
    """For drop_oldest."""
    with contextlib.suppress(OSError):
        path.touch()
