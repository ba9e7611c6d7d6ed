"""A process that compiles into the cache, for whoever looks there later. A thread would not do: the compiler
cannot be interrupted, so whoever gives up a start would have to wait for it; and it runs one compilation at a
time in a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from ringbuffer.parent import ends_with


class CompilerProcess:
    """Owns `python -m MODULE PARENT ARGUMENT...`, from the constructor to `close`. Whether it succeeds is
    seen in the cache: whoever finds nothing there compiles it, and says what is wrong.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if sys.executable:  # a program that embeds Python may have none
            command = [sys.executable, "-m", module, str(os.getpid()), *arguments]
            silent = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)

    def wait(self, most_s: float) -> None:
        """Until it has ended, or that long."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(most_s)

    def close(self) -> None:
        """Gives it up, unless it is done."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None


def arguments_from(parent: str, *arguments: str) -> list[str] | None:
    """In the process itself, whose command line this is: its arguments. None where `parent` has ended; if it
    ends later, so does this process."""
    return list(arguments) if ends_with(int(parent), signal.SIGKILL) else None
