"""Experts in fp8 on the GPU, as the engine launches them, against numpy's dequantised weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from launching import kernels_of, launch
from quantized import Floats, Operand, activations, weight
from routings import Choices, uniform
from test_tiled_gemm_gpu import TOLERANCE, Rig

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.kernel_abi.fused_router import SUM_PLACES
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_parts import expert_sum
from gpu_backend.ops.moe_tiled import experts
from gpu_backend.ops.operations import Moe, Norm, Routing

EPS = 1e-6
SUM_UNIT = 2.0**32  # kSumUnit of kernels/ops/moe/fused_router.h
SMALL, LARGE = (8, 3, 512, 128), (16, 8, 2048, 768)  # experts, per token, hidden, intermediate
ROUNDS = (5, 2, 2304, 896)  # a warp has more than one round of chunks of each row


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class Experts:
    """A layer's experts over random weights, and tokens in a residual."""

    def __init__(
        self,
        device: Device,
        dtype: str,
        form: ScaleForm,
        tokens: int,
        sizes: tuple[int, int, int, int],
        gain: float = 1.0,
    ) -> None:
        """`gain`: of gate and of up; down makes up for it."""
        self.count, self.per_token, self.hidden, self.inner = sizes
        self.device, self.dtype, self.form, self.tokens = device, dtype, form, tokens
        self.rig = Rig(DeviceMemory(device), Stream(), None, dtype, device.n_multiprocessors)  # type: ignore[arg-type]
        rng = np.random.default_rng(tokens)
        self.residual = rng.standard_normal((tokens, self.hidden), np.float32)
        self.norm = self.rig.rounded(rng, self.hidden)
        self.router = self.rig.rounded(rng, self.count, self.hidden, scale=3 * self.hidden**-0.5)
        gate_up = rng.standard_normal((self.count * 2 * self.inner, self.hidden), np.float32)
        down = rng.standard_normal((self.count * self.hidden, self.inner), np.float32)
        size = 1 + rng.random((len(gate_up), 1), np.float32)  # scales differ
        self.gate_up = weight(gain * gate_up * size * self.hidden**-0.5, form)
        self.down = weight(down * self.inner**-0.5 / gain**2, form)
        shares = rng.random((tokens, self.per_token), np.float32)
        self.given = uniform(tokens, self.count, self.per_token), shares  # of many tokens: the routing
        self.op = self._operation()
        self.choice = choose(self.op, Target(device.n_multiprocessors, has_experts=True, gemv_rows=8))

    def close(self) -> None:
        self.rig.memory.close()
        self.rig.stream.close()

    def _operation(self) -> Moe:
        element, rig = compute_element(self.dtype), self.rig

        def matrix(of: Operand) -> Matrix:
            scales = Matrix(*of.scales.shape, Element.FP32, rig.upload(of.scales))
            return Matrix(*of.elements.shape, Element.FP8, rig.upload(of.elements), scales)

        return Moe(
            Routing(self.count, self.per_token, True),
            self.inner,
            Norm(Matrix(1, self.hidden, element, rig.halves(self.norm)), EPS),
            Matrix(self.count, self.hidden, element, rig.halves(self.router)),
            matrix(self.gate_up),
            matrix(self.down),
            Buffer("residual", self.tokens, self.hidden, Element.FP32),
            Buffer("normed", self.tokens, self.hidden, element),
            routed=self.tokens == 1,
        )

    def run(self) -> tuple[Floats, Choices, Floats]:
        """The residual, the experts of each token, and their weights."""
        target = Target(self.device.n_multiprocessors, has_experts=True, gemv_rows=8)
        works = self._works(target)
        kernels = kernels_of(self.device, works, compute_element(self.dtype))
        sizes: dict[str, int] = {}
        for buffer in self.choice.buffers:
            sizes[buffer.name] = max(buffer.n_bytes, sizes.get(buffer.name, 0))
        addresses = {name: self.rig.upload(np.zeros(size, np.uint8)) for name, size in sizes.items()}
        addresses["residual"] = self.rig.upload(self.residual)
        if self.is_tiled:
            addresses["normed"] = self.rig.halves(self.normed)
            addresses["expert_choice"], addresses["expert_weight"] = map(self.rig.upload, self.given)
        if self.op.routed:
            sums = np.zeros((SUM_PLACES, self.count), np.int64)
            logits = (self.residual[0].astype(np.float64) * self.norm) @ self.router.T.astype(np.float64)
            sums[0] = np.rint(logits * SUM_UNIT)
            addresses["router_sums"] = self.rig.upload(sums)
        step_set = np.zeros((), abi.StepSet)
        step_set["token_sequence"] = self.rig.upload(np.zeros(self.tokens, np.uint32))
        launch(kernels, self.rig.stream, works, addresses, step_set.tobytes())
        kernels.close()
        shape = (self.tokens, self.per_token)
        chosen = self.rig.memory.read(addresses["expert_choice"], 4 * shape[0] * shape[1])
        return (
            self.rig.read(addresses["residual"], self.residual.shape, fp32=True),
            np.frombuffer(chosen, np.uint32).reshape(shape),
            self.rig.read(addresses["expert_weight"], shape, fp32=True),
        )

    def expected(self, chosen: Choices, weights: Floats) -> Floats:
        """What the experts add to the residual. Of many tokens x is quantised, as the kernels do it."""
        x = self._x(self.normed, self.form)
        gate_up = self.gate_up.values.reshape(self.count, 2, self.inner, self.hidden)
        down = self.down.values.reshape(self.count, self.hidden, self.inner)
        added = np.zeros_like(self.residual)
        for expert in range(self.count):
            token, place = np.nonzero(chosen == expert)
            if not len(token):
                continue
            gate, up = x[token] @ gate_up[expert, 0].T, x[token] @ gate_up[expert, 1].T
            with np.errstate(over="ignore"):  # of a gate that is closed
                gated = gate / (1 + np.exp(-gate)) * up
            product = self._x(gated.astype(np.float32), ScaleForm.BLOCK)
            added[token] += weights[token, place][:, None] * (product @ down[expert].T)
        return added

    def _x(self, values: Floats, form: ScaleForm) -> Floats:
        return activations(values, form).values if self.is_tiled else values

    @property
    def is_tiled(self) -> bool:
        return self.choice.name == "moe_tiled"

    @property
    def normed(self) -> Floats:
        scale = 1 / np.sqrt((self.residual**2).mean(axis=1, keepdims=True) + np.float32(EPS))
        normed = (self.residual * scale * self.norm).astype(np.float32)
        if self.dtype == "float16":
            return normed.astype(np.float16).astype(np.float32)
        return (normed.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)

    def _works(self, target: Target) -> list[Work]:
        """Of many tokens the experts alone: the router's matmul is a library's."""
        if not self.is_tiled:
            return list(self.choice.launches)
        return [*experts(self.op, target, choose), expert_sum(self.op)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("sizes", [SMALL, LARGE, ROUNDS])
@pytest.mark.parametrize(
    ("tokens", "family"),
    [
        (1, "moe_one"),
        (2, "moe_stream"),
        (8, "moe_stream"),
        (14, "moe_stream"),
        (140, "moe_tiled"),
        (700, "moe_tiled"),
    ],
)
def test_experts_in_fp8(
    device: Device, tokens: int, family: str, sizes: tuple[int, int, int, int], form: ScaleForm, dtype: str
) -> None:
    """What is added to the residual, in the error of a half type. Of quantised x, a value near the border
    between two elements may fall to the other side, which is a sixteenth of it: with sums that are off by a
    thousandth, a token of few outputs is then off by up to 4 %, and all together by 1 %."""
    layer = Experts(device, dtype, form, tokens, sizes)
    assert layer.choice.name == family
    residual, chosen, weights = layer.run()
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
    added, expected = residual - layer.residual, layer.expected(chosen, weights)
    tolerance = 1.5e-2 if family == "moe_tiled" else 2 * TOLERANCE[dtype] + 1e-4
    errors = np.linalg.norm(added - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert errors.max() <= (5 if family == "moe_tiled" else 3) * tolerance
    assert np.linalg.norm(added - expected) <= tolerance * np.linalg.norm(expected)
    layer.close()


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("tokens", [1, 8, 20])
@pytest.mark.parametrize("gain", [1e-8, 3e3])
def test_products_beyond_float16(device: Device, form: ScaleForm, tokens: int, gain: float) -> None:
    """Experts in bfloat16 put out what its range allows, though fp8 is multiplied in float16: gate times up
    is about 1e7 here, or 1e-16."""
    layer = Experts(device, "bfloat16", form, tokens, SMALL, gain)
    residual, chosen, weights = layer.run()
    added, expected = residual - layer.residual, layer.expected(chosen, weights)
    assert np.linalg.norm(added - expected) <= 2 * TOLERANCE["bfloat16"] * np.linalg.norm(expected)
    layer.close()


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("tokens", [20, 150])
def test_a_token_depends_on_itself_alone(device: Device, form: ScaleForm, tokens: int) -> None:
    """E8: the same bits in any place, beside any others."""
    layer = Experts(device, "bfloat16", form, tokens, SMALL)
    rows, chosen, weights = layer.run()
    for moved in (5, 13):
        other = Experts(device, "bfloat16", form, tokens, SMALL)
        other.residual = np.roll(layer.residual, moved, axis=0)
        other.residual[moved + 3 :] *= 3
        other.given = np.roll(chosen, moved, axis=0), np.roll(weights, moved, axis=0)
        again, _, _ = other.run()
        np.testing.assert_array_equal(again[moved : moved + 3], rows[:3])
        other.close()
    layer.close()
