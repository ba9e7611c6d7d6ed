"""The grouped GEMM of fp8 with fp8 on the emulator, against numpy's product of the quantised values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from quantized import activations
from reference_ops import call
from routings import NO_EXPERT, Choices, absent, padded, skewed, uniform
from test_moe_device import new_plan
from test_ops_device import NAN, Emulate, assert_close, floats, random
from weights import FORMS, Weights, weights

from gpu_backend.kernel_abi.grouped_fp8_gemm_sm90 import GROUPED_FP8_UNIT as UNIT
from gpu_backend.models.quantization import ScaleForm

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

    def run(self, emulate: Emulate, blocks: int = 3) -> NDArray[np.uint16]:
        """[pairs][n_out], for down in the places of the pairs, else sorted; NaN where no pair is."""
        x, out = activations(self.x, self.form), np.full((self.choice.size, self.n_out), NAN, np.uint16)
        inputs = (*self.plan, *self.w.pointers, x.elements, x.scales, x.scales.shape[1], out)
        sizes = (len(self.x), self.n_in, self.n_out, self.per_token)
        emulate("moe_grouped_fp8_gemm", *inputs, *sizes, int(self.down), FORMS.index(self.form), blocks)
        return out

    def expected(self) -> Floats:
        x, out = (
            activations(self.x, self.form).values,
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


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(
    ("routing", "tokens", "n_experts", "per_token", "n_in", "n_out", "form"),
    [
        (uniform, 9, 4, 2, 272, 136, ROW),
        (skewed, 70, 3, 1, 144, 24, ROW),
        (padded, 100, 3, 1, 48, 72, ROW),
        (absent, 40, 3, 2, 640, 264, ROW),
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
    got, expected = floats(product.run(emulate)), product.expected()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    known = ~np.isnan(expected)
    if known.any():
        assert_close(got[known], expected[known])


@pytest.mark.parametrize("form", [ROW, BLOCK])
def test_a_row_depends_on_its_pair_alone(emulate: Emulate, form: ScaleForm) -> None:
    """E8: the same bits whatever else the step holds, and whichever block takes the unit."""
    choice = skewed(90, 6, 2)
    choice[70:] = uniform(20, 6, 2)
    full = Product(choice, 6, 128, 128, True, form)
    rows = full.run(emulate)
    np.testing.assert_array_equal(full.run(emulate, blocks=7), rows)
    kept = np.arange(90) % 3 == 0
    part = Product(np.where(kept[:, None], choice, NO_EXPERT).astype(np.uint32), 6, 128, 128, True, form)
    places = {pair: place for place, pair in enumerate(full.plan[1])}
    for place, pair in enumerate(part.plan[1]):
        if pair != NO_EXPERT:
            part.x[place] = full.x[places[pair]]
    np.testing.assert_array_equal(part.run(emulate)[np.repeat(kept, 2)], rows[np.repeat(kept, 2)])
