"""The name that a ring has in the file system: one backend holds it at a time (R9).

The file behind it is filled while it has no name, and gets it when it is whole. Its backend holds the file's
lock (flock(2)) from before that until it ends, and the kernel drops it with the process: a name whose lock
can be had is a dead backend's, and whoever has the lock may remove it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path

import numpy as np

from ringbuffer import abi

DEFAULT_NAME = "default"
NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # what file systems without them say


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
            self.descriptor, self._draft = _unnamed_file(path)
        except OSError as error:
            raise RingError(
                f"cannot make a ring in {path.parent}: {error.strerror}; a name has no slash, a path does"
            ) from error
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def publish(self) -> None:
        """Gives the file its name. Raises RingError when another backend was faster."""
        try:
            while not self._linked():
                clear_name(self.path)
            if self._draft is not None:
                self._draft.unlink()
        except OSError as error:
            raise RingError(f"cannot name the ring {self.path}: {error.strerror}") from error

    def _linked(self) -> bool:
        try:
            source = self._draft or f"/proc/self/fd/{self.descriptor}"  # open(2), "O_TMPFILE"
            os.link(source, self.path, src_dir_fd=self.descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def close(self) -> None:
        """Removes the name, if the file has it, and lets go of it."""
        if self.descriptor < 0:
            return
        for name in (self._draft, self.path):
            if name is not None and _is_named(self.descriptor, name):
                name.unlink()
        os.close(self.descriptor)
        self.descriptor = -1


def _unnamed_file(path: Path) -> tuple[int, Path | None]:
    """A new file beside `path`, and its name, where it has one: without, nothing of a ring outlives a process
    that is killed while it makes one. Raises OSError."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path.parent, flags, stat.S_IRUSR | stat.S_IWUSR), None
    except OSError as error:
        if error.errno not in NO_UNNAMED_FILES:
            raise
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    return descriptor, Path(draft)


def clear_name(path: Path) -> None:
    """Removes what a dead backend left at `path`. Raises RingError when a live one serves under the name."""
    while (descriptor := _open(path)) is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, path):
                path.unlink()
                return
        except PermissionError as error:
            raise RingError(
                f"cannot remove what is left at {path}: {error.strerror}; choose another --ring name"
            ) from error
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


def open_ring(path: Path, flags: int) -> int:
    """The file at `path`, open, where this user made it for himself alone: another one could have made it
    first, to read what is written to it. A FIFO, which would be waited for, and a link are none.

    Raises FileNotFoundError, and RingError that says what it is.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RingError(f"{path} is a symbolic link: give the ring's own path") from error
        raise RingError(
            f"cannot open the ring at {path} ({error.strerror}): run as the backend's user"
        ) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        wrong = "no regular file, and so no ring"
    elif found.st_uid != os.geteuid():
        wrong = f"of user {found.st_uid}, and this process of user {os.geteuid()}: run as the backend's user"
    elif found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        wrong = f"open to other users (mode {stat.S_IMODE(found.st_mode):04o}), which no backend makes it"
    else:
        return descriptor
    os.close(descriptor)
    raise RingError(f"{path} is {wrong}")


def _open(path: Path) -> int | None:
    try:
        return open_ring(path, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
