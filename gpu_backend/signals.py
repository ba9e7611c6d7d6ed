"""The signals that a backend understands: those that ask it to end, as a count, and SIGHUP.

A handler in Python runs between two instructions of the main thread, so a lock that it takes may be one that
the main thread holds: with `threading.Event.set` in the handler and `wait` in the main thread, the process
hangs. Here the handlers do nothing. The interpreter writes each signal's number into a pipe
(signal.set_wakeup_fd), and the main thread waits for that and reads it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from types import TracebackType

ENDING = (signal.SIGTERM, signal.SIGINT)
REPEATED_S = 0.5  # a service manager signals the whole group, and a supervisor passes its signal on: one wish
READ_BYTES = 64


class Signals:
    """Counts SIGTERM and SIGINT while it is open (`with`), and calls `on_hangup` where SIGHUP comes. Only the
    main thread may use it.

    Afterwards they do nothing: the process ends already, with the exit status that it has chosen.
    """

    def __init__(self, on_hangup: Callable[[], None] = lambda: None) -> None:
        self._on_hangup = on_hangup
        self._came: list[float] = []  # when, without those that came right behind another

    def __enter__(self) -> Signals:
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A full pipe loses a number, but then many signals wait in it already.
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGHUP):
            signal.signal(number, _do_nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read_end)
        os.close(self._write_end)

    def count(self) -> int:
        """How often the process was asked to end. Deals with a SIGHUP that has come meanwhile."""
        with contextlib.suppress(BlockingIOError):
            while numbers := os.read(self._read_end, READ_BYTES):
                if any(number in ENDING for number in numbers):
                    self._count_one()
                if signal.SIGHUP in numbers:
                    self._on_hangup()
        return len(self._came)

    def _count_one(self) -> None:
        now = time.monotonic()
        if not self._came or now - self._came[-1] > REPEATED_S:
            self._came.append(now)

    def wait(self, timeout_s: float) -> None:
        """Returns when a signal comes, after `timeout_s` at the latest."""
        select.select([self._read_end], [], [], timeout_s)


def _do_nothing(_: int, __: object) -> None:
    """Where there is no handler, the system's default would end the process."""
