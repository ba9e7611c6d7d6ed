"""Launches single operations on a GPU as the engine does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.launcher import StepLauncher
from gpu_backend.ops.launch import Launch, Work


def kernels_of(device: Device, works: Sequence[Work], element: Element) -> Kernels:
    """Those that the launches need."""
    names = {work.kernel for work in works if isinstance(work, Launch)}
    return Kernels(device.arch, names, element)


def launch(
    kernels: Kernels,
    stream: Stream,
    works: Sequence[Work],
    addresses: Mapping[str, int],
    step_set: bytes = b"",
    tables: bytes = b"",
) -> None:
    """Runs them to their end. `addresses` are those of the buffers by name."""
    no_library: Any = None
    launcher = StepLauncher(kernels, no_library, no_library, stream, addresses, tables)
    for work in works:
        launcher.launch(work, step_set)
    stream.synchronize()
