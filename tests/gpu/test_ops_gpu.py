"""The device sampler draws what its CPU reference draws, token for token, from the same logits."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_driver import EngineDriver
from launching import kernels_of, launch

from gpu_backend.abi import NO_TOKEN, STEP_SETS
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.base import Limits
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.reference import HostMemory
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Sample

LANES = 24
EOS = (2, 7)
LIMITS = Limits(
    max_batch=LANES, max_context=64, max_prefill_tokens=64, max_prefill_slots=4, page_size=16, total_pages=128
)


@pytest.fixture(scope="module")
def references(build_program: Callable[..., Path]) -> ctypes.CDLL:
    return ctypes.CDLL(
        str(
            build_program("references.so", ["kernels/reference/reference_ops.cpp"], "-O2", "-shared", "-fPIC")
        )
    )


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


def sample(device: Device, batch_slots: int, vocab: int) -> tuple[Work, ...]:
    """What samples so many batch slots."""
    return choose(
        Sample(Buffer("logits", batch_slots, vocab, Element.FP32)), Target(device.n_multiprocessors)
    ).launches


@pytest.fixture(scope="module")
def kernels(device: Device) -> Iterator[Kernels]:
    kernels = kernels_of(device, sample(device, 1, 1), Element.BF16)
    yield kernels
    kernels.close()


def random_rows(
    rng: np.random.Generator, vocab: int, drivers: list[EngineDriver], params: dict[str, Any]
) -> None:
    """The same rows in every driver: a prompt and some answer, each with its own seed."""
    for row in range(LANES):
        prompt = rng.integers(0, vocab, rng.integers(1, 40)).tolist()
        answer = rng.integers(0, vocab, rng.integers(0, 20)).tolist()
        seed = int(rng.integers(0, 2**63))
        for driver in drivers:
            driver.start(row, prompt + answer, **{**params, "seed": seed, "prompt_tokens": len(prompt)})


class SamplerRig:
    """One decode step of every row, whose `run` samples from given logits on one side."""

    def __init__(self, memory: Any, vocab: int) -> None:
        self.memory = memory
        self.driver = EngineDriver(memory, LIMITS, vocab, EOS)
        self.logits = memory.allocate(4 * LANES * vocab)
        self.sets = [self.driver.sets[i].tobytes() for i in range(STEP_SETS)]

    def draw(self, logits: np.ndarray, rows: list[int], run: Any) -> list[int | None]:
        self.memory.write(self.logits, logits.astype("<f4").tobytes())
        self.driver.run = run
        return self.driver.decode(rows)


def compare(
    references: ctypes.CDLL,
    device: Device,
    kernels: Kernels,
    vocab: int,
    params: dict[str, Any],
    spread: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    host, gpu = SamplerRig(HostMemory(), vocab), SamplerRig(DeviceMemory(device), vocab)
    random_rows(rng, vocab, [host.driver, gpu.driver], params)
    stream = Stream()

    def run_host(_: int, index: int) -> None:
        tables = ctypes.create_string_buffer(host.driver.tables.tobytes())
        step_set = ctypes.create_string_buffer(host.sets[index])
        references.blink_reference_sample(step_set, tables, ctypes.c_void_p(host.logits))
        completed = int(host.driver.tables["completed"])
        host.memory.write(completed, host.driver.step_id.to_bytes(8, "little"))

    def run_gpu(shape: int, index: int) -> None:
        batch_slots = gpu.driver.grid.shapes[shape].batch_slots
        by_value = (gpu.sets[index], gpu.driver.tables.tobytes())
        launch(kernels, stream, sample(device, batch_slots, vocab), {"logits": gpu.logits}, *by_value)

    for rows in (list(range(LANES)), [5], [20, 3, 11]):
        logits = rng.normal(0, spread, (LANES, vocab)).astype(np.float32)
        logits[:, rng.integers(0, vocab, vocab // 50 + 1)] = -np.inf
        expected = host.draw(logits, rows, run_host)
        assert gpu.draw(logits, rows, run_gpu) == expected
        for row in rows:
            assert gpu.driver.history(row) == host.driver.history(row)
    stream.close()
    gpu.memory.close()


PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "plain": {"temperature": 1.0},
    "hot": {"temperature": 2.5},
    "cold": {"temperature": 0.05},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_k_1": {"temperature": 1.0, "top_k": 1},
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "top_p_tiny": {"temperature": 1.0, "top_p": 1e-6},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "all_filters": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    "penalties": {
        "temperature": 0.9,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
    },
    "min_tokens": {"temperature": 0.7, "min_tokens": 10, "stop_ids": [3, 9, 11]},
}


@pytest.mark.parametrize("vocab", [37, 1000, 128256, 262208])
@pytest.mark.parametrize("name", list(PARAMS))
def test_the_device_draws_what_the_reference_draws(
    references: ctypes.CDLL, device: Device, kernels: Kernels, vocab: int, name: str
) -> None:
    compare(references, device, kernels, vocab, PARAMS[name], spread=2.0, seed=vocab)


def draw_of_all(device: Device, kernels: Kernels, logits: np.ndarray, **params: Any) -> list[int | None]:
    """What LANES rows draw from [LANES][vocab] logits."""
    vocab = logits.shape[1]
    rig, stream = SamplerRig(DeviceMemory(device), vocab), Stream()
    for row in range(LANES):
        rig.driver.start(row, [1], **params)

    def run(shape: int, index: int) -> None:
        by_value = (rig.sets[index], rig.driver.tables.tobytes())
        batch_slots = rig.driver.grid.shapes[shape].batch_slots
        launch(kernels, stream, sample(device, batch_slots, vocab), {"logits": rig.logits}, *by_value)

    tokens = rig.draw(logits, list(range(LANES)), run)
    stream.close()
    rig.memory.close()
    return tokens


def test_greedy_ties_go_to_the_lowest_id(device: Device, kernels: Kernels) -> None:
    vocab = 5000
    logits = np.zeros((LANES, vocab), np.float32)
    for lane in range(LANES):
        logits[lane, [vocab - 1 - lane, 100 + 7 * lane, 2000]] = 3.0
    assert draw_of_all(device, kernels, logits) == [100 + 7 * lane for lane in range(LANES)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_without_a_candidate_have_no_token(
    device: Device, kernels: Kernels, temperature: float
) -> None:
    """E4: all NaN, or NaN and minus infinity; a NaN beside numbers never wins."""
    logits = np.full((LANES, 5000), -np.inf, np.float32)
    logits[0] = logits[1, ::3] = np.nan
    logits[2:] = np.nan
    logits[2:, 4321] = -7.0
    expected = [NO_TOKEN, NO_TOKEN] + [4321] * (LANES - 2)
    assert draw_of_all(device, kernels, logits, temperature=temperature) == expected
