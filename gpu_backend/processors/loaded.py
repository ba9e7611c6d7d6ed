"""The logits processors of a backend: found, compiled for the CPU and for GPUs, and tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_backend.processors.marks import is_marked
from gpu_backend.processors.numba_code import HostCode, device_code
from gpu_backend.processors.source import ProcessorError, Source, check_names, find
from gpu_backend.processors.trial import problem
from ringbuffer.version import install

MESSAGE_LINES = 20  # of Numba's


@dataclass(frozen=True)
class Processors:
    """In the order of their indices. `device_codes` are LTO-IR for the GPUs that they were compiled for;
    `only_recent` has a bit for each that changes only recent tokens' logits.
    """

    names: tuple[str, ...] = ()
    host_codes: tuple[HostCode, ...] = ()
    device_codes: tuple[bytes, ...] = ()
    only_recent: int = 0


NO_PROCESSORS = Processors()


def symbol(index: int) -> str:
    """Of a processor's function (kernels/ops/sampling/logits_processors.h)."""
    return f"blink_processor_{index}"


def load(sources: Sequence[Source], vocab_size: int, capability: tuple[int, int]) -> Processors:
    """Compiles each for this CPU and for GPUs of a compute capability, wherever it will run: a function that
    the emulation takes is one that GPUs take.

    Raises ProcessorError.
    """
    if not sources:
        return NO_PROCESSORS
    check_names(tuple(sources))
    try:
        import numba  # noqa: F401
        import numba_cuda  # noqa: F401 - a package of its own, which numba.cuda is
    except ImportError as error:
        raise ProcessorError(f"--logits-processor needs {error.name}: {install('processors')}") from error
    host_codes, device_codes, only_recent = [], [], 0
    for index, source in enumerate(sources):
        function = find(source)
        try:
            host = HostCode(function)
            device_codes.append(device_code(function, symbol(index), capability))
        except Exception as error:  # Numba has several, and some that it does not expect itself
            told = f"{type(error).__name__}: {_shortened(str(error))}"
            raise ProcessorError(f"{_cannot(source)} be compiled: {told}") from error
        only_recent |= is_marked(function) << index
        if wrong := problem(host.checked, vocab_size, is_marked(function)):
            raise ProcessorError(f"{_cannot(source)} be used: {wrong}")
        host_codes.append(host)
    names = tuple(source.name for source in sources)
    return Processors(names, tuple(host_codes), tuple(device_codes), only_recent)


def _cannot(source: Source) -> str:
    return f"logits processor '{source.name}' ({source.module}:{source.function}) cannot"


def _shortened(message: str) -> str:
    """Numba's message, which repeats itself once for each of its attempts."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    return "\n".join(lines[:MESSAGE_LINES])
