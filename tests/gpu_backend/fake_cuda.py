"""Runs scripts against a driver and a GEMM library that log and run nothing (fake_cuda.c)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import compilation
from limits import PROGRAM_S

from gpu_backend.cuda import instances

PRELUDE = """
import sys
from pathlib import Path
from gpu_backend.cuda import compile as compile_cuda, instances, toolkit
compile_cuda.CACHE_ENTRIES = {cubins}  # as many as the tests' own process keeps
instances.PROCESSES = {processes}  # likewise
real = toolkit.library
toolkit.library = lambda name, wheel: Path(sys.argv[2]) / name if "cublas" in name else real(name, wheel)
from gpu_backend.engines.native import gemm_choice
gemm_choice.cache_directory = lambda: Path(sys.argv[1]) / "cache"  # what one run measures is no other's
"""
Log = list[list[str]]


def build(directory: Path) -> Path:
    """The directory, whose lib/ holds the fake libraries then."""
    sources = [f"tests/gpu_backend/fake_{part}.c" for part in ("cuda", "modules", "graphs", "cublas")]
    fake = compilation.build("fake_cuda.so", sources, "-shared", "-fPIC", "-Werror")
    library = directory / "lib"
    library.mkdir()
    for name in ("libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13"):
        (library / name).symlink_to(fake)  # one library, which knows of all captures
    return directory


def run(
    fake: Path, tmp_path: Path, script: str, config: dict[str, Any] | None = None, **environment: str
) -> tuple[str, Log]:
    """What `script` printed, and the fake's log, one list of words per call."""
    (tmp_path / "config.json").write_text(json.dumps(config or {}))
    log = tmp_path / "log"
    log.write_text("")
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), *(str(root / part) for part in ("tests", "tests/gpu_backend", "scripts"))]
    changes = {
        "LD_LIBRARY_PATH": str(fake / "lib"),
        "FAKE_CUDA_LOG": str(log),
        "PYTHONPATH": os.pathsep.join(paths),
        **environment,
    }
    program = PRELUDE.format(cubins=compilation.CUBINS, processes=instances.PROCESSES) + script
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(fake / "lib")],
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, [line.split() for line in log.read_text().splitlines()]


def op(call: list[str]) -> str:
    """ "gemm", or a kernel's name without its mangling."""
    if call[0] == "launch" and call[1] != "graph":
        found = re.search(r"5blink\d+(\w+?)_kernel", call[1])
        assert found
        return found[1]
    return call[0]


def whole_captures(log: Log) -> list[Log]:
    """The calls of every capture."""
    out: list[Log] = []
    inside = False
    for call in log:
        if call[0] == "begin":
            out.append([])
            inside = True
        elif call[0] == "end":
            inside = False
        elif inside:
            out[-1].append(call)
    return out


def all_captures(log: Log) -> list[Log]:
    """Without the calls that describe tensors or divide memory."""
    return [
        [call for call in capture if "map" not in call[0] and call[0] != "carveout"]
        for capture in whole_captures(log)
    ]


def captures(log: Log) -> list[Log]:
    """Those of steps."""
    return [capture for capture in all_captures(log) if op(capture[0]) == "gate"]
