"""Compiles a module in a process of its own, for whoever needs it only later.

`python -m gpu_backend.cuda.compile_ahead SOURCE ARCH PARENT` is started by CompileAhead alone. A thread would
not do: the compiler cannot be interrupted, and whoever gives up a start would have to wait for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from gpu_backend.cuda.compile import CompileError, compile_module, is_compiled
from gpu_backend.cuda.toolkit import ToolkitError
from ringbuffer.parent import ends_with

COMPILE_S = 600.0  # it takes a minute or so; beyond this, whoever waits compiles it


class CompileAhead:
    """Owns the process that compiles `source` as relocatable code, from the constructor to `close`.

    The result is in the cache after `wait`, where compile_module finds it. If this fails for any reason,
    compile_module finds nothing, compiles it and says what is wrong.
    """

    def __init__(self, source: Path, arch: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(CompileError, ToolkitError, OSError):
            if not is_compiled(source, arch, rdc=True):
                command = [sys.executable, "-m", __name__, str(source), arch, str(os.getpid())]
                silent = subprocess.DEVNULL
                self._process = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)

    def wait(self) -> None:
        """Until it is compiled, or is not going to be."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(COMPILE_S)
        self.close()

    def close(self) -> None:
        """Gives it up, unless it is done."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None


def main() -> int:
    source, arch, parent = sys.argv[1:]
    if not ends_with(int(parent), signal.SIGKILL):
        return 1
    try:
        compile_module(Path(source), arch, rdc=True)
    except (CompileError, ToolkitError):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
