"""What a step on expressions works with: its load, its buffers, and what a product multiplies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symbolic_plan import Expression

from gpu_backend.cuda.chip import Chip
from gpu_backend.ops.operations import Epilogue

CHIP = Chip(132)
KV_CACHE, CACHE_MAPS, WEIGHTS = 1 << 50, 1 << 51, 1 << 40
SCALES = 1 << 30  # a matrix's behind it
FP32_BYTES, HALF_BYTES = 4, 2
ELEMENT = {
    Epilogue.STORE: HALF_BYTES, Epilogue.GATED: HALF_BYTES, Epilogue.STORE_FP32: FP32_BYTES,
    Epilogue.ADD: FP32_BYTES,
}  # fmt: skip
ZERO = ("zero",)
NO_ROUTER = (0, 0, 0, 0)


@dataclass(frozen=True)
class Load:
    """What a step has of its capacities: sequences that decode first, then prompts; `last` tokens by batch
    slot."""

    tokens: int
    decoding: int
    last: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """Of x [rows][n_in], by name, with the weight at an address."""

    weight: int
    x: str
    out: str
    rows: int
    n_in: int
    n_out: int
    epilogue: Epilogue
    x_scales: tuple[str, int] | None = None  # x is in fp8; by name, and their stride


@dataclass(frozen=True)
class SplitNorm:
    """FusedNorm of kernels/ops/gemm/skinny_epilogue_sm90.h, and columns and number of the sums that its tiles
    leave."""

    sums_in: Any
    n_sums: int
    eps: float
    weight: int
    scaled: Any
    sums_out: Any
    columns: int
    leaves: int


class Buffer(dict[int, Expression]):
    """Rows of expressions, as many as its bytes hold. A dictionary, as millions of them are read."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self.name, self.size = name, size

    def __missing__(self, row: int) -> Expression:
        return ("nothing", self.name, row)

    def check(self, n_bytes: int) -> Buffer:
        assert n_bytes <= self.size, f"{self.name} has {self.size} bytes, and {n_bytes} are used"
        return self


def epilogue_of(constant: str) -> Epilogue:
    return Epilogue(constant.removeprefix("blink::"))
