"""The skinny GEMM on the GPU, as the engine launches it, against numpy's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from launching import kernels_of, launch
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.model import target_of
from gpu_backend.models.description import Model
from gpu_backend.models.fp8 import dequantized, in_register_order, quantize
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Norm, Role, SumsOfSquares
from gpu_backend.ops.skinny_cut import TILE_ROWS
from gpu_backend.ops.skinny_gemm import SkinnyGemm, sums_of, tiling_of

BF16, FP32 = Element.BF16, Element.FP32
SIZES: dict[str, Any] = {
    "hidden": 1024,
    "n_heads": 16,
    "n_kv_heads": 4,
    "head_dim": 80,
    "intermediate": 2744,
    "vocab_size": 5001,
}
CONFIG = model_config(**SIZES)
# Rows of blocks of scales that gate and up have of their own; columns that end inside a block.
FP8_CONFIG = model_config(**{**SIZES, "intermediate": 2688, "hidden": 1040})
HIGH_CONFIG = model_config(**{**SIZES, "intermediate": 14336})  # tiles of 224 rows
FP8_NAMES = ("qkv", "o", "gate_up", "down")
EPS = 1e-5
NAMES = ("qkv", "o", "gate_up", "down", "head")
Floats = NDArray[np.float32]


@dataclass
class Rig:
    config: Model
    device: Device
    memory: DeviceMemory
    stream: Stream
    kernels: Kernels
    target: Target

    def halves(self, values: Floats) -> int:
        """Their address as bfloat16."""
        return self.upload((values.view(np.uint32) >> 16).astype(np.uint16))

    def upload(self, values: NDArray[np.generic]) -> int:
        address = self.memory.allocate(values.nbytes)
        self.memory.write(address, memoryview(np.ascontiguousarray(values).tobytes()))
        return address

    def floats(self, address: int, *shape: int) -> Floats:
        data = self.memory.read(address, 4 * int(np.prod(shape)))
        return np.frombuffer(data, np.float32).reshape(shape)

    def bfloats(self, address: int, *shape: int) -> Floats:
        bits = np.frombuffer(self.memory.read(address, 2 * int(np.prod(shape))), np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)

    def multiply(self, op: MatMul, x: int, out: int, **others: int) -> None:
        """`others` are addresses of further buffers."""
        works = SkinnyGemm().launches(op, self.target)
        launch(self.kernels, self.stream, works, {"x": x, "out": out, **others})


def matmul(
    config: Model, name: str, rows: int, weight: int = 0, form: ScaleForm | None = None, scales: int = 0
) -> MatMul:
    """With one of the model's matrices, of halves or in fp8."""
    k, n, epilogue = {
        "qkv": (config.hidden, config.qkv_width, Epilogue.STORE),
        "o": (config.attention_width, config.hidden, Epilogue.ADD),
        "gate_up": (config.hidden, config.intermediate, Epilogue.GATED),
        "down": (config.intermediate, config.hidden, Epilogue.ADD),
        "head": (config.hidden, config.vocab_size, Epilogue.STORE_FP32),
    }[name]
    fp32 = epilogue in (Epilogue.ADD, Epilogue.STORE_FP32)
    w_rows = 2 * n if epilogue is Epilogue.GATED else n
    out = Buffer("out", rows, n, FP32 if fp32 else BF16)
    matrix = Matrix(w_rows, k, BF16, weight)
    if form is not None:
        matrix = Matrix(w_rows, k, Element.FP8, weight, Matrix(*form.shape(w_rows, k), FP32, scales))
    return MatMul(Role(name), matrix, Buffer("x", rows, k, BF16), out, epilogue)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with opened(CONFIG) as rig:
        yield rig


@pytest.fixture(scope="module", params=[FP8_CONFIG, HIGH_CONFIG])
def fp8_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with opened(request.param, list(ScaleForm)) as rig:
        yield rig


