"""A launch of the kernel of kernels/ops/linear_tiled.h."""

from __future__ import annotations

from gpu_backend.cuda.driver import Argument, Dim
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.cuda.tiled import (
    PAIR,
    TILED_BOX,
    TILED_ROWS,
    TILED_SHARED_BYTES,
    TILED_THREADS,
    TiledCut,
)
from gpu_backend.cuda.wide import gate_up_boxes, matrix_boxes

Launch = tuple[str, Dim, Dim, tuple[Argument, ...], dict[str, int]]
BOX_OUTPUTS = 32  # of a box of y: 64 bytes of halves, 128 of fp32


def tiled_launch(product: Product, cut: TiledCut, n_multiprocessors: int) -> Launch:
    """The kernel's name in kernels.py, grid, block, arguments and flags of Kernel.launch.

    Raises CudaError.
    """
    rows, n_in, n_out, output = product.rows, product.n_in, product.n_out, product.output
    w = (gate_up_boxes if output == "silu" else matrix_boxes)(n_in, n_out, TILED_ROWS)
    maps = [
        tensor_map(address, boxes.shape, boxes.box, boxes.strides, swizzle=True)
        for address, boxes in (
            (product.weight, w),
            (product.x, matrix_boxes(n_in, rows, cut.columns // PAIR)),
        )
    ]
    maps.append(
        tensor_map(product.out, (rows, n_out), (TILED_BOX, BOX_OUTPUTS), swizzle=True, fp32=output == "add")
    )
    grid, block = (PAIR * cut.pairs(n_multiprocessors), 1, 1), (TILED_THREADS, 1, 1)
    flags = {"shared_bytes": TILED_SHARED_BYTES, "cluster": PAIR}
    return f"tiled_{output}", grid, block, (*maps, cut.pack()), flags
