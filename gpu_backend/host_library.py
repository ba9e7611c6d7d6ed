"""libblink_host.so: the engine and the scheduler built for the CPU, behind C interfaces."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from gpu_backend.abi import STEP_LAYOUT_HASH
from gpu_backend.models.abi import MODEL_LAYOUT_HASH

PATH = Path(__file__).resolve().parent / "libblink_host.so"


class LibraryError(RuntimeError):
    """The library is not there, or was built from other headers. Says how to build it."""


@cache
def host_library() -> ctypes.CDLL:
    """The loaded library. Raises LibraryError."""
    remedy = "build it with: cmake -S . -B build && cmake --build build --target blink_host"
    if not PATH.exists():
        raise LibraryError(f"{PATH} is missing; {remedy}")
    library = ctypes.CDLL(str(PATH))
    for name, expected in (("step", STEP_LAYOUT_HASH), ("model", MODEL_LAYOUT_HASH)):
        function = getattr(library, f"blink_host_{name}_layout_hash")
        function.restype = ctypes.c_uint64
        if function() != expected:
            raise LibraryError(f"{PATH} was built from another kernels/{name}.h; {remedy}")
    return library
