"""The grouped GEMM of fp8 with fp8 on the emulator, against numpy's product of the quantised values.

gate_up quantises what it puts out, so that each value has the error of fp8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import Emulate
from halves import NAN, assert_close, floats, random
from moe_case import new_plan
from numpy.typing import NDArray
from quantized import Operand, activations
from reference_ops import call
from routings import NO_EXPERT, Choices, absent, padded, skewed, uniform
from weights import FORMS, Weights, weights

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.grouped_fp8_gemm_sm90 import GROUPED_FP8_UNIT as UNIT
from gpu_backend.models.fp8 import NAN as FP8_NAN
from gpu_backend.models.fp8 import from_fp8, in_register_order
from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm

Floats = NDArray[np.float32]
ROW, BLOCK = ScaleForm.ROW, ScaleForm.BLOCK


class Product:
    """One of the experts' matmuls, over random weights and rows of x."""

    def __init__(
        self, choice: Choices, n_experts: int, n_in: int, n_out: int, down: bool, form: ScaleForm
    ) -> None:
        self.choice, (self.tokens, self.per_token) = choice, choice.shape
        self.n_in, self.n_out, self.down, self.form = n_in, n_out, down, form
        self.plan = new_plan(choice, n_experts, UNIT)
        call("expert_plan", choice, *self.plan, self.tokens, n_experts, self.per_token, UNIT)
        shape = (n_experts, n_out, n_in) if down else (n_experts, 2, n_out, n_in)
        self.w: Weights = weights(random(*shape, seed=2, scale=n_in**-0.5), form)
        self.x = floats(random(choice.size if down else self.tokens, n_in, seed=1))

    @property
    def quantised_x(self) -> Operand:
        return activations(self.x, BLOCK if self.down else self.form)

    def run(self, emulate: Emulate, blocks: int = 3) -> Floats:
        """[pairs][n_out], for down in the places of the pairs, else sorted; NaN where no pair is."""
        x, shape = self.quantised_x, (self.choice.size, self.n_out)
        halves, elements = np.full(shape, NAN, np.uint16), np.full(shape, FP8_NAN, np.uint8)
        scales = np.full((ceil_div(self.n_out, SCALE_BLOCK), self.choice.size), np.nan, np.float32)
        out = (halves, None) if self.down else (elements, scales)
        inputs = (*self.plan, *self.w.pointers, x.elements, x.scales, x.scales.shape[1], *out)
        sizes = (self.choice.size, len(self.x), self.n_in, self.n_out, self.per_token)
        emulate("moe_grouped_fp8_gemm", *inputs, *sizes, int(self.down), FORMS.index(self.form), blocks)
        return floats(halves) if self.down else values_of(elements, scales)

    def expected(self) -> Floats:
        x, out = (
            self.quantised_x.values,
            np.full((self.choice.size, self.n_out), np.nan, np.float32),
        )
        for place, pair in enumerate(self.plan[1]):
            if pair == NO_EXPERT:
                continue
            w = self.w.values[self.choice.flat[pair]]
            if self.down:
                out[pair] = w @ x[place]
            else:
                gate, up = w @ x[pair // self.per_token]
                out[place] = gate / (1 + np.exp(-gate)) * up
        return out


def values_of(elements: NDArray[np.uint8], scales: Floats) -> Floats:
    """Of elements [rows][columns] in the order of memory, and scales [blocks][rows]."""
    columns = elements.shape[1]
    place = in_register_order((np.arange(columns) % 16).astype(np.uint8)[None])[0]
    values = np.empty(elements.shape, np.float32)
    values[:, np.arange(columns) // 16 * 16 + place] = from_fp8(elements)
    return values * scales.T.repeat(SCALE_BLOCK, axis=1)[:, :columns]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(
    ("routing", "tokens", "n_experts", "per_token", "n_in", "n_out", "form"),
    [
        (uniform, 9, 4, 2, 272, 144, ROW),
        (skewed, 70, 3, 1, 144, 48, ROW),
        (padded, 100, 3, 1, 48, 80, ROW),
        (absent, 40, 3, 2, 640, 272, ROW),
        (uniform, 9, 4, 2, 272, 384, BLOCK),
        (skewed, 150, 3, 2, 128, 128, BLOCK),
        (padded, 100, 3, 1, 640, 128, BLOCK),
    ],
)
def test_products_of_fp8(
    emulate: Emulate, routing: Any, tokens: int, n_experts: int, per_token: int, n_in: int, n_out: int,
    form: ScaleForm, down: bool,
) -> None:  # fmt: skip
    """Sizes that fill no tile, units of every width; what does not exist is not written."""
    product = Product(routing(tokens, n_experts, per_token), n_experts, n_in, n_out, down, form)
    got, expected = product.run(emulate), product.expected()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    known = ~np.isnan(expected)
    if known.any() and down:
        assert_close(got[known], expected[known])
    elif known.any():
        check_quantised(got[known.all(axis=1)], expected[known.all(axis=1)])


def check_quantised(got: Floats, expected: Floats) -> None:
    """Elements are those that are nearest, but for a few of which two are about as near; a step of fp8 is an
    eighth, or of small values a part of the block's largest."""
    nearest = activations(expected, BLOCK).values
    blocks = np.add.reduceat(np.ones(expected.shape[1]), np.arange(0, expected.shape[1], SCALE_BLOCK))
    most = np.maximum.reduceat(np.abs(expected), np.arange(0, expected.shape[1], SCALE_BLOCK), axis=1)
    step = np.maximum(np.abs(expected) / 8, most.repeat(blocks.astype(int), axis=1) / 2**16)
    assert (np.abs(got - nearest) <= 1.01 * step).all()
    assert (np.abs(got - nearest) > 0.01 * step).mean() < 0.01


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("form", [ROW, BLOCK])
def test_a_row_depends_on_its_pair_alone(emulate: Emulate, form: ScaleForm, down: bool) -> None:
    """E8: the same bits whatever else the step holds, and whichever block takes the unit."""
    choice = skewed(90, 6, 2)
    choice[70:] = uniform(20, 6, 2)
    full = Product(choice, 6, 128, 128, down, form)
    rows = full.run(emulate)
    np.testing.assert_array_equal(full.run(emulate, blocks=7), rows)
    kept = np.arange(90) % 3 == 0
    part = Product(np.where(kept[:, None], choice, NO_EXPERT).astype(np.uint32), 6, 128, 128, down, form)
    before = {pair: place for place, pair in enumerate(full.plan[1])}
    places = [(place, pair, before[pair]) for place, pair in enumerate(part.plan[1]) if pair != NO_EXPERT]
    if down:
        for place, _, was in places:
            part.x[place] = full.x[was]
    got = part.run(emulate)
    for place, pair, was in places:
        np.testing.assert_array_equal(got[pair if down else place], rows[pair if down else was])
