"""Runs the same requests under one scheduler after the other, over one loaded engine and one ring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blink.flags import count
from gpu_backend.backend import Backend
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.schedulers.host_driven import HostDrivenScheduler
from ringbuffer.abi import RequestFlags
from ringbuffer.client import RingClient, Stream
from ringbuffer.region import Region

TIMEOUT_S = 300.0
SETTLE_S = 0.05  # until the zombies of the last step are through and the counters are published
SEED = 20
# Sampling is exact for equal logits only: rows that ride along once more change the shape of a step, and so
# the last bits of the others' logits. A request whose tokens then differ never samples its stop token. It may
# have one token more than it should: with none its end would be foreseen, and more would look like a slow
# scheduler.
STRAY_TOKENS = 1


@dataclass(frozen=True)
class Design:
    """A scheduler, and for how long its host keeps busy before each step besides: "blocking+1500", in us."""

    kind: SchedulerKind
    host_work_us: int = 0

    def __str__(self) -> str:
        return f"{self.kind}+{self.host_work_us}" if self.host_work_us else str(self.kind)


def parse_design(text: str) -> Design:
    """Raises ValueError."""
    name, plus, work = text.partition("+")
    if name not in list(SchedulerKind):
        raise ValueError(f"'{text}' is no scheduler: there are {', '.join(SchedulerKind)}")
    found = Design(SchedulerKind(name), count(work) if plus else 0)
    if found.host_work_us and not found.kind.host_driven:
        raise ValueError(
            f"'{text}': no host takes part in the scheduler on the GPU, so none can slow it down"
        )
    return found


@dataclass(frozen=True)
class Workload:
    """`requests` that arrive at one moment, each with `prompt` tokens in and `output` tokens out."""

    requests: int
    prompt: int
    output: int

    def __str__(self) -> str:
        return f"{self.requests}x{self.prompt}-{self.output}"

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


def parse_workload(text: str) -> Workload:
    """ "64x512-128". Raises ValueError."""
    try:
        requests, _, lengths = text.partition("x")
        prompt, _, output = lengths.partition("-")
        found = Workload(int(requests), int(prompt), int(output))
    except ValueError:
        raise ValueError(
            f"'{text}' is not a workload such as 64x512-128: requests x input - output"
        ) from None
    if min(found.requests, found.prompt, found.output) < 1:
        raise ValueError(f"{text}: requests, input and output must be at least 1")
    return found


@dataclass(frozen=True)
class Round:
    """One workload once. `steps` are blink_step_trace, oldest first; `cpu_ns` is of the host thread."""

    seconds: float
    answers: list[list[int]]
    steps: NDArray[Any]
    zombie_rows: int
    cpu_ns: int


class Runs:
    """One scheduler at work. Prompts and seeds are a function of the workload alone."""

    def __init__(self, backend: Backend, client: RingClient) -> None:
        self._backend, self._client = backend, client
        self._vocab = backend.config.vocab_size
        self._last_step = 0

    def run(
        self, workload: Workload, wanted: list[list[int]] | None = None, grammar: bytes | None = None
    ) -> Round:
        """With the `wanted` answer of each request, it ends when it samples that one's last token: no
        scheduler can foresee that. With a `grammar`, all answers are held to it.

        Else each ends by its length. Answers are drawn at temperature 1: greedy ones repeat themselves.
        """
        stats, cpu_ns = self._backend.ring.stats(), self._cpu_ns()
        streams = self._prepare(workload, wanted, grammar)
        begin = time.perf_counter()
        for stream in streams:
            self._client.start(stream)
        self._client.wait(streams, TIMEOUT_S)
        seconds = time.perf_counter() - begin
        time.sleep(SETTLE_S)
        fault = self._backend.fault()
        if fault:
            raise RuntimeError(fault)
        steps = self._backend.setup.trace()
        steps = steps[steps["id"] > self._last_step]
        self._last_step = int(steps["id"][-1])
        zombies = self._backend.ring.stats()["zombie_rows"] - stats["zombie_rows"]
        return Round(seconds, [s.tokens for s in streams], steps, zombies, self._cpu_ns() - cpu_ns)

    def _prepare(
        self, workload: Workload, wanted: list[list[int]] | None, grammar: bytes | None
    ) -> list[Stream]:
        rng = np.random.default_rng((SEED, workload.requests, workload.prompt))
        streams = []
        for i in range(workload.requests):
            fields: dict[str, Any] = {"temperature": 1.0, "seed": i, "flags": RequestFlags.IGNORE_EOS}
            length = workload.output
            if wanted is not None:
                fields["stop_ids"], length = [wanted[i][-1]], len(wanted[i]) + STRAY_TOKENS
            prompt = rng.integers(0, self._vocab, workload.prompt).tolist()
            streams.append(self._client.prepare(prompt, length, grammar, **fields))
        return streams

    def _cpu_ns(self) -> int:
        scheduler = self._backend.scheduler
        return scheduler.cpu_ns() if isinstance(scheduler, HostDrivenScheduler) else 0


@contextmanager
def runs_under(backend: Backend, design: Design) -> Iterator[Runs]:
    """The backend's engine with this scheduler."""
    if backend.kind is not design.kind:
        backend.change_scheduler(design.kind)
    if isinstance(backend.scheduler, HostDrivenScheduler):
        backend.scheduler.slow_down(design.host_work_us * 1000)
    assert isinstance(backend.ring, Region)  # the client maps it
    client = RingClient(backend.ring)
    try:
        yield Runs(backend, client)
    finally:
        client.close()
