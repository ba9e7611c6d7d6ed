"""The tiled GEMM on the GPU, as the engine launches it, against numpy's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from launching import launch
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Role
from gpu_backend.ops.tiled_cut import FEWEST_COLUMNS, TILED_BOX, TILED_COLUMNS, TiledParams, tiled_cut
from gpu_backend.ops.tiled_gemm import tiled_launch

ADD, SILU = Epilogue.ADD, Epilogue.GATED
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
        values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return np.where(np.abs(values) < 2.0**-14, np.float32(0), values)  # float16 has fewer bits of these


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    device = Device()
    memory, stream = DeviceMemory(device), Stream()
    element = compute_element(request.param)
    names = [f"tiled_gemm_kernel<{element.cpp}, blink::{output.value}>" for output in (ADD, SILU)]
    kernels = Kernels(device.arch, names, element)
    yield Rig(memory, stream, kernels, request.param, device.n_multiprocessors)
    kernels.close()
    stream.close()
    memory.close()
    device.close()


def multiply(
    rig: Rig, x: Floats, w: Floats, start: Floats, output: Epilogue, cut: TiledParams | None = None
) -> Floats:
    """[rows + 1][n_out]: what `start` has become by a product of `rows` rows."""
    rows, (n_out, n_in) = len(x), (start.shape[1], x.shape[1])
    out = rig.upload(start) if output is ADD else rig.halves(start)
    element, adds = compute_element(rig.dtype), output is ADD
    op = MatMul(
        Role.DOWN if adds else Role.GATE_UP,
        Matrix(len(w), n_in, element, rig.halves(w)),
        Buffer("x", rows, n_in, element),
        Buffer("out", rows, n_out, Element.FP32 if adds else element),
        output,
    )
    cut = cut or tiled_cut(rows, n_in, n_out, output, rig.n_multiprocessors)
    work = tiled_launch(op, cut, Target(rig.n_multiprocessors))
    launch(rig.kernels, rig.stream, [work], {"x": rig.halves(x), "out": out})
    return rig.read(out, start.shape, output is ADD)


def inputs(rig: Rig, rows: int, n_in: int, n_out: int, output: Epilogue) -> tuple[Floats, Floats, Floats]:
    """x, w and y, which has one row more."""
    rng = np.random.default_rng(rows)
    w = rig.rounded(rng, n_out * (2 if output is SILU else 1), n_in, scale=n_in**-0.5)
    return rig.rounded(rng, rows, n_in), w, rig.rounded(rng, rows + 1, n_out)


def check(rig: Rig, x: Floats, w: Floats, start: Floats, output: Epilogue, got: Floats) -> None:
    """And what lies behind the product stays as it was."""
    expected, n_out = x @ w.T, start.shape[1]
    if output is SILU:
        gate, up = expected[:, :n_out], expected[:, n_out:]
        expected = gate / (1 + np.exp(-gate)) * up
    else:
        expected = expected + start[:-1]
    tolerance = 1e-5 if output is ADD else TOLERANCE[rig.dtype]
    assert np.linalg.norm(got[:-1] - expected) <= tolerance * np.linalg.norm(expected)
    assert (got[-1] == start[-1]).all()


@pytest.mark.parametrize("output", [ADD, SILU])
@pytest.mark.parametrize(
    ("rows", "n_in", "n_out"), [(1, 64, 8), (100, 200, 712), (513, 1000, 408), (1088, 512, 3000)]
)
def test_a_product(rig: Rig, rows: int, n_in: int, n_out: int, output: Epilogue) -> None:
    x, w, start = inputs(rig, rows, n_in, n_out, output)
    check(rig, x, w, start, output, multiply(rig, x, w, start, output))


@pytest.mark.parametrize("output", [ADD, SILU])
@pytest.mark.parametrize("columns", range(FEWEST_COLUMNS, TILED_COLUMNS + 1, TILED_BOX))
def test_tiles_of_every_size_in_two_bands(rig: Rig, columns: int, output: Epilogue) -> None:
    """More tiles than are multiplied at once, in bands of two along x, the last of them not full."""
    rows, n_in, n_out = 3 * columns - 40, 320, 6000
    x, w, start = inputs(rig, rows, n_in, n_out, output)
    cut = tiled_cut(rows, n_in, n_out, output, rig.n_multiprocessors)
    cut = replace(cut, columns=columns, x_tiles=3, band=2)
    check(rig, x, w, start, output, multiply(rig, x, w, start, output, cut))


@pytest.mark.parametrize("output", [ADD, SILU])
def test_a_row_is_its_own(rig: Rig, output: Epilogue) -> None:
    """E20, to the last bit: whatever the rows beside it hold, which may be padding."""
    x, w, start = inputs(rig, 600, 512, 1024, output)
    before = multiply(rig, x, w, start, output)
    x[1::2] = rig.rounded(np.random.default_rng(1), 300, 512, scale=30)
    assert (multiply(rig, x, w, start, output)[:600:2] == before[:600:2]).all()
