"""The GEMM library's algorithms on the GPU: each makes the gemm, and a start keeps what it has chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_config import model_config
from native_rig import NativeRig, make_limits
from numpy.typing import NDArray

from gpu_backend.cuda.cublas import R_16BF, WORKSPACE_BYTES, Algorithm, Cublas
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.gemm import Gemm
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native import engine, gemm_choice
from gpu_backend.engines.native.gemm_clock import GemmClock
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.weights import RandomWeights, half_bits

MULTIPROCESSORS = 131
BIG = {"hidden": 1024, "intermediate": 2048}  # matrices that are worth measuring
Floats = NDArray[np.float32]


@dataclass
class Rig:
    device: Device
    memory: DeviceMemory
    stream: Stream
    workspace: int
    cublas: Cublas

    def upload(self, values: Floats, half: bool) -> int:
        data = (half_bits(values, "float32", "bfloat16") if half else values).tobytes()
        address = self.memory.allocate(len(data))
        self.memory.write(address, memoryview(data))
        return address

    def run(self, gemm: Gemm, algorithm: Algorithm | None) -> bytes:
        """Out, of a gemm in a graph that the device could launch."""
        graph = Graph()
        with graph.capture(self.stream):
            self.cublas.linear(gemm, R_16BF, algorithm)
        graph.instantiate(self.stream)
        graph.launch(self.stream)
        self.stream.synchronize()
        graph.close()
        size = 2 if gemm.output == "half" else 4
        return self.memory.read(gemm.out, size * gemm.rows * gemm.n_out)


@pytest.fixture
def rig() -> Iterator[Rig]:
    device = Device()
    memory, stream = DeviceMemory(device), Stream()
    workspace = memory.allocate(WORKSPACE_BYTES)
    cublas = Cublas(stream, workspace, MULTIPROCESSORS)
    yield Rig(device, memory, stream, workspace, cublas)
    cublas.close()
    stream.close()
    memory.close()
    device.close()


def halves(rng: np.random.Generator, *shape: int) -> Floats:
    values = rng.standard_normal(shape).astype(np.float32)
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize("output", ["half", "float", "add"])
@pytest.mark.parametrize("rows", [40, 192, 576])
def test_every_algorithm_makes_the_product(rig: Rig, rows: int, output: str) -> None:
    """And the same bits each time."""
    rng = np.random.default_rng(rows)
    n_in, n_out = 2048, 1536
    x, w, start = halves(rng, rows, n_in), halves(rng, n_out, n_in), halves(rng, rows, n_out)
    expected = x @ w.T + (start if output == "add" else 0)
    weight, inputs = rig.upload(w, half=True), rig.upload(x, half=True)

    def run(algorithm: Algorithm | None) -> bytes:
        out = rig.upload(start, half=output == "half")
        return rig.run(Gemm(weight, inputs, out, rows, n_in, n_out, output), algorithm)

    sizes = Gemm(weight, inputs, inputs, rows, n_in, n_out, output)
    algorithms = rig.cublas.algorithms(sizes, R_16BF, 8)
    assert algorithms
    for algorithm in (None, *algorithms):
        assert algorithm is None or rig.cublas.accepts(sizes, R_16BF, algorithm)
        data = run(algorithm)
        if output == "half":
            got = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            got = np.frombuffer(data, np.float32)
        error = np.linalg.norm(got.reshape(expected.shape) - expected) / np.linalg.norm(expected)
        assert error <= (4e-3 if output == "half" else 1e-5)
        assert run(algorithm) == data


def test_what_is_no_algorithm_is_not_accepted(rig: Rig) -> None:
    gemm = Gemm(rig.workspace, rig.workspace, rig.workspace, 64, 2048, 2048)
    for algorithm in (b"", b"\xff" * 64):
        assert not rig.cublas.accepts(gemm, R_16BF, algorithm)


def test_a_clock_leaves_weights_as_they_are(rig: Rig) -> None:
    kernels = Kernels(rig.device.arch, [], Element.BF16)
    clock = GemmClock(rig.device, kernels, rig.workspace, MULTIPROCESSORS)
    w = halves(np.random.default_rng(0), 2048, 2048)
    weights = [rig.upload(w, half=True) for _ in range(3)]
    gemm = Gemm(weights[0], 0, 0, 192, 2048, 2048, "add")
    algorithm = clock.fastest(gemm, R_16BF, weights)
    assert algorithm is None or rig.cublas.accepts(gemm, R_16BF, algorithm)
    bits = half_bits(w, "float32", "bfloat16").tobytes()
    assert all(rig.memory.read(address, len(bits)) == bits for address in weights)
    clock.close()
    kernels.close()


def first_algorithm(clock: Any, gemm: Gemm, half: int, weights: list[int]) -> Algorithm | None:
    """Whatever a clock would say: that of GemmClock.fastest is often the library's own choice."""
    return next(iter(clock._cublas.algorithms(gemm, half, 1)), None)


def test_a_later_start_measures_nothing_and_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_choice, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(GemmClock, "fastest", first_algorithm)
    lengths = [40, 41, 42, 43]

    def logits() -> list[Any]:
        device = Device()
        rig = NativeRig(device, model_config(**BIG), RandomWeights(1), make_limits())
        for row, length in enumerate(lengths):
            rig.driver.start(row, range(5, 5 + length))
        rig.prefill([(row, 0, length) for row, length in enumerate(lengths)])
        seen = [batch_slot.tobytes() for _, _, batch_slot, _ in rig.seen]
        rig.close()
        device.close()
        return seen

    first = logits()
    (path,) = tmp_path.iterdir()
    assert any(gemm_choice.read_choices(path).values())

    def no_clock(*arguments: Any) -> GemmClock:
        raise AssertionError("measured again")

    monkeypatch.setattr(engine, "GemmClock", no_clock)
    assert logits() == first
