"""The experts' tiled kernels on the GPU, against their definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launching import kernels_of, launch
from numpy.typing import NDArray
from quantized import codes
from routings import NO_EXPERT, Choices, padded, skewed, uniform

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.models.half import rounded
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_tiled import experts
from gpu_backend.ops.operations import Moe, Norm, Routing
from gpu_backend.ops.weights import scales_of

NAN = 0x7FFF  # in both half types
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class Mixture:
    """The tiled kernels of a layer of experts, over random weights and tokens."""

    def __init__(
        self,
        device: Device,
        dtype: str,
        n_experts: int,
        per_token: int,
        hidden: int,
        intermediate: int,
        form: GroupForm | None = None,
    ) -> None:
        self.routing, self.hidden, self.intermediate = (
            Routing(n_experts, per_token, True),
            hidden,
            intermediate,
        )
        self.device, self.dtype = device, dtype
        self.stream, self.memory = Stream(), DeviceMemory(device)
        rng, shape = np.random.default_rng(hidden), (n_experts, 2, intermediate, hidden)
        gate_up = rng.standard_normal(shape, np.float32) * hidden**-0.5
        down = rng.standard_normal((n_experts, hidden, intermediate), np.float32) * intermediate**-0.5
        (self.gate_up, gate_up_matrix), (self.down, down_matrix) = (
            self._weight(values, form) for values in (gate_up, down)
        )
        self.matrices = (gate_up_matrix, down_matrix)
        target, element = Target(device.n_multiprocessors, has_experts=True), compute_element(dtype)
        self.kernels = kernels_of(device, self.works(1, target), element)

    def close(self) -> None:
        self.kernels.close()
        self.memory.close()
        self.stream.close()

    def _weight(self, values: Floats, form: GroupForm | None) -> tuple[Floats, Matrix]:
        """What the kernels multiply in place of `values`, and the matrix that they are given."""
        rows, columns = values.size // values.shape[-1], values.shape[-1]
        if form is None:
            bits = half_bits(values, "float32", self.dtype)
            return self._floats(bits), Matrix(rows, columns, compute_element(self.dtype), self._upload(bits))
        made = codes(values.reshape(rows, columns), form, self.dtype)
        scales = scales_of(form, rows, columns, self._upload(made.scales))
        matrix = Matrix(rows, columns, Element.CODES, self._upload(made.elements), scales, form)
        return self._rounded(made.values).reshape(values.shape), matrix

    def _upload(self, values: NDArray[Any]) -> int:
        address = self.memory.allocate(values.nbytes)
        self.memory.write(address, np.ascontiguousarray(values).data.cast("B"))
        return address

    def _floats(self, bits: NDArray[np.uint16]) -> Floats:
        if self.dtype == "float16":
            return bits.view(np.float16).astype(np.float32)
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def _rounded(self, values: Floats) -> Floats:
        return rounded(values, self.dtype)

    def tokens(self, n: int) -> Floats:
        return self._rounded(np.random.default_rng(n).standard_normal((n, self.hidden), np.float32))

    def works(self, tokens: int, target: Target) -> list[Work]:
        """The plan and the products of so many tokens, whose experts are chosen."""
        element, hidden = compute_element(self.dtype), self.hidden
        unused = Matrix(1, hidden, element)
        residual = Buffer("residual", tokens, hidden, Element.FP32)
        normed = Buffer("normed", tokens, hidden, element)
        weights = (Norm(unused, 1e-6), unused, *self.matrices)
        return experts(Moe(self.routing, self.intermediate, *weights, residual, normed), target, choose)

    def run(self, x: Floats, choice: Choices, processors: int | None = None) -> NDArray[np.uint16]:
        """Bits of the rows [tokens][per_token][hidden]; NAN where no pair is."""
        rows = np.full((*choice.shape, self.hidden), NAN, np.uint16)
        product = np.full((choice.size, self.intermediate), NAN, np.uint16)
        works = self.works(len(choice), Target(processors or self.device.n_multiprocessors, True))
        sizes = {buffer.name: buffer.n_bytes for work in works for buffer in work.buffers}
        addresses = {
            "normed": self._upload(half_bits(x, "float32", self.dtype)),
            "expert_choice": self._upload(choice),
            "expert_plan": self.memory.allocate(sizes["expert_plan"]),
            "expert_pairs": self.memory.allocate(sizes["expert_pairs"]),
            "expert_product": self._upload(product),
            "expert_rows": self._upload(rows),
        }
        launch(self.kernels, self.stream, works, addresses)
        raw = self.memory.read(addresses["expert_rows"], rows.nbytes)
        return np.frombuffer(raw, np.uint16).reshape(rows.shape)

    def expected(self, x: Floats, choice: Choices) -> Floats:
        rows = np.full((*choice.shape, self.hidden), np.nan, np.float32)
        for expert in range(len(self.down)):
            token, place = np.nonzero(choice == expert)
            gate, up = x[token] @ self.gate_up[expert, 0].T, x[token] @ self.gate_up[expert, 1].T
            rows[token, place] = self._rounded(gate / (1 + np.exp(-gate)) * up) @ self.down[expert].T
        return rows


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("n_experts", "per_token", "hidden", "intermediate"),
    [(5, 2, 200, 136), (16, 3, 528, 24), (9, 8, 2048, 768)],
)
def test_tiled_experts(
    device: Device, dtype: str, n_experts: int, per_token: int, hidden: int, intermediate: int
) -> None:
    """Sizes that fill no tile, units of every width; pairs that do not exist are not written."""
    check(Mixture(device, dtype, n_experts, per_token, hidden, intermediate))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "form", [GroupForm(Codes.INT4, 32), GroupForm(Codes.E2M1, 32), GroupForm(Codes.E2M1, 16)]
)
@pytest.mark.parametrize(
    ("n_experts", "per_token", "hidden", "intermediate"),
    [(5, 2, 288, 96), (16, 3, 1120, 64), (8, 4, 2880, 1440)],
)
def test_tiled_experts_of_codes(
    device: Device,
    dtype: str,
    form: GroupForm,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
) -> None:
    """Rows whose scales begin anywhere, and end in the middle of a stage."""
    check(Mixture(device, dtype, n_experts, per_token, hidden, intermediate, form))


def check(mixture: Mixture) -> None:
    n_experts, per_token = mixture.routing.count, mixture.routing.per_token
    routings: list[Callable[[int, int, int], Choices]] = [uniform, skewed, padded]
    for routing in routings:
        for tokens in (1, 70, 400):
            x, choice = mixture.tokens(tokens), routing(tokens, n_experts, per_token)
            got, expected = mixture._floats(mixture.run(x, choice)), mixture.expected(x, choice)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
            known = ~np.isnan(expected)
            error = np.linalg.norm((got - expected)[known]) / np.linalg.norm(expected[known])
            assert error < (4e-3 if mixture.dtype == "bfloat16" else 5e-4)
    mixture.close()


@pytest.mark.parametrize(
    ("form", "intermediate"),
    [(None, 200), (GroupForm(Codes.INT4, 64), 192), (GroupForm(Codes.E2M1, 32), 224)],
)
def test_a_row_depends_on_its_pair_alone(device: Device, form: GroupForm | None, intermediate: int) -> None:
    """E8: the same bits whatever else the step holds, and whichever block takes the unit."""
    mixture = Mixture(device, "bfloat16", 6, 2, 320, intermediate, form)
    x, choice = mixture.tokens(500), skewed(500, 6, 2)
    choice[200:] = uniform(300, 6, 2)
    rows = mixture.run(x, choice)
    np.testing.assert_array_equal(mixture.run(x, choice, processors=8), rows)
    part = choice.copy()
    part[[*range(40), *range(90, 300)]] = NO_EXPERT
    kept = part[:, 0] != NO_EXPERT
    np.testing.assert_array_equal(mixture.run(x, part)[kept], rows[kept])
    mixture.close()
