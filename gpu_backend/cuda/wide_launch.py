"""A launch of the kernel of kernels/ops/linear_wide.h."""

from __future__ import annotations

from gpu_backend.cuda.driver import Argument, Dim
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.cuda.wide import (
    WideCut,
    WideNorm,
    gate_up_boxes,
    matrix_boxes,
    wide_op,
)

Launch = tuple[str, Dim, Dim, tuple[Argument, ...], dict[str, int]]


def wide_launch(cut: WideCut, product: Product, norm: WideNorm, most_blocks: int) -> Launch:
    """The kernel's name in kernels.py, grid, block, arguments and flags of Kernel.launch.

    `cut` is the product's. Raises CudaError.
    """
    w = (gate_up_boxes if product.output == "silu" else matrix_boxes)(cut.n_in, cut.n_out, cut.tile_rows)
    maps = [
        tensor_map(address, boxes.shape, boxes.box, boxes.strides, swizzle=True)
        for address, boxes in ((product.weight, w), (product.x, matrix_boxes(cut.n_in, cut.m, cut.columns)))
    ]
    arguments: tuple[Argument, ...] = (*maps, product.out, cut.pack(), norm.pack())
    grid, block = (cut.splits, cut.clusters(most_blocks), 1), (cut.threads, 1, 1)
    flags = {"shared_bytes": cut.shared_bytes, "cluster": cut.splits if cut.splits > 1 else 0}
    return wide_op(product.output, cut), grid, block, arguments, flags
