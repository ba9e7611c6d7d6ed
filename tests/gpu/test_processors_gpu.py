"""Logits processors on the GPU: linked into the sampler, against Numba's code for the CPU, bit by bit; and
served, one of them without an end.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from launching import launch
from limits import PROGRAM_S, WAIT_S
from ring_files import remove_ring
from serving import DEMO, ROOT, serving, wait_for_ring
from test_ops_gpu import LANES, SamplerRig, device, references

from blink.example_processors import no_repeat, no_repeated_pair, watermark
from gpu_backend.abi import LOGPROB_WORDS
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.reference import HostMemory
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Sample
from gpu_backend.processors.loaded import symbol
from gpu_backend.processors.marks import is_marked
from gpu_backend.processors.numba_code import HostCode, device_code
from ringbuffer.abi import Reason
from ringbuffer.client import RingClient
from ringbuffer.extents import Controls, controls
from ringbuffer.region import ring_path

__all__ = ["device", "references"]  # fixtures
FUNCTIONS = (no_repeat, no_repeated_pair, watermark)
FILE = Path(__file__).parents[1] / "e2e" / "processors_for_tests.py"


def sample(device: Device, batch_slots: int, vocab: int) -> tuple[Work, ...]:
    """What samples so many batch slots."""
    logits, processed = (Buffer(name, batch_slots, vocab, Element.FP32) for name in ("logits", "processed"))
    return choose(Sample(logits, processed), Target(device.n_multiprocessors)).launches


@pytest.fixture(scope="module")
def kernels(device: Device) -> Iterator[Kernels]:
    codes = [device_code(one, symbol(i), device.capability) for i, one in enumerate(FUNCTIONS)]
    names = {work.kernel for work in sample(device, 1, 1)}  # type: ignore[union-attr]
    kernels = Kernels(device.arch, names, Element.BF16, processors=codes)
    yield kernels
    kernels.close()


def random_controls(rng: np.random.Generator, vocab: int) -> Controls:
    """None, one or several processors, and sometimes a mask."""
    asked = rng.permutation(len(FUNCTIONS))[: rng.integers(0, 4)]
    processors = [(int(i), rng.uniform(0, 4, rng.integers(0, 3)).tolist()) for i in asked]
    allowed = rng.permutation(vocab)[: vocab // 2] if rng.integers(2) else None
    return controls(vocab, allowed, {5: 1.5}, [[4]], processors)


@pytest.mark.parametrize("vocab", [64, 1000, 128256])
@pytest.mark.parametrize("rows", [1, 3, LANES])
@pytest.mark.parametrize("spread", [0.0, 2.0, 30.0])
def test_the_gpu_draws_what_the_cpu_draws(
    references: ctypes.CDLL, device: Device, kernels: Kernels, vocab: int, rows: int, spread: float
) -> None:
    """Tokens and log-probabilities, of rows that ask for processors beside rows that do not."""
    host, gpu = SamplerRig(HostMemory(), vocab), SamplerRig(DeviceMemory(device), vocab)
    codes = [HostCode(one) for one in FUNCTIONS]
    addresses = np.array([code.address for code in codes], np.uint64)
    host.driver.tables["processors"], host.driver.tables["n_processors"] = addresses.ctypes.data, len(codes)
    gpu.driver.tables["n_processors"] = len(codes)
    for rig in (host, gpu):
        rig.driver.tables["recent_processors"] = sum(is_marked(one) << i for i, one in enumerate(FUNCTIONS))
    processed = gpu.memory.allocate(4 * LANES * vocab)
    rng = np.random.default_rng(vocab + rows)
    for row in range(LANES):
        tokens, held = rng.integers(0, vocab, rng.integers(13, 90)).tolist(), random_controls(rng, vocab)
        params = {
            "temperature": float(rng.choice([0, 0.7])), "seed": int(rng.integers(0, 2**63)),
            "top_k": int(rng.choice([0, 20])), "repetition_penalty": float(rng.choice([1, 1.3])),
            "prompt_tokens": 12, "logprob_words": int(rng.choice([0, 1, 6])), "flags": held.flags,
            "n_biases": held.n_biases, "ban_words": held.ban_words, "n_processors": held.n_processors,
        }  # fmt: skip
        for rig in (host, gpu):
            rig.driver.start(row, tokens, **params)
            at = int(rig.driver.tables["controls"]) + 4 * row * int(rig.driver.tables["control_words"])
            rig.memory.write(at, held.words.tobytes())
    stream, words = Stream(), []

    def clear(rig: SamplerRig, index: int) -> int:
        address = int(rig.driver.sets[index]["out_logprobs"])
        rig.memory.write(address, bytes(8 * LOGPROB_WORDS * rows))
        return address

    def run_host(_: int, index: int) -> None:
        address = clear(host, index)
        tables = ctypes.create_string_buffer(host.driver.tables.tobytes())
        step_set = ctypes.create_string_buffer(host.sets[index])
        references.blink_reference_sample(step_set, tables, ctypes.c_void_p(host.logits))
        completed = int(host.driver.tables["completed"])
        host.memory.write(completed, host.driver.step_id.to_bytes(8, "little"))
        words.append(host.memory.read(address, 8 * LOGPROB_WORDS * rows))

    def run_gpu(shape: int, index: int) -> None:
        address = clear(gpu, index)
        batch_slots = gpu.driver.grid.shapes[shape].batch_slots
        buffers = {"logits": gpu.logits, "processed": processed}
        by_value = (gpu.sets[index], gpu.driver.tables.tobytes())
        launch(kernels, stream, sample(device, batch_slots, vocab), buffers, *by_value)
        words.append(gpu.memory.read(address, 8 * LOGPROB_WORDS * rows))

    logits = rng.normal(0, spread, (LANES, vocab)).astype(np.float32)
    expected = host.draw(logits, list(range(rows)), run_host)
    assert gpu.draw(logits, list(range(rows)), run_gpu) == expected
    assert words[1] == words[0]
    stream.close()
    gpu.memory.close()


def test_a_served_ban_bans() -> None:
    name = f"processors-gpu-{os.getpid()}"
    with serving(name, "--logits-processor=blink.example_processors:no_repeat") as (_, region):
        vocab = int(region.header["vocab_size"][0])
        with closing(RingClient(region)) as client:
            asked = controls(vocab, processors=[(0, [])])
            stream = client.submit([5, 6, 7], 60, controls=asked, flags=1)
            client.wait([stream], WAIT_S)
    tokens = [5, 6, 7, *stream.tokens]
    assert len(stream.tokens) == 60
    assert all(tokens[at] not in tokens[max(0, at - 32) : at] for at in range(3, len(tokens)))


def test_a_processor_that_does_not_end_is_named_and_the_process_ends() -> None:
    """Its kernel runs on until the driver takes the process's context down."""
    name = f"processor-hangs-gpu-{os.getpid()}"
    command = [sys.executable, "-m", "blink", "backend", str(DEMO), f"--ring={name}", "--device=gpu"]
    command.append(f"--logits-processor={FILE}:loop")
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        with closing(wait_for_ring(process, name)) as region, closing(RingClient(region)) as client:  # type: ignore[arg-type]
            asked = controls(int(region.header["vocab_size"][0]), processors=[(0, [77])])
            stream = client.submit([5, 6, 7], 4, controls=asked)
            client.wait([stream], WAIT_S)
        said = process.communicate(timeout=PROGRAM_S)[1]
    finally:
        process.kill()
        remove_ring(ring_path(name))
    assert stream.reason == Reason.ENGINE_FAULT
    assert process.returncode == 1
    assert "the logits processor 'loop' does not end" in said
