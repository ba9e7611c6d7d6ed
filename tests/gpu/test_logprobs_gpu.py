"""Log-probabilities and changes of logits on the GPU: the sampler's words against its CPU reference, bit by
bit, and the whole way under every scheduler.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from launching import launch
from logprob_cases import CASES, SCHEDULERS, Case
from serving import serving
from test_ops_gpu import LANES, SamplerRig, device, kernels, references, sample

from gpu_backend.abi import LOGPROB_WORDS, Emit
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.reference import HostMemory
from ringbuffer.client import RingClient
from ringbuffer.extents import Controls, controls
from ringbuffer.region import Region

__all__ = ["device", "kernels", "references"]  # fixtures
AGREE = 0.25  # of bf16 in steps of other shapes


def random_controls(rng: np.random.Generator, vocab: int) -> Controls:
    allowed = rng.permutation(vocab)[: vocab // 2] if rng.integers(2) else None
    biased = rng.permutation(vocab)[:30].tolist()
    biases = dict(zip(biased, rng.normal(0, 3, len(biased)).tolist(), strict=True))
    return controls(vocab, allowed, biases, [[int(rng.integers(vocab))], [1, 2], [3, 4, 5]])


def start_rows(rigs: list[SamplerRig], vocab: int, seed: int) -> None:
    """The same rows in every rig: half of them with controls, each with other numbers of likeliest tokens."""
    rng = np.random.default_rng(seed)
    for row in range(LANES):
        tokens = rng.integers(0, vocab, 30).tolist()
        held = random_controls(rng, vocab) if row % 2 else controls(vocab)
        params = {
            "temperature": float(rng.choice([0, 0.7, 1.5])), "seed": int(rng.integers(0, 2**63)),
            "repetition_penalty": float(rng.choice([1, 1.3])), "prompt_tokens": 12,
            "presence_penalty": float(rng.choice([0, 0.5])),
            "frequency_penalty": float(rng.choice([0, 0.25])),
            "logprob_words": int(rng.choice([0, 1, 6, LOGPROB_WORDS])), "prompt_logprob_words": LOGPROB_WORDS,
            "n_biases": held.n_biases, "ban_words": held.ban_words, "flags": held.flags,
        }  # fmt: skip
        for rig in rigs:
            rig.driver.start(row, tokens, **params)
            at = int(rig.driver.tables["controls"]) + 4 * row * int(rig.driver.tables["control_words"])
            rig.memory.write(at, held.words.tobytes())


@pytest.mark.parametrize("vocab", [64, 1000, 128256, 262208])
@pytest.mark.parametrize("rows", [1, 3, LANES])
@pytest.mark.parametrize("spread", [0.0, 2.0, 30.0])
def test_the_device_tells_what_the_reference_tells(
    references: ctypes.CDLL, device: Device, kernels: Kernels, vocab: int, rows: int, spread: float
) -> None:
    """Rows that sample, and rows of prompts, in one step."""
    rigs = [SamplerRig(HostMemory(), vocab), SamplerRig(DeviceMemory(device), vocab)]
    host, gpu = rigs
    start_rows(rigs, vocab, seed=vocab + rows)
    stream, words = Stream(), []

    def score(rig: SamplerRig, index: int) -> None:
        """Every third row is a prompt's."""
        emits = [Emit.LOGPROBS if row % 3 == 2 else Emit.TOKEN for row in range(rows)]
        address = int(rig.driver.sets[index]["batch_emit"])
        rig.memory.write(address, np.array(emits, "<u4").tobytes())
        rig.memory.write(int(rig.driver.sets[index]["out_logprobs"]), bytes(8 * LOGPROB_WORDS * rows))

    def run_host(_: int, index: int) -> None:
        score(host, index)
        tables = ctypes.create_string_buffer(host.driver.tables.tobytes())
        step_set = ctypes.create_string_buffer(host.sets[index])
        references.blink_reference_sample(step_set, tables, ctypes.c_void_p(host.logits))
        completed = int(host.driver.tables["completed"])
        host.memory.write(completed, host.driver.step_id.to_bytes(8, "little"))
        words.append(host.memory.read(int(host.driver.sets[index]["out_logprobs"]), 8 * LOGPROB_WORDS * rows))

    def run_gpu(shape: int, index: int) -> None:
        score(gpu, index)
        batch_slots = gpu.driver.grid.shapes[shape].batch_slots
        by_value = (gpu.sets[index], gpu.driver.tables.tobytes())
        launch(kernels, stream, sample(device, batch_slots, vocab), {"logits": gpu.logits}, *by_value)
        words.append(gpu.memory.read(int(gpu.driver.sets[index]["out_logprobs"]), 8 * LOGPROB_WORDS * rows))

    logits = np.random.default_rng(1).normal(0, spread, (LANES, vocab)).astype(np.float32)
    logits[:, :: max(2, vocab // 50)] = -np.inf
    expected = host.draw(logits, list(range(rows)), run_host)
    found = gpu.draw(logits, list(range(rows)), run_gpu)
    told = [np.frombuffer(each, "<u8").reshape(rows, LOGPROB_WORDS) for each in words]
    np.testing.assert_array_equal(told[1], told[0])
    assert [found[row] for row in range(rows) if row % 3 != 2] == [
        expected[row] for row in range(rows) if row % 3 != 2
    ]
    stream.close()
    gpu.memory.close()


@pytest.fixture(scope="module", params=SCHEDULERS)
def region(request: pytest.FixtureRequest) -> Iterator[Region]:
    name = f"logprobs-gpu-{os.getpid()}-{request.param}"
    with serving(name, f"--scheduler={request.param}") as (_, found):
        yield found


@pytest.mark.parametrize("check", CASES)
def test_what_is_told(region: Region, check: Callable[[Case], None]) -> None:
    client = RingClient(region)
    check(Case(region, client, AGREE))
    client.close()
