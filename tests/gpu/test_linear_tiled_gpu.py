"""The tiled product on the GPU, as the engine launches it, against numpy's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.kernels import Kernels
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.product import Product
from gpu_backend.cuda.tiled_launch import tiled_launch
from gpu_backend.engine.native_weights import half_bits

Floats = NDArray[np.float32]
TOLERANCE = {"bfloat16": 4e-3, "float16": 5e-4}  # of rounding a result


@dataclass
class Rig:
    memory: DeviceMemory
    stream: Stream
    kernels: Kernels
    dtype: str
    n_multiprocessors: int

    def upload(self, values: NDArray[np.generic]) -> int:
        address = self.memory.allocate(values.nbytes)
        self.memory.write(address, memoryview(np.ascontiguousarray(values).tobytes()))
        return address

    def halves(self, values: Floats) -> int:
        return self.upload(half_bits(values, "float32", self.dtype))

    def read(self, address: int, shape: tuple[int, int], fp32: bool) -> Floats:
        data = self.memory.read(address, (4 if fp32 else 2) * shape[0] * shape[1])
        if fp32:
            return np.frombuffer(data, np.float32).reshape(shape)
        if self.dtype == "float16":
            return np.frombuffer(data, np.float16).astype(np.float32).reshape(shape)
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)

    def rounded(self, rng: np.random.Generator, *shape: int, scale: float = 1) -> Floats:
        """Random values that both types hold."""
        values = scale * rng.standard_normal(shape).astype(np.float32)
        return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    device = Device()
    memory, stream = DeviceMemory(device), Stream()
    kernels = Kernels(device.arch, model_config(dtype=request.param), device.n_multiprocessors)
    yield Rig(memory, stream, kernels, request.param, device.n_multiprocessors)
    kernels.close()
    stream.close()
    memory.close()
    device.close()


@pytest.mark.parametrize("output", ["add", "silu"])
@pytest.mark.parametrize(
    ("rows", "n_in", "n_out"), [(1, 64, 8), (100, 200, 712), (513, 1000, 408), (1088, 512, 3000)]
)
def test_a_product(rig: Rig, rows: int, n_in: int, n_out: int, output: str) -> None:
    """And what lies behind it stays as it was."""
    rng = np.random.default_rng(rows)
    x = rig.rounded(rng, rows, n_in)
    w = rig.rounded(rng, n_out * (2 if output == "silu" else 1), n_in, scale=n_in**-0.5)
    start = rig.rounded(rng, rows + 1, n_out)
    out = rig.upload(start) if output == "add" else rig.halves(start)
    behind = rig.read(out, (rows + 1, n_out), output == "add")[rows]
    product = Product(rig.halves(w), rig.halves(x), out, rows, n_in, n_out, output)
    op, grid, block, arguments, flags = tiled_launch(product, rig.n_multiprocessors)
    rig.kernels[op].launch(grid, block, rig.stream, *arguments, overlap=True, **flags)
    rig.stream.synchronize()
    expected = x @ w.T
    if output == "silu":
        gate, up = expected[:, :n_out], expected[:, n_out:]
        expected = gate / (1 + np.exp(-gate)) * up
    if output == "add":
        expected = expected + start[:rows]
    got = rig.read(out, (rows + 1, n_out), output == "add")
    tolerance = 1e-5 if output == "add" else TOLERANCE[rig.dtype]
    assert np.linalg.norm(got[:rows] - expected) <= tolerance * np.linalg.norm(expected)
    assert (got[rows] == behind).all()
