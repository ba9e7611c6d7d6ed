"""The emulator of CUDA's threads, built once."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from twins import as_c

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """emulate(kernel, *arguments)"""
    library = tmp_path_factory.mktemp("emulator") / "kernels.so"
    source = Path(__file__).parent / "emulator" / "kernels.cpp"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror"]
    flags += ["-Wno-unknown-pragmas", "-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"]
    include = [f"-I{ROOT}", f"-I{source.parent}"]
    subprocess.run(["g++", *flags, *include, str(source), "-o", str(library)], check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    return lambda kernel, *arguments: getattr(loaded, f"emulate_{kernel}")(*map(as_c, arguments))
