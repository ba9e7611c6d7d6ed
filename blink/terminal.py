"""The terminal that a process belongs to (credentials(7), "Sessions and process groups")."""

from __future__ import annotations

import os
import signal


class Terminal:
    """The controlling terminal of this process when it is constructed, if there is one.

    Construct it before SIGHUP has a handler: under nohup(1) the signal is ignored from the beginning, and the
    end of the terminal means nothing to the process.
    """

    def __init__(self) -> None:
        self._was_there = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _is_there()

    def is_gone(self) -> bool:
        """Whether there was a terminal, and it has been closed: then SIGHUP means what it says. A service has
        none, and SIGHUP asks it to read its files again."""
        return self._was_there and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
