"""Which products of few rows hold x in shared memory (kernels/ops/linear_held.h)."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.cuda.product import HALF_BYTES
from gpu_backend.cuda.stream import STREAM_BLOCKS
from gpu_backend.models.description import Model

# Constants of kernels/ops/linear_held.h.
HELD_TOKENS = 2  # rows of x
HELD_OUTPUTS = 8  # of a tile
HELD_PAD = 32  # elements between rows of x
HELD_SLICE = 512  # k: a chunk for each half of each of the block's warps

CHUNKS = (1, 2, 4, 8)  # of a tile and a warp: kHeldDepth or a divisor, or as many as registers hold


@dataclass(frozen=True)
class HeldProduct:
    """x [m][n_in] times w [n_out][n_in]."""

    n_in: int
    n_out: int

    @property
    def suits(self) -> bool:
        """Whether there is an instance for these sizes."""
        fits = self.n_in % HELD_SLICE == 0 and self.n_out % HELD_OUTPUTS == 0
        return fits and self.n_in // HELD_SLICE in CHUNKS

    @property
    def chunks(self) -> int:
        """The kernel's template argument."""
        return self.n_in // HELD_SLICE

    def blocks(self, n_multiprocessors: int) -> int:
        """On all multiprocessors but the scheduler's."""
        return min(self.n_out // HELD_OUTPUTS, STREAM_BLOCKS * (n_multiprocessors - 1))

    def shared_bytes(self, rows: int) -> int:
        return HALF_BYTES * rows * (self.n_in + HELD_PAD)


def held_products(config: Model) -> dict[str, HeldProduct]:
    """The products that the kernel is used for, by op, each with an instance of its own.

    They are attention's in a model with experts: a dense model's steps of few rows are one kernel.
    """
    if config.experts is None:
        return {}
    products = {
        "held_qkv": HeldProduct(config.hidden, config.qkv_width),
        "held_o": HeldProduct(config.attention_width, config.hidden),
    }
    return {op: product for op, product in products.items() if product.suits}
