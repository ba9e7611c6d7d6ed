"""What a skinny GEMM brings to L2 is what the blocks of the next one read first."""

from __future__ import annotations

import pytest

from gpu_backend.element import Element
from gpu_backend.kernel_abi.skinny_pipeline_sm90 import SKINNY_ROW_BYTES
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Role
from gpu_backend.ops.skinny_cut import SkinnyCut, skinny_cut
from gpu_backend.ops.weights_ahead import AHEAD_BYTES, weights_ahead

BLOCKS = 131
SHAPES = {  # k, n, epilogue, rows
    "gate_up": (4096, 14336, Epilogue.GATED, 32),
    "qkv": (4096, 6144, Epilogue.STORE, 64),
    "head": (2048, 128256, Epilogue.STORE_FP32, 16),
    "short": (192, 272, Epilogue.STORE, 16),
}


def of_shape(name: str, element: Element) -> tuple[MatMul, SkinnyCut]:
    k, n, epilogue, m = SHAPES[name]
    weight = Matrix(2 * n if epilogue is Epilogue.GATED else n, k, element)
    out = Buffer("out", m, n, Element.BF16)
    op = MatMul(Role.QKV, weight, Buffer("x", m, k, Element.BF16), out, epilogue)
    return op, skinny_cut(m, k, n, epilogue, BLOCKS + 1, x_panels=2 // element.n_bytes)


def first_reads(op: MatMul, cut: SkinnyCut) -> set[tuple[int, int]]:
    """Row of the matrix and first byte of k, for each row of each block's first tile."""
    split_bytes = cut.share * cut.panels * SKINNY_ROW_BYTES
    found = set()
    for row in range(min(cut.clusters(BLOCKS) * cut.tile_rows, op.weight.rows)):
        if op.epilogue is Epilogue.GATED:  # 8 gate rows and their up rows in turn
            row = row // 16 * 8 + row % 8 + (op.n if row % 16 >= 8 else 0)
        found.update((row, split * split_bytes) for split in range(cut.splits))
    return {(row, first) for row, first in found if first < op.k * op.weight.element.n_bytes}


@pytest.mark.parametrize("element", [Element.BF16, Element.FP8])
@pytest.mark.parametrize("name", SHAPES)
def test_they_are_the_first_bytes_of_each_blocks_first_tile(name: str, element: Element) -> None:
    op, cut = of_shape(name, element)
    weight, part_bytes, n_rows, parts, splits, row_bytes, split_bytes, n_bytes = weights_ahead(
        op, cut, BLOCKS
    ).parts
    assert weight == op.weight
    asked = {
        divmod(part * part_bytes + row * row_bytes + split * split_bytes, row_bytes)
        for part in range(parts)
        for row in range(n_rows)
        for split in range(splits)
    }
    assert asked == first_reads(op, cut)
    assert all(first + n_bytes <= row_bytes and row < op.weight.rows for row, first in asked)
    assert n_bytes % 16 == 0
    assert 0 < n_bytes * len(asked) <= AHEAD_BYTES
