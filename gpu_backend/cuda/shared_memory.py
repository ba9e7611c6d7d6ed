"""How a model's kernels share the memory of a multiprocessor.

It is divided into L1 and the shared memory of blocks, anew only when the multiprocessor is idle, which is
never between kernels that overlap. So all kernels of a model ask for the same division (E23): where they did
not, the experts' kernels, which live by L1, ran with what the kernel before had left, at 2/3 of their speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.cuda.driver import ALL_SHARED_BYTES
from gpu_backend.models.description import Model


@dataclass(frozen=True)
class Rooms:
    """Bytes that a block of a wide product may have. The more copies are in flight the better, but not all
    clusters of more than two blocks find room unless two blocks fit a multiprocessor."""

    large: int
    small: int


ALL = Rooms(222 << 10, 113 << 10)
BESIDE_EXPERTS = Rooms(128 << 10, 64 << 10)


def shared_bytes(config: Model) -> int:
    """That the kernels of a model ask a multiprocessor to divide off its L1."""
    return ALL_SHARED_BYTES if config.experts is None else 132 << 10


def rooms_of(config: Model, n_out: int) -> Rooms:
    """Of a product of the model. Behind the head a step ends, and its multiprocessors are idle."""
    return ALL if config.experts is None or n_out == config.vocab_size else BESIDE_EXPERTS
