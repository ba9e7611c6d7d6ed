"""A stderr that cannot end or hold up what writes to it.

A disk may be full, the reader of a pipe may have gone (`| head`) or stand still (`| less`). What cannot be
written at once is dropped, and counted in the next line that can.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

MAX_PENDING = 1 << 16  # bytes of a line without an end


class Stderr(io.TextIOBase):
    """Writes whole lines to a descriptor, which stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._write_now = _writer(descriptor)
        self._lock = threading.RLock()  # a signal's handler may write while the main thread does
        self._pending = b""
        self._lost = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            self._pending += text.encode(errors="backslashreplace")
            lines, end, rest = self._pending.rpartition(b"\n")
            if end or len(rest) > MAX_PENDING:
                self._pending = rest if end else b""
                self._put(lines + end or rest)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, b""
            if pending:
                self._put(pending)

    def _put(self, data: bytes) -> None:
        if self._lost:
            data = b"blink: %d messages could not be written\n" % self._lost + data
        try:
            self._write_now(data)
            self._lost = 0
        except OSError:
            self._lost += 1


def _writer(descriptor: int) -> Callable[[bytes], object]:
    """What writes to `descriptor` and never waits. Its flags are shared with other processes and stay as they
    are: another description of the same pipe or terminal is opened, and a socket is told with each call."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed
        return len
    if stat.S_ISSOCK(mode):
        connection = socket.socket(fileno=os.dup(descriptor))
        return lambda data: connection.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
    return lambda data: os.write(descriptor, data)


class LogFile:
    """A file in the place of standard error, for this process and for all that it starts. Raises OSError.

    The file may be renamed meanwhile: `reopen` then makes another of its name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reopen()
        sys.stderr = Stderr(2)  # the one before may write to another description of a pipe

    def reopen(self) -> None:
        # A FIFO that nobody reads would be waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o640)
        os.dup2(descriptor, 2)  # at once for every thread, and inherited by children
        os.close(descriptor)


def install() -> None:
    """Makes it this process's sys.stderr, unless somebody else has."""
    if sys.stderr is sys.__stderr__:
        sys.stderr = Stderr(2)
