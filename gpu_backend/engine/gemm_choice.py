"""The algorithm of each product that the GEMM library makes: the fastest here, measured once on a machine.

The library's own choice is the best at most sizes and a quarter off at some. What was measured is kept in a
file, so that later starts compute the same to the last bit, and at once (C9).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from gpu_backend.cuda.cache import cache_directory, store
from gpu_backend.cuda.cublas import Algorithm, Cublas
from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.product import HALF_BYTES, Product
from gpu_backend.engine.gemm_clock import GemmClock
from gpu_backend.engine.native_weights import DeviceWeights

MEASURED_ROWS = 1024  # the most: products of more fill the GPU whatever their tiles are
LEAST_BYTES = 1 << 20  # of a matrix that is worth it


def matrices_alike(weights: DeviceWeights) -> dict[int, list[int]]:
    """For each matrix all that have its sizes and its place in a layer, itself included."""
    alike = {weights.head: [weights.head]}
    for has_experts in (False, True):
        layers = [layer for layer in weights.layers if bool(layer.router) == has_experts]
        for name in ("qkv", "o", "gate_up", "down", "router"):
            group = [getattr(layer, name) for layer in layers]
            alike |= dict.fromkeys(group, group)
    return alike


class GemmChoice:
    """Maps products to algorithms. Sizes that it meets for the first time are measured when it settles."""

    def __init__(
        self, device: Device, cublas: Cublas, weights: DeviceWeights, make_clock: Callable[[], GemmClock]
    ) -> None:
        """`cublas` makes the products, on as many multiprocessors as the clock's."""
        self._cublas = cublas
        self._alike = matrices_alike(weights)
        self._make_clock = make_clock
        self._clock: GemmClock | None = None
        self._path = choices_path(device, cublas)
        self._kept = read_choices(self._path)
        self._chosen: dict[str, Algorithm | None] = {}
        self._unmeasured: dict[str, tuple[Product, int]] = {}

    def __call__(self, product: Product, half: int) -> Algorithm | None:
        """None: the library's own choice."""
        if not is_worth_measuring(product):
            return None
        key = f"{product.rows}x{product.n_in}x{product.n_out} {product.output} {half}"
        if key not in self._chosen and key not in self._unmeasured:
            kept = self._kept.get(key)
            if key in self._kept and (kept is None or self._cublas.accepts(product, half, kept)):
                self._chosen[key] = kept
            else:
                self._unmeasured[key] = (product, half)
        return self._chosen.get(key)

    def settle(self) -> bool:
        """Measures what was met; never while a step runs or is captured. True if an answer has changed.

        Raises CudaError, CublasError.
        """
        if not self._unmeasured:
            return False
        self._clock = clock = self._clock or self._make_clock()
        has_changed = False
        for key, (product, half) in self._unmeasured.items():
            self._chosen[key] = clock.fastest(product, half, self._alike[product.weight])
            has_changed |= self._chosen[key] is not None
        self._unmeasured.clear()
        return has_changed

    def close(self) -> None:
        """Keeps what was measured. From now on other sizes are the library's own choice."""
        if self._clock is None:
            return
        self._clock.close()
        self._clock = None
        # What another start has written meanwhile stays: starts to come agree with most before them.
        write_choices(self._path, self._chosen | read_choices(self._path))


def is_worth_measuring(product: Product) -> bool:
    matrix_bytes = HALF_BYTES * product.n_in * product.n_out
    return product.rows <= MEASURED_ROWS and matrix_bytes >= LEAST_BYTES and GemmClock.has_room(product)


def choices_path(device: Device, cublas: Cublas) -> Path:
    """Of the file for one kind of GPU and version of the library."""
    what = f"{device.name} {device.n_multiprocessors} {cublas.version}"
    return cache_directory() / f"gemm-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"


def read_choices(path: Path) -> dict[str, Algorithm | None]:
    """What write_choices has written; nothing where the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        kept = json.loads(path.read_text())
        return {key: bytes.fromhex(text) if text else None for key, text in kept.items()}
    return {}


def write_choices(path: Path, choices: dict[str, Algorithm | None]) -> None:
    """Replaces the file as a whole. Where it cannot be written, the next start measures again."""
    text = {key: algorithm.hex() if algorithm else "" for key, algorithm in sorted(choices.items())}
    store(path, json.dumps(text, indent=0).encode())
