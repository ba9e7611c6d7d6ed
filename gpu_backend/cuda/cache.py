"""Files that a start leaves for the next one on the same machine."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from gpu_backend.messages import say


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
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            say(f"{path} is not used: it is not this user's alone to write")
            return None
        return file.read()


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


def drop_oldest(like: Path, kept: int) -> None:
    """Removes the files beside `like` that end as it does, but for the `kept` that were used last."""
    with contextlib.suppress(OSError):
        entries = sorted(like.parent.glob(f"*{like.suffix}"), key=lambda entry: entry.stat().st_mtime)
        for old in entries[:-kept]:
            old.unlink()


def mark_used(path: Path) -> None:
    """For drop_oldest."""
    with contextlib.suppress(OSError):
        path.touch()
