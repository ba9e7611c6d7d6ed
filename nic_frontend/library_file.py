"""Where libblink_frontend.so is, and how its functions are declared to ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

PATH = Path(__file__).with_name("libblink_frontend.so")

Prototypes = Mapping[str, tuple[object, Sequence[object]]]  # result and arguments, by the function's name


class LibraryMissing(RuntimeError):
    """The native library was not built, or for another machine."""


def loaded(prototypes: Prototypes) -> ctypes.CDLL:
    """The library with these functions. ctypes releases Python's lock during each call.

    Raises LibraryMissing.
    """
    try:
        found = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise LibraryMissing(
            f"cannot load {PATH} ({error}): install the package, or build it in place with "
            "`cmake -B build -G Ninja && cmake --build build --target blink_frontend`"
        ) from error
    for name, (result, arguments) in prototypes.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found
