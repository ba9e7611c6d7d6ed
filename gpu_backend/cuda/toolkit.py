"""Where the CUDA headers and libraries are: NVIDIA's Python wheels first, then a toolkit on this machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


class ToolkitError(RuntimeError):
    """A CUDA header or library is not to be found; the message names the wheel that holds it."""


def roots() -> list[Path]:
    """Directories that can hold include/ and lib/, best first."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(p) / "cu13" for p in (spec.submodule_search_locations or [])] if spec else []
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [p for p in (*wheels, *toolkits, Path("/usr/local/cuda")) if p.is_dir()]


def include_directories() -> list[Path]:
    """Every directory with CUDA headers; a header that the wheels leave out is found in the toolkit.

    Raises ToolkitError if there is none.
    """
    found = [root / "include" for root in roots() if (root / "include" / "cuda_bf16.h").is_file()]
    if not found:
        raise ToolkitError("no CUDA headers (cuda_bf16.h): pip install nvidia-cuda-runtime")
    return found


def library(filename: str, wheel: str) -> Path:
    """Path of a library such as 'libcudadevrt.a'. Raises ToolkitError that names `wheel` if it is missing."""
    for root in roots():
        for directory in ("lib", "lib64"):
            path = root / directory / filename
            if path.is_file():
                return path
    raise ToolkitError(f"no {filename}: pip install {wheel}")
