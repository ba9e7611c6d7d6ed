"""Products with a step's weights, each by the kernel that is fastest at its number of rows.

Few rows: a product is a stream of weights, which our own kernels read faster; many: tiles, ours or cuBLAS's,
whose algorithm is chosen by a clock (gemm_choice.py).
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.cublas import R_16BF, R_16F, Cublas
from gpu_backend.cuda.kernels import STREAM_GROUPS, half_dtype
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.shared_memory import rooms_of
from gpu_backend.cuda.stream import STREAM_BLOCKS, STREAM_CHUNK, STREAM_THREADS, streams_whole
from gpu_backend.cuda.tiled import suits_tiled, tiled_cut
from gpu_backend.cuda.tiled_launch import tiled_launch
from gpu_backend.cuda.wide import WIDE_ROWS, WideNorm, wide_cut
from gpu_backend.cuda.wide_launch import wide_launch
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.gemm_choice import GemmChoice
from gpu_backend.models.description import Model

STREAM_ROWS = 8  # of x, that the streaming kernel is made for
DENSE_STREAM_ROWS = 4  # up to which it beats the wide product, if its rounds are whole

Launch = Callable[..., None]  # op, grid, block, arguments; shared_bytes and cluster


class NativeLinear:
    """Enqueues products. Owns nothing but addresses."""

    def __init__(
        self,
        config: Model,
        cublas: Cublas,
        choice: GemmChoice,
        activations: Activations,
        n_multiprocessors: int,
    ) -> None:
        self._config = config
        self._cublas = cublas
        self._choice = choice
        self._activations = activations
        self._n_multiprocessors = n_multiprocessors
        dense = DENSE_STREAM_ROWS if streams_whole(config.hidden) else 0
        self._stream_rows = dense if config.experts is None else STREAM_ROWS
        self._half = R_16BF if half_dtype(config) == "bfloat16" else R_16F

    def has_silu(self, rows: int, n_in: int, n_out: int) -> bool:
        """Whether one of our own kernels makes the product, which includes silu * mul."""
        ours = self._streams(rows, n_in) or self._is_wide(rows, n_in)
        return ours or suits_tiled(rows, n_in, n_out, "silu", self._n_multiprocessors)

    def enqueue(self, launch: Launch, product: Product, n_sums: int = 0, norm_after: int = 0) -> int:
        """`n_sums`: x was left by a product with as many sums, and needs its norm's factor (E19).

        Returns how many the product leaves itself for the norm with the weight `norm_after`, if any.
        """
        rows, n_in, n_out, output = product.rows, product.n_in, product.n_out, product.output
        if self._is_wide(rows, n_in):
            return self._wide(launch, product, n_sums, norm_after)
        if self._streams(rows, n_in):
            groups = next(n for n in STREAM_GROUPS if 8 * n >= rows)
            tiles = ceil_div(n_out, 8 if output == "silu" else 16)
            most = STREAM_BLOCKS * (self._n_multiprocessors - 1)  # one is the scheduler's
            grid, block = (min(tiles, most), 1, 1), (STREAM_THREADS, 1, 1)
            arguments = (product.weight, product.x, product.out, rows, n_in, n_out)
            launch(f"linear_{output}_{groups}", grid, block, *arguments)
        elif suits_tiled(rows, n_in, n_out, output, self._n_multiprocessors):
            tiles_cut = tiled_cut(rows, n_in, n_out, output, self._n_multiprocessors)
            op, grid, block, values, flags = tiled_launch(product, tiles_cut, self._n_multiprocessors)
            launch(op, grid, block, *values, **flags)
        else:
            self._cublas.linear(product, self._half, self._choice.algorithm(product, self._half))
        return 0

    def _streams(self, rows: int, n_in: int) -> bool:
        return rows <= self._stream_rows and n_in % STREAM_CHUNK == 0

    def _is_wide(self, rows: int, n_in: int) -> bool:
        return rows <= WIDE_ROWS and not self._streams(rows, n_in)

    def _wide(self, launch: Launch, product: Product, n_sums: int, norm_after: int) -> int:
        act = self._activations
        rooms = rooms_of(self._config, product.n_out)
        sizes = (product.rows, product.n_in, product.n_out, product.output)
        cut = wide_cut(*sizes, self._n_multiprocessors, rooms)
        norm = WideNorm(act.sums if n_sums else 0, n_sums, self._config.norm_eps)
        # Not of float16, which might overflow: no factor has bounded what is left.
        if norm_after and self._half == R_16BF and self._is_wide(product.rows, self._config.hidden):
            norm = WideNorm(weight=norm_after, scaled=act.normed, sums_out=act.sums)
        op, grid, block, arguments, flags = wide_launch(cut, product, norm, self._n_multiprocessors - 1)
        launch(op, grid, block, *arguments, **flags)
        return cut.n_sums if norm.weight else 0
