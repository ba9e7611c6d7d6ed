"""The algorithm of each matmul that the GEMM library runs: the fastest here, measured once on a machine.

The library's own choice is the best at most sizes and a few percent off at others. What was measured is kept
in a file, so that later starts compute the same to the last bit, and at once (C9).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from gpu_backend.cuda.cache import cache_directory, load, store
from gpu_backend.cuda.cublas import Algorithm, Cublas
from gpu_backend.cuda.driver import CudaError, Device
from gpu_backend.cuda.gemm import HALF_BYTES, Gemm
from gpu_backend.engines.native.gemm_clock import GemmClock
from gpu_backend.engines.native.model import DeviceWeights
from gpu_backend.ops.matrix import Matrix

MEASURED_ROWS = 1024  # the most: matmuls of more fill the GPU whatever their tiles are
LEAST_BYTES = 1 << 20  # of a matrix that is worth it
MEASURED_AS = 2  # counts the ways of measuring, whose answers must not mix


def matrices_alike(weights: DeviceWeights) -> dict[int, list[int]]:
    """By a matrix's address those of all with its sizes and its place in a layer, itself included."""
    alike = _group([weights.head])
    for has_experts in (False, True):
        layers = [layer for layer in weights.layers if (layer.router is not None) == has_experts]
        for name in ("gate_up", "down", "router"):
            alike |= _group([getattr(layer, name) for layer in layers])
    for name in ("qkv", "o"):
        alike |= _group([getattr(layer, name) for layer in weights.layers])
    return alike


def _group(matrices: list[Matrix | None]) -> dict[int, list[int]]:
    there = [matrix.address for matrix in matrices if matrix is not None]
    return dict.fromkeys(there, there)


class GemmChoice:
    """Says which algorithm runs a matmul. Sizes that are new to it are measured when it settles."""

    def __init__(
        self, device: Device, cublas: Cublas, weights: DeviceWeights, make_clock: Callable[[], GemmClock]
    ) -> None:
        """`cublas` runs the matmuls, on as many multiprocessors as the clock's."""
        self._cublas = cublas
        self._alike = matrices_alike(weights)
        self._make_clock = make_clock
        self._clock: GemmClock | None = None
        self._path = choices_path(device, cublas)
        self._kept = read_choices(self._path)
        self._answers: dict[str, Algorithm | None] = {}
        self._unmeasured: dict[str, tuple[Gemm, int]] = {}

    def algorithm(self, gemm: Gemm, half: int) -> Algorithm | None:
        """None: the library's own choice, for good or until the next `settle`. Raises CublasError."""
        if not is_worth_measuring(gemm):
            return None
        key = sizes_key(gemm, half)
        if key not in self._answers and key not in self._unmeasured:
            kept = self._kept.get(key)
            if key in self._kept and (kept is None or self._cublas.accepts(gemm, half, kept)):
                self._answers[key] = kept
            else:
                self._unmeasured[key] = (gemm, half)
        return self._answers.get(key)

    def settle(self) -> bool:
        """Measures what was met; never while a step runs or is captured. True if an answer has changed.

        Raises CudaError, CublasError.
        """
        wanted, self._unmeasured = self._unmeasured, {}
        if not wanted:
            return False
        try:
            clock = self._clock = self._clock or self._make_clock()
        except CudaError as error:
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            return False  # the weights and their cache matter more
        for key, (gemm, half) in wanted.items():
            self._answers[key] = clock.fastest(gemm, half, self._alike.get(gemm.weight, [gemm.weight]))
        return any(self._answers[key] is not None for key in wanted)

    def close(self) -> None:
        """Keeps what was measured."""
        if self._clock is None:
            return
        clock, self._clock = self._clock, None
        written = read_choices(self._path)
        # Another start may have measured the same meanwhile: with its answers starts to come agree.
        meanwhile = {key: algorithm for key, algorithm in written.items() if key not in self._kept}
        write_choices(self._path, written | self._answers | meanwhile)
        clock.close()


def is_worth_measuring(gemm: Gemm) -> bool:
    """Whether another algorithm could matter, and there is room to try."""
    matrix_bytes = HALF_BYTES * gemm.n_in * gemm.n_out
    return gemm.rows <= MEASURED_ROWS and matrix_bytes >= LEAST_BYTES and GemmClock.has_room(gemm)


def sizes_key(gemm: Gemm, half: int) -> str:
    """Of an entry of the file: "192x4096x6144 half 14" is rows, n_in, n_out, output and cudaDataType of x."""
    return f"{gemm.rows}x{gemm.n_in}x{gemm.n_out} {gemm.output} {half}"


def choices_path(device: Device, cublas: Cublas) -> Path:
    """Of the file for one kind of GPU, version of the library and way of measuring."""
    what = f"{device.name} {device.n_multiprocessors} {cublas.multiprocessors} {cublas.version} {MEASURED_AS}"
    return cache_directory() / f"gemm-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"


def read_choices(path: Path) -> dict[str, Algorithm | None]:
    """What write_choices has written; nothing where the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        kept = json.loads(load(path) or b"{}")
        return {key: bytes.fromhex(text) if text else None for key, text in kept.items()}
    return {}


def write_choices(path: Path, choices: dict[str, Algorithm | None]) -> None:
    """JSON, hexadecimal digits by `sizes_key`, "" for None. Where it cannot be kept, every start measures."""
    text = {key: algorithm.hex() if algorithm else "" for key, algorithm in sorted(choices.items())}
    store(path, json.dumps(text, indent=0).encode())
