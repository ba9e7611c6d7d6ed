"""The wide product on the GPU, as the engine launches it, against numpy's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.kernels import Kernels
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.wide import TILE_ROWS, WideNorm, products, wide_cut
from gpu_backend.cuda.wide_launch import wide_launch
from gpu_backend.models.description import Model

SIZES: dict[str, Any] = {
    "hidden": 1024,
    "n_heads": 16,
    "n_kv_heads": 4,
    "head_dim": 80,
    "intermediate": 2744,
    "vocab_size": 5001,
}
CONFIG = model_config(**SIZES)
EPS = 1e-5
Floats = NDArray[np.float32]


@dataclass
class Rig:
    config: Model
    device: Device
    memory: DeviceMemory
    stream: Stream
    kernels: Kernels
    n_multiprocessors: int

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

    def multiply(
        self,
        name: str,
        rows: int,
        weight: int,
        x: int,
        out: int,
        norm: WideNorm = WideNorm(),  # noqa: B008
    ) -> int:
        """Returns the sums that it leaves."""
        n_in, n_out, output = products(self.config)[name]
        cut = wide_cut(rows, n_in, n_out, output, self.n_multiprocessors)
        product = Product(weight, x, out, rows, n_in, n_out, output)
        op, grid, block, arguments, flags = wide_launch(cut, product, norm, self.n_multiprocessors - 1)
        self.kernels[op].launch(grid, block, self.stream, *arguments, overlap=True, **flags)
        self.stream.synchronize()
        return cut.n_sums


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with opened(CONFIG) as rig:
        yield rig


@contextmanager
def opened(config: Model) -> Iterator[Rig]:
    with ExitStack() as owned:
        device = Device()
        owned.callback(device.close)
        memory, stream = DeviceMemory(device), Stream()
        owned.callback(memory.close)
        owned.callback(stream.close)
        kernels = Kernels(device.arch, config, device.n_multiprocessors)
        owned.callback(kernels.close)
        yield Rig(config, device, memory, stream, kernels, device.n_multiprocessors)


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
@pytest.mark.parametrize("name", ["qkv", "o", "gate_up", "down", "head"])
def test_a_product(rig: Rig, name: str, rows: int) -> None:
    check_product(rig, name, rows)


@pytest.mark.parametrize("rows", [33, 64])
@pytest.mark.parametrize("rows_of_w", [150, 200])  # that a block has
def test_high_tiles(rig: Rig, rows_of_w: int, rows: int) -> None:
    config = model_config(**{**SIZES, "intermediate": rows_of_w * (rig.n_multiprocessors - 1) // 16 * 8})
    n_in, n_out, output = products(config)["gate_up"]
    assert wide_cut(rows, n_in, n_out, output, rig.n_multiprocessors).tile_rows > TILE_ROWS[0]
    with opened(config) as other:
        check_product(other, "gate_up", rows)


def check_product(rig: Rig, name: str, rows: int) -> None:
    n_in, n_out, output = products(rig.config)[name]
    rng = np.random.default_rng(rows)
    x, w = rounded(rng, rows, n_in), rounded(rng, n_out * (2 if output == "silu" else 1), n_in, scale=0.05)
    start = rng.standard_normal((rows, n_out)).astype(np.float32)
    out = rig.upload(start)
    rig.multiply(name, rows, rig.halves(w), rig.halves(x), out)
    product = x @ w.T
    if output in ("add", "float"):
        assert_near(rig.floats(out, rows, n_out), product + start if output == "add" else product, 1e-5)
    else:
        expected = silu_mul(product, n_out) if output == "silu" else product
        assert_near(rig.bfloats(out, rows, n_out), expected, 4e-3)


@pytest.mark.parametrize("rows", [9, 32, 64])
@pytest.mark.parametrize(("first", "second"), [("o", "gate_up"), ("down", "qkv"), ("down", "head")])
def test_a_norm_between_products(rig: Rig, first: str, second: str, rows: int) -> None:
    (inner, hidden, _), (_, n_out, output) = products(CONFIG)[first], products(CONFIG)[second]
    rng = np.random.default_rng(rows)
    x, w = rounded(rng, rows, inner), rounded(rng, hidden, inner, scale=0.05)
    weight, start = rounded(rng, hidden), rng.standard_normal((rows, hidden)).astype(np.float32)
    v = rounded(rng, n_out * (2 if output == "silu" else 1), hidden, scale=0.05)
    residual, scaled = rig.upload(start), rig.memory.allocate(2 * rows * hidden)
    sums, out = rig.memory.allocate(4 * 64 * hidden), rig.memory.allocate(4 * rows * n_out)
    leaves = WideNorm(weight=rig.halves(weight), scaled=scaled, sums_out=sums)
    n_sums = rig.multiply(first, rows, rig.halves(w), rig.halves(x), residual, leaves)
    rig.multiply(second, rows, rig.halves(v), scaled, out, WideNorm(sums, n_sums, EPS))
    total = start + x @ w.T
    assert_near(rig.floats(residual, rows, hidden), total, 1e-5)
    normed = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + EPS) * weight
    expected = normed @ v.T
    expected = silu_mul(expected, n_out) if output == "silu" else expected
    read = rig.floats if output == "float" else rig.bfloats
    assert_near(read(out, rows, n_out), expected, 8e-3)


def test_the_model_has_a_product_of_every_kind() -> None:
    assert isinstance(CONFIG, Model)
    cuts = [wide_cut(32, n_in, n_out, output, 132) for n_in, n_out, output in products(CONFIG).values()]
    assert {cut.splits > 1 for cut in cuts} == {False, True}
