"""What all tests share: where the tree is, and C++ test programs built once per content of their sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tests"


@pytest.fixture(scope="session")
def build_program() -> Callable[..., Path]:
    """build_program(name, sources, *flags): a program or library from C++ sources (paths from the root)."""

    def build(name: str, sources: list[str], *flags: str) -> Path:
        digest = hashlib.sha256(" ".join(flags).encode())
        for folder in ("kernels", "ringbuffer", "nic_frontend", "gpu_backend", "tests"):
            for file in sorted((ROOT / folder).rglob("*")):
                if file.suffix in {".h", ".cpp"}:
                    digest.update(file.read_bytes())
        target = BUILD / f"{name}-{digest.hexdigest()[:16]}"
        if not target.exists():
            BUILD.mkdir(parents=True, exist_ok=True)
            command = [
                "g++",
                "-std=c++17",
                "-g",
                "-Wall",
                "-Wextra",
                "-I.",
                "-pthread",
                *flags,
                *sources,
                "-o",
                str(unfinished := BUILD / f"{target.name}.{os.getpid()}"),
            ]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            unfinished.rename(target)  # another run of the tests may build it too, and runs only a whole one
        return target

    return build
