"""The name that a ring has in the file system: one backend holds it at a time (R9).

The file behind it is drafted under another and gets the name when it is whole. Its backend holds the file's
lock (flock(2)) from before that until it ends, and the kernel drops it with the process: a name whose lock
can be had is a dead backend's, and whoever has the lock may remove it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import numpy as np

from ringbuffer import abi

DEFAULT_NAME = "default"


class RingError(RuntimeError):
    """The region cannot be created or attached; the message says why and what to do."""


class RingName:
    """The file that is to be the ring at `path`: `descriptor` is open to fill it, then comes `publish`.

    Mode 0600: who can write can submit. Raises RingError when a live backend serves under the name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        clear_name(path)
        try:
            self.descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            raise RingError(
                f"cannot make a ring in {path.parent}: {error.strerror}; a name has no slash, a path does"
            ) from error
        self._draft = Path(draft)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def publish(self) -> None:
        """Gives the file its name. Raises RingError when another backend was faster."""
        try:
            while not self._linked():
                clear_name(self.path)
            self._draft.unlink()
        except OSError as error:
            raise RingError(f"cannot name the ring {self.path}: {error.strerror}") from error

    def _linked(self) -> bool:
        try:
            self.path.hardlink_to(self._draft)
        except FileExistsError:
            return False
        return True

    def close(self) -> None:
        """Removes the name, if the file has it, and lets go of it."""
        if self.descriptor < 0:
            return
        for name in (self._draft, self.path):
            if _is_named(self.descriptor, name):
                name.unlink()
        os.close(self.descriptor)
        self.descriptor = -1


def clear_name(path: Path) -> None:
    """Removes what a dead backend left at `path`. Raises RingError when a live one serves under the name."""
    while (descriptor := _open(path)) is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, path):
                path.unlink()
                return
        except BlockingIOError as error:
            raise RingError(
                f"the ring {path} belongs to a running backend (process {owner_pid(path)}): "
                "choose another --ring name"
            ) from error
        finally:
            os.close(descriptor)


def owner_pid(path: Path) -> int | None:
    """The process that created the ring at `path`; None when there is no ring. Raises RingError."""
    descriptor = _open(path)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        raw = file.read(abi.Header.itemsize)
    if len(raw) < abi.Header.itemsize:
        return None
    return int(np.frombuffer(raw, dtype=abi.Header)["backend_pid"][0])


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RingError(f"cannot read the existing ring at {path}: {error.strerror}") from error


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
