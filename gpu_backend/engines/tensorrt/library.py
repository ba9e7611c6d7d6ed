"""The TensorRT library of this machine, and in what its two editions differ.

The full library, `tensorrt`, is on NVIDIA's package index. TensorRT for RTX, `tensorrt_rtx`, is on PyPI: it
has the same Python API, builds plans without a GPU, and serves NVIDIA's graphics cards alone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from gpu_backend.cuda.chip import Capability

MODULES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")  # the first that can be imported is taken
RTX_CAPABILITIES: tuple[Capability, ...] = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))


class NoLibrary(RuntimeError):
    """No library of TensorRT can be imported; the message says what to install."""


@dataclass(frozen=True)
class Library:
    """`module` is the library's Python module, `rtx` whether it is TensorRT for RTX."""

    module: Any
    rtx: bool

    @property
    def title(self) -> str:
        """For messages and keys: "TensorRT for RTX 1.7.1.116"."""
        return f"TensorRT{' for RTX' if self.rtx else ''} {self.module.__version__}"

    def refuses(self, capability: Capability) -> str | None:
        """Why plans of this library do not run on such a GPU; None where they do."""
        if not self.rtx or capability in RTX_CAPABILITIES:
            return None
        major, minor = capability
        return f"{self.title} does not support compute capability {major}.{minor}: install the full TensorRT"


def load_library() -> Library:
    """The full library where it is installed, else that for RTX. Raises NoLibrary."""
    for name in MODULES:
        try:
            return Library(importlib.import_module(name), name != "tensorrt")
        except ImportError:
            continue
    raise NoLibrary("no TensorRT: pip install 'blink-serving[tensorrt]' (docs/tensorrt.md)")
