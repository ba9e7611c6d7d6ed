"""Compiles a module in a process of its own, for whoever needs it only later.

`python -m gpu_backend.cuda.compile_ahead PARENT SOURCE ARCH` is started by CompileAhead alone.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from gpu_backend.cuda.compile import CompileError, compile_module, is_compiled
from gpu_backend.cuda.compiler_process import CompilerProcess, arguments_from
from gpu_backend.cuda.toolkit import ToolkitError

COMPILE_S = 600.0  # it takes a minute or so; beyond this, whoever waits compiles it


class CompileAhead:
    """Owns the process that compiles `source` as relocatable code, from the constructor to `close`.

    The result is in the cache after `wait`, where compile_module finds it. If this fails for any reason,
    compile_module finds nothing, compiles it and says what is wrong.
    """

    def __init__(self, source: Path, arch: str) -> None:
        self._process: CompilerProcess | None = None
        with contextlib.suppress(CompileError, ToolkitError):
            if not is_compiled(source, arch, rdc=True):
                self._process = CompilerProcess(__name__, str(source), arch)

    def wait(self) -> None:
        """Until it is compiled, or is not going to be."""
        if self._process is not None:
            self._process.wait(COMPILE_S)
        self.close()

    def close(self) -> None:
        """Gives it up, unless it is done."""
        if self._process is not None:
            self._process.close()
        self._process = None


def main() -> int:
    if (arguments := arguments_from(*sys.argv[1:])) is None:
        return 1
    source, arch = arguments
    try:
        compile_module(Path(source), arch, rdc=True)
    except (CompileError, ToolkitError):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