@contextmanager
def opened(config: Model, forms: Sequence[ScaleForm | None] = (None,)) -> Iterator[Rig]:
    with ExitStack() as owned:
        device = Device()
        owned.callback(device.close)
        memory, stream = DeviceMemory(device), Stream()
        owned.callback(memory.close)
        owned.callback(stream.close)
        target = target_of(config, device.chip)
        ops = [
            matmul(config, name, rows, form=form) for name in NAMES for rows in (16, 32, 64) for form in forms
        ]
        works = [work for op in ops for work in SkinnyGemm().launches(op, target)]
        kernels = kernels_of(device, works, BF16)
        owned.callback(kernels.close)
        yield Rig(config, device, memory, stream, kernels, target)


def rounded(rng: np.random.Generator, *shape: int, scale: float = 1) -> Floats:
    """Random values that bfloat16 holds."""
    values = scale * rng.standard_normal(shape).astype(np.float32)
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


def silu_mul(gate_up: Floats, n_out: int) -> Floats:
    gate, up = gate_up[:, :n_out], gate_up[:, n_out:]
    return gate / (1 + np.exp(-gate)) * up


def assert_near(got: Floats, expected: Floats, tolerance: float) -> None:
    assert np.linalg.norm(got - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("rows", [9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize("name", NAMES)
def test_a_product(rig: Rig, name: str, rows: int) -> None:
    check_product(rig, name, rows)


@pytest.mark.parametrize("rows", [33, 64])
@pytest.mark.parametrize("rows_of_w", [150, 200])  # that a block has
def test_high_tiles(rig: Rig, rows_of_w: int, rows: int) -> None:
    config = model_config(**{**SIZES, "intermediate": rows_of_w * rig.target.blocks // 16 * 8})
    assert tiling_of(matmul(config, "gate_up", rows), rig.target).tile_rows > TILE_ROWS[0]
    with opened(config) as other:
        check_product(other, "gate_up", rows)


def check_product(rig: Rig, name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    op = matmul(rig.config, name, rows)
    x, w = rounded(rng, rows, op.k), rounded(rng, op.weight.rows, op.k, scale=0.05)
    start = rng.standard_normal((rows, op.n)).astype(np.float32)
    out = rig.upload(start)
    rig.multiply(matmul(rig.config, name, rows, rig.halves(w)), rig.halves(x), out)
    product = x @ w.T
    if op.out.element is FP32:
        adds = op.epilogue is Epilogue.ADD
        assert_near(rig.floats(out, rows, op.n), product + start if adds else product, 1e-5)
    else:
        expected = silu_mul(product, op.n) if op.epilogue is Epilogue.GATED else product
        assert_near(rig.bfloats(out, rows, op.n), expected, 4e-3)


@pytest.mark.parametrize("rows", [9, 32, 64])
@pytest.mark.parametrize(("first", "second"), [("o", "gate_up"), ("down", "qkv"), ("down", "head")])
def test_a_norm_between_products(rig: Rig, first: str, second: str, rows: int) -> None:
    before, after = matmul(CONFIG, first, rows), matmul(CONFIG, second, rows)
    inner, hidden, n_out = before.k, before.n, after.n
    rng = np.random.default_rng(rows)
    x, w = rounded(rng, rows, inner), rounded(rng, hidden, inner, scale=0.05)
    weight, start = rounded(rng, hidden), rng.standard_normal((rows, hidden)).astype(np.float32)
    v = rounded(rng, after.weight.rows, hidden, scale=0.05)
    residual, scaled = rig.upload(start), rig.memory.allocate(2 * rows * hidden)
    out, sums = rig.memory.allocate(4 * rows * n_out), sums_of(before, rig.target)
    norm = Norm(Matrix(1, hidden, BF16, rig.halves(weight)), EPS)
    part = SumsOfSquares(norm, Buffer("scaled", rows, hidden, BF16), sums, sums.rows)
    buffers = {"sums": rig.memory.allocate(sums.n_bytes), "scaled": scaled}
    before = replace(matmul(CONFIG, first, rows, rig.halves(w)), leaves=part)
    rig.multiply(before, rig.halves(x), residual, **buffers)
    rig.multiply(replace(matmul(CONFIG, second, rows, rig.halves(v)), takes=part), scaled, out, **buffers)
    total = start + x @ w.T
    assert_near(rig.floats(residual, rows, hidden), total, 1e-5)
    normed = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + EPS) * weight
    expected = normed @ v.T
    expected = silu_mul(expected, n_out) if after.epilogue is Epilogue.GATED else expected
    read = rig.floats if after.out.element is FP32 else rig.bfloats
    assert_near(read(out, rows, n_out), expected, 8e-3)


def in_fp8(rig: Rig, values: Floats, form: ScaleForm) -> tuple[dict[str, int], Floats]:
    """Addresses of a matrix and its scales, and its values."""
    elements, scales = quantize(values, form)
    places = {"weight": rig.upload(in_register_order(elements)), "scales": rig.upload(scales)}
    return places, dequantized(elements, scales)


@pytest.mark.parametrize("rows", [1, 9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("name", FP8_NAMES)
def test_a_product_with_weights_in_fp8(fp8_rig: Rig, name: str, form: ScaleForm, rows: int) -> None:
    rng = np.random.default_rng(rows)
    op = matmul(fp8_rig.config, name, rows)
    x, w = rounded(rng, rows, op.k), rounded(rng, op.weight.rows, op.k, scale=0.05)
    w *= rng.uniform(0.5, 2, (len(w), 1)).astype(np.float32)
    places, values = in_fp8(fp8_rig, w, form)
    start = rng.standard_normal((rows, op.n)).astype(np.float32)
    out = fp8_rig.upload(start)
    fp8_rig.multiply(matmul(fp8_rig.config, name, rows, form=form, **places), fp8_rig.halves(x), out)
    product = x @ values.T
    if op.out.element is FP32:
        assert_near(fp8_rig.floats(out, rows, op.n), product + start, 1e-5)
    else:
        expected = silu_mul(product, op.n) if op.epilogue is Epilogue.GATED else product
        assert_near(fp8_rig.bfloats(out, rows, op.n), expected, 4e-3)


@pytest.mark.parametrize("rows", [9, 32, 64])
@pytest.mark.parametrize("form", ScaleForm)
def test_a_norm_between_products_in_fp8(fp8_rig: Rig, form: ScaleForm, rows: int) -> None:
    """E19, from down to gate_up."""
    rig, config, rng = fp8_rig, fp8_rig.config, np.random.default_rng(rows)
    before, after = matmul(config, "down", rows), matmul(config, "gate_up", rows)
    inner, hidden = before.k, before.n
    x, weight = rounded(rng, rows, inner), rounded(rng, hidden)
    down, down_values = in_fp8(rig, rounded(rng, hidden, inner, scale=0.05), form)
    up, up_values = in_fp8(rig, rounded(rng, after.weight.rows, hidden, scale=0.05), form)
    start = rng.standard_normal((rows, hidden)).astype(np.float32)
    residual, scaled = rig.upload(start), rig.memory.allocate(2 * rows * hidden)
    first = matmul(config, "down", rows, form=form, **down)
    second = matmul(config, "gate_up", rows, form=form, **up)
    out, sums = rig.memory.allocate(2 * rows * second.n), sums_of(first, rig.target)
    norm = Norm(Matrix(1, hidden, BF16, rig.halves(weight)), EPS)
    part = SumsOfSquares(norm, Buffer("scaled", rows, hidden, BF16), sums, sums.rows)
    buffers = {"sums": rig.memory.allocate(sums.n_bytes), "scaled": scaled}
    rig.multiply(replace(first, leaves=part), rig.halves(x), residual, **buffers)
    rig.multiply(replace(second, takes=part), scaled, out, **buffers)
    total = start + x @ down_values.T
    assert_near(rig.floats(residual, rows, hidden), total, 1e-5)
    normed = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + EPS) * weight
    assert_near(rig.bfloats(out, rows, second.n), silu_mul(normed @ up_values.T, second.n), 8e-3)


def test_the_model_has_a_product_of_every_kind() -> None:
    cuts = [tiling_of(matmul(CONFIG, name, 32), Target(132)) for name in NAMES]
    assert {cut.splits > 1 for cut in cuts} == {False, True}
