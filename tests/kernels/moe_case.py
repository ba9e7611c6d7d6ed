"""The experts of a step for tests of kernels: weights, tokens, and what the references make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from emulation import Emulate
from halves import NAN, assert_close, floats, random
from numpy.typing import NDArray
from reference_ops import SILU, call
from routings import NO_EXPERT, Choices
from weights import weights

from gpu_backend.kernel_abi import routing
from gpu_backend.kernel_abi.grouped_codes_gemm_sm90 import GROUPED_CODES_UNIT
from gpu_backend.kernel_abi.grouped_gemm_sm90 import GROUPED_UNIT
from gpu_backend.models.quantization import Form, GroupForm

FEW = routing.FEW_TOKENS


def new_plan(choice: Choices, n_experts: int, unit: int) -> tuple[NDArray[Any], NDArray[Any]]:
    most = choice.size // unit + min(n_experts, choice.size)
    return np.full((1 + most, 4), 7, np.uint32), np.full(choice.size, NO_EXPERT, np.uint32)


class MoeCase:
    """Experts' weights and tokens, and what the references make of them."""

    def __init__(
        self,
        choice: Choices,
        n_experts: int,
        hidden: int,
        intermediate: int,
        form: Form | None = None,
        gain: float = 1,
    ) -> None:
        """`gain`: of gate and of up; down makes up for it."""
        self.choice, (self.tokens, self.per_token) = choice, choice.shape
        self.n_experts, self.hidden, self.intermediate = n_experts, hidden, intermediate
        self.x = random(self.tokens, hidden, seed=1)
        gate_up = random(n_experts, 2, intermediate, hidden, seed=2, scale=gain * hidden**-0.5)
        down = random(n_experts, hidden, intermediate, seed=3, scale=intermediate**-0.5 / gain**2)
        self.gate_up, self.down = weights(gate_up, form), weights(down, form)
        self.codes = isinstance(form, GroupForm)
        self.bias: NDArray[np.uint16] | None = None  # [n_experts][2][intermediate]: of gate_up

    def run(self, emulate: Emulate, blocks: int = 3) -> NDArray[np.uint16]:
        """The rows [tokens][per_token][hidden]; NaN where no pair is. For FEW tokens the kernel chooses."""
        product = np.full((self.choice.size, self.intermediate), NAN, np.uint16)
        rows = np.full((self.tokens, self.per_token, self.hidden), NAN, np.uint16)
        logits = np.full((self.tokens, self.n_experts), np.nan, np.float32)  # as low as can be
        padding = self.choice[:, 0] == NO_EXPERT
        for t in np.nonzero(~padding)[0]:
            logits[t, self.choice[t]] = 1 + np.arange(self.per_token)[::-1]
        choice = self.choice.copy() if self.tokens > FEW else np.full_like(self.choice, 7)
        weight = np.zeros(choice.shape, np.float32)
        token_sequence = np.where(padding, NO_EXPERT, 0).astype(np.uint32)
        inputs = (*self.gate_up.pointers, *self.down.pointers, self.bias, self.x, product, rows)
        counts = (self.tokens, self.n_experts, self.hidden, self.intermediate, self.per_token)
        sizes = (*counts, self.gate_up.form, blocks)
        emulate("moe_gemv", token_sequence, logits, choice, weight, *inputs, *sizes)
        np.testing.assert_array_equal(choice, self.choice)
        return rows

    def run_tiled(self, emulate: Emulate, blocks: int = 3) -> NDArray[np.uint16]:
        """The same of the kernels for many tokens, which a plan feeds."""
        product = np.full((self.choice.size, self.intermediate), NAN, np.uint16)
        rows = np.full((self.tokens, self.per_token, self.hidden), NAN, np.uint16)
        unit = GROUPED_CODES_UNIT if self.codes else GROUPED_UNIT
        plan = new_plan(self.choice, self.n_experts, unit)
        call("expert_plan", self.choice, *plan, self.tokens, self.n_experts, self.per_token, unit)
        inputs = (self.bias, self.x, product, rows)
        sizes = (self.tokens, self.hidden, self.intermediate, self.per_token)
        if self.codes:
            weights = (*self.gate_up.pointers, *self.down.pointers)
            emulate("moe_grouped_codes_gemm", *plan, *weights, *inputs, *sizes, self.gate_up.form, blocks)
        else:
            stored = (self.gate_up.stored, self.down.stored)
            emulate("moe_grouped_gemm", *plan, *stored, *inputs, *sizes, blocks)
        return rows

    activation = SILU

    def expected(self) -> NDArray[np.float32]:
        rows = np.full((self.tokens, self.per_token, self.hidden), np.nan, np.float32)
        bias = None if self.bias is None else floats(self.bias)
        inputs = (self.gate_up.values, bias, self.down.values, floats(self.x))
        sizes = (self.hidden, self.intermediate, self.per_token, self.tokens)
        call("experts", self.choice, *inputs, rows, *sizes, self.activation)
        return rows

    def check(self, rows: NDArray[np.uint16]) -> None:
        """Pairs that do not exist are not written."""
        got, expected = floats(rows), self.expected()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        if (self.choice != NO_EXPERT).any():
            assert_close(got[~np.isnan(got)], expected[~np.isnan(expected)])


STREAMED, TILED = MoeCase.run, MoeCase.run_tiled
