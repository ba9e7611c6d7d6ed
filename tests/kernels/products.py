"""The output of a matmul under test, in memory, and what the CPU reference makes of it."""

from __future__ import annotations

import numpy as np
from halves import Halves, assert_close, floats
from reference_ops import SILU, Floats, call

OUTPUTS = ("half", "float", "add", "silu")  # of EpilogueOp


class Product:
    """x [m][n_in] times w [rows][n_in] transposed, with rows = 2 * n_out for "silu", else n_out.

    `y` [m + 1][n_out] begins as random numbers; what lies behind its last row must stay.
    """

    def __init__(self, x: Halves, w: Floats, n_out: int, output: str, activation: int = SILU) -> None:
        (m, n_in), rows = x.shape, len(w)
        product = np.empty((m, rows), np.float32)
        call("linear", floats(x), w, product, m, n_in, rows)
        start = np.random.default_rng(2).standard_normal((m + 1, n_out)).astype(np.float32)
        self.expected = product
        if output == "add":
            self.expected = start[:m] + product
        elif output == "silu":
            call("gated", product, active := np.empty((m, n_out), np.float32), n_out, m, activation)
            self.expected = active
        self._is_half = output in ("half", "silu")
        self.y = (start.view(np.uint32) >> 16).astype(np.uint16) if self._is_half else start
        self._behind = self.y[m].copy()

    def check(self) -> None:
        assert_close((floats(self.y) if self._is_half else self.y)[:-1], self.expected)
        np.testing.assert_array_equal(self.y[-1], self._behind)
