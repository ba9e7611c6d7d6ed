"""Experts of one token with biases on the GPU, as the engine launches them, against the kernels for several
tokens and against numpy's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from launching import kernels_of, launch
from numpy.typing import NDArray
from quantized import Floats, codes
from test_tiled_gemm_gpu import TOLERANCE, Rig

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.kernel_abi.fused_router import SUM_PLACES
from gpu_backend.models.half import rounded
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Moe, Norm, Routing
from gpu_backend.ops.weights import scales_of

EPS = 1e-5
SUM_UNIT = 2.0**32  # kSumUnit of kernels/ops/moe/fused_router.h
MXFP4 = GroupForm(Codes.E2M1, 32)
NO_SEQUENCE = 0xFFFFFFFF
# Experts, per token, hidden, intermediate: rows as long as gpt-oss's, and as those of codes may be.
GPT_OSS, LONGEST, SMALL = (5, 4, 2880, 2880), (4, 3, 4096, 3072), (5, 1, 160, 192)
SHORT = (12, 4, 2880, 320)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class BiasedExperts:
    """A layer's experts with biases over random weights, and a token in a residual."""

    def __init__(
        self, device: Device, dtype: str, form: GroupForm | None, sizes: tuple[int, int, int, int]
    ) -> None:
        self.count, self.per_token, self.hidden, self.inner = sizes
        self.device, self.dtype = device, dtype
        self.rig = Rig(DeviceMemory(device), Stream(), None, dtype, device.n_multiprocessors)  # type: ignore[arg-type]
        rng, element = np.random.default_rng(self.hidden), compute_element(dtype)
        self.residual = rng.standard_normal((1, self.hidden), np.float32)
        self.norm = self.rig.rounded(rng, self.hidden)
        self.router = self.rig.rounded(rng, self.count, self.hidden, scale=3 * self.hidden**-0.5)
        self.router_bias = self.rig.rounded(rng, 1, self.count, scale=3)
        self.gate_up_bias = self.rig.rounded(rng, 1, self.count * 2 * self.inner)
        self.down_bias = self.rig.rounded(rng, 1, self.count * self.hidden)
        gate_up = rng.standard_normal((self.count * 2 * self.inner, self.hidden), np.float32)
        down = rng.standard_normal((self.count * self.hidden, self.inner), np.float32)
        self.gate_up, gate_up_matrix = self._weight(gate_up * self.hidden**-0.5, form)
        self.down, down_matrix = self._weight(down * self.inner**-0.5, form)

        def halves(values: Floats) -> Matrix:
            return Matrix(*np.atleast_2d(values).shape, element, self.rig.halves(values))

        self.op = Moe(
            Routing(self.count, self.per_token, True),
            self.inner,
            Norm(halves(self.norm), EPS),
            halves(self.router),
            gate_up_matrix,
            down_matrix,
            Buffer("residual", 1, self.hidden, Element.FP32),
            Buffer("normed", 1, self.hidden, element),
            halves(self.router_bias),
            halves(self.gate_up_bias),
            halves(self.down_bias),
        )

    def close(self) -> None:
        self.rig.memory.close()
        self.rig.stream.close()

    def _weight(self, values: Floats, form: GroupForm | None) -> tuple[Floats, Matrix]:
        """What the kernels multiply in place of `values`, and the matrix that they are given."""
        if form is None:
            values = rounded(values, self.dtype)
            address = self.rig.upload(half_bits(values, "float32", self.dtype))
            return values, Matrix(*values.shape, compute_element(self.dtype), address)
        made = codes(values, form, self.dtype)
        scales = scales_of(form, *values.shape, self.rig.upload(made.scales))
        matrix = Matrix(*values.shape, Element.CODES, self.rig.upload(made.elements), scales, form)
        return rounded(made.values, self.dtype), matrix

    def run(self, family: str, padding: bool = False) -> tuple[Floats, NDArray[np.uint32], Floats]:
        """The residual, the experts of the token, and their weights."""
        target = Target(self.device.n_multiprocessors, has_experts=True, gemv_rows=8)
        choice = choose(replace(self.op, routed=family == "moe_one"), target)
        assert choice.name == family
        works: list[Work] = list(choice.launches)
        kernels = kernels_of(self.device, works, compute_element(self.dtype))
        sizes: dict[str, int] = {}
        for buffer in choice.buffers:
            sizes[buffer.name] = max(buffer.n_bytes, sizes.get(buffer.name, 0))
        addresses = {name: self.rig.upload(np.zeros(size, np.uint8)) for name, size in sizes.items()}
        addresses["residual"] = self.rig.upload(self.residual)
        if family == "moe_one":
            sums = np.zeros((SUM_PLACES, self.count), np.int64)
            logits = (self.residual[0].astype(np.float64) * self.norm) @ self.router.T.astype(np.float64)
            sums[0] = np.rint(logits * SUM_UNIT)
            addresses["router_sums"] = self.rig.upload(sums)
        step_set = np.zeros((), abi.StepSet)
        step_set["token_sequence"] = self.rig.upload(np.full(1, NO_SEQUENCE if padding else 0, np.uint32))
        launch(kernels, self.rig.stream, works, addresses, step_set.tobytes())
        kernels.close()
        if family == "moe_one":
            left = self.rig.memory.read(addresses["router_sums"], 8 * SUM_PLACES * self.count)
            assert not np.frombuffer(left, np.int64).any()
        chosen = self.rig.memory.read(addresses["expert_choice"], 4 * self.per_token)
        return (
            self.rig.read(addresses["residual"], self.residual.shape, fp32=True),
            np.frombuffer(chosen, np.uint32),
            self.rig.read(addresses["expert_weight"], (1, self.per_token), fp32=True)[0],
        )

    def expected(self, chosen: NDArray[np.uint32], weights: Floats) -> Floats:
        """What the experts add to the residual."""
        scale = 1 / np.sqrt((self.residual**2).mean() + np.float32(EPS))
        x = rounded(self.residual[0] * scale * self.norm, self.dtype)
        gate_up = self.gate_up.reshape(self.count, 2, self.inner, self.hidden)
        bias = self.gate_up_bias.reshape(self.count, 2, self.inner)
        down = self.down.reshape(self.count, self.hidden, self.inner)
        added = np.zeros(self.hidden, np.float32)
        for expert, weight in zip(chosen, weights, strict=True):
            gate, up = gate_up[expert] @ x + bias[expert]
            product = rounded((gate / (1 + np.exp(-gate)) * up).astype(np.float32), self.dtype)
            added += weight * (down[expert] @ product + self.down_bias.reshape(self.count, -1)[expert])
        return added


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        (MXFP4, GPT_OSS),
        (MXFP4, LONGEST),
        (MXFP4, SMALL),
        (GroupForm(Codes.INT4, 32), SHORT),
        (GroupForm(Codes.E2M1, 16), SHORT),
        (None, GPT_OSS),
        (None, SMALL),
    ],
)
def test_experts_with_biases(
    device: Device, dtype: str, form: GroupForm | None, sizes: tuple[int, int, int, int]
) -> None:
    """In the error of a half type. The kernels for several tokens choose the same experts, with the weights
    that a router has whose norm is rounded."""
    layer = BiasedExperts(device, dtype, form, sizes)
    residual, chosen, weights = layer.run("moe_one")
    added, expected = residual[0] - layer.residual[0], layer.expected(chosen, weights)
    assert np.linalg.norm(added - expected) <= (2 * TOLERANCE[dtype] + 1e-4) * np.linalg.norm(expected)
    other, others_chosen, others_weights = layer.run("moe_stream")
    np.testing.assert_array_equal(chosen, others_chosen)
    np.testing.assert_allclose(weights, others_weights, rtol=10 * TOLERANCE[dtype])
    difference = np.linalg.norm(other[0] - residual[0])
    assert difference <= 10 * TOLERANCE[dtype] * np.linalg.norm(expected)
    layer.close()


@pytest.mark.parametrize("form", [MXFP4, None])
def test_padding_is_added_nothing(device: Device, form: GroupForm | None) -> None:
    layer = BiasedExperts(device, "bfloat16", form, SMALL)
    residual, chosen, weights = layer.run("moe_one", padding=True)
    np.testing.assert_array_equal(residual, layer.residual)
    assert (chosen == 0xFFFFFFFF).all()
    assert (weights == 0).all()
    layer.close()
