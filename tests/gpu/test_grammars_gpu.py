"""Grammars on the GPU: the sampler is its CPU reference's equal, and what is served is what was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from constrained import ConstrainedStep, make_step, random_logits
from grammar_serving import DIGITS, LANGUAGES, LETTERS, ask, served
from launching import kernels_of, launch
from regular import Node, star, then, times

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Sample
from gpu_backend.schedulers.base import SchedulerKind
from ringbuffer.abi import Reason
from ringbuffer.grammar_abi import GrammarState

DEMO_PAGE_BYTES = 2 * 2 * 6 * 2 * 64 * 16  # of halves


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


def sample(device: Device, batch_slots: int, vocab: int) -> tuple[Work, ...]:
    target = Target(device.n_multiprocessors)
    return choose(Sample(Buffer("logits", batch_slots, vocab, Element.FP32)), target).launches


@pytest.fixture(scope="module")
def kernels(device: Device) -> Iterator[Kernels]:
    kernels = kernels_of(device, sample(device, 1, 1), Element.BF16)
    yield kernels
    kernels.close()


class DeviceStep:
    """A step's arrays in GPU memory."""

    def __init__(self, memory: DeviceMemory, step: ConstrainedStep) -> None:
        self.memory = memory
        self.tables, self.step_set = step.tables.copy(), step.step_set.copy()
        names = ("history", "block_table", "params", "completed", "grammars", "grammar_at", "grammar_states")
        for name in names:
            self.tables[name] = self.put(getattr(step, name))
        for name, array in step.vocabulary_arrays.items():
            self.tables["vocabulary"][name] = self.put(array)
        for name in abi.StepSet.names or ():
            self.step_set[name] = self.put(getattr(step, name))

    def put(self, array: np.ndarray) -> int:
        address = self.memory.allocate(max(1, array.nbytes))
        self.memory.write(address, array.tobytes())
        return address

    def read(self, address: int, dtype: object, n: int) -> np.ndarray:
        return np.frombuffer(self.memory.read(address, n * np.dtype(dtype).itemsize), dtype)


@pytest.mark.parametrize(
    ("vocab", "seed", "copies"),
    [
        *(
            (vocab, seed, copies)
            for vocab in (40, 700, 9000)
            for seed in range(3)
            for copies in (1, 3, 6, 14)
        ),
        (151_936, 0, 1),
        (151_936, 1, 6),
        (262_208, 2, 1),
    ],
)
def test_the_device_samples_what_the_reference_samples(
    device: Device, kernels: Kernels, vocab: int, seed: int, copies: int
) -> None:
    """With 8 to 1 blocks a row, on whatever has to be walked through."""
    step, rows, _ = make_step(vocab, seed, copies)
    logits = random_logits(len(rows), vocab, seed)
    memory, stream = DeviceMemory(device), Stream()
    there = DeviceStep(memory, step)
    launch(
        kernels, stream, sample(device, len(rows), vocab), {"logits": there.put(logits)},
        there.step_set.tobytes(), there.tables.tobytes(),
    )  # fmt: skip
    tokens = there.read(int(there.step_set["out_token"]), np.uint32, len(rows))
    states = there.read(
        int(there.tables["grammar_states"]), GrammarState, abi.GRAMMAR_STATES * len(rows)
    ).reshape(-1, abi.GRAMMAR_STATES)
    stream.close()
    memory.close()

    step.call("sample", logits)
    np.testing.assert_array_equal(tokens, step.out_token)
    for name in ("state", "depth"):
        np.testing.assert_array_equal(states[name], step.grammar_states[name])


@pytest.mark.parametrize("kind", [SchedulerKind.GPU, SchedulerKind.BLOCKING, SchedulerKind.ASYNC])
def test_answers_are_in_their_languages(kind: SchedulerKind) -> None:
    with served(kind, "gpu", max_batch=16) as (_, client):
        mixed: list[Node | None] = [*LANGUAGES.values(), None]
        asked = ask(client, mixed * 10)
        for one in asked:
            one.check()
        assert sum(one.stream.reason == Reason.EOS for one in asked) > 20


def test_paused_answers_go_on_in_their_grammars() -> None:
    nodes: list[Node | None] = [then(times(DIGITS, 60, 60 + i), star(LETTERS)) for i in range(12)]
    changes = {"kv_memory": 20 * DEMO_PAGE_BYTES, "grammar_memory": 8 * 4096}
    with served(SchedulerKind.GPU, "gpu", max_batch=8, **changes) as (backend, client):
        asked = ask(client, nodes, 90)
        assert backend.ring.stats()["preempted"] > 0
    for one in asked:
        one.check()
