"""Kernels that are templates, each instance compiled by itself and kept for whatever model launches it next.

Models share most of their instances, so the second one that a machine serves, or a change of a flag, compiles
few. Those that are missing are compiled by several processes.

`python -m gpu_backend.cuda.instances PARENT SOURCE ARCH DEFINES NAMES`, the last two in JSON, is started by
compile_instances alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from gpu_backend.cuda.cache import Patience
from gpu_backend.cuda.compile import Compilation, CompileError
from gpu_backend.cuda.compiler_process import CompilerProcess, arguments_from
from gpu_backend.cuda.toolkit import ToolkitError

PROCESSES = min(8, len(os.sched_getaffinity(0)))  # this one among them; each takes some 200 MB
QUIET_S = 20.0  # that a start waits before it says so: beyond what any instance takes
INSTANCES_EACH = 3  # at least: to start a process takes about as long as to compile one instance


def compile_instances(
    source: Path, arch: str, names: Sequence[str], defines: Mapping[str, str | int] | None = None
) -> dict[str, tuple[bytes, str]]:
    """For each name, a C++ expression ("blink::embed_kernel<__half>"): a cubin, and the symbol of its kernel.

    Taken from the cache if nothing that they depend on has changed. Raises CompileError, ToolkitError.
    """
    compilation = Compilation(source, arch, defines)
    compiled = {name: kept for name in names if (kept := compilation.kept([name])) is not None}
    missing = [name for name in names if name not in compiled]
    with ExitStack() as helpers:
        for _ in range(min(PROCESSES, len(missing) // INSTANCES_EACH) - 1):
            arguments = str(source), arch, json.dumps(defines or {}), json.dumps(missing)
            helpers.enter_context(closing(CompilerProcess(__name__, *arguments)))
        _compile_what_is_free(compilation, missing)
        patience = Patience(QUIET_S)  # mostly it is for these helpers that it waits
        compiled |= {name: compilation.compiled([name], patience) for name in missing}
    return {name: (compiled[name][0], compiled[name][1][name]) for name in names}


def _compile_what_is_free(compilation: Compilation, names: Sequence[str]) -> None:
    """Each by one process, while the cache takes them: else every process would compile all."""
    for name in names:
        if compilation.keeps:
            compilation.compile_unless_another_does([name])


def main() -> int:
    if (arguments := arguments_from(*sys.argv[1:])) is None:
        return 1
    source, arch, defines, names = arguments
    try:
        _compile_what_is_free(Compilation(Path(source), arch, json.loads(defines)), json.loads(names))
    except (CompileError, ToolkitError):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
