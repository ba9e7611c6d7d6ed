"""How long an arrival waits for its prefill while others decode, by the GPU's clock."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpu_backend.abi import StepKind
from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from ringbuffer.abi import RequestFlags
from ringbuffer.client import RingClient
from ringbuffer.region import Region

ROOT = Path(__file__).resolve().parents[2]
ARRIVALS = 40
STEP_S = 0.001  # about


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    directory = tmp_path_factory.mktemp("model")
    shutil.copy(ROOT / "scripts" / "bench" / "shapes" / "llama-3.2-1b.json", directory / "config.json")
    shutil.copy(ROOT / "models" / "demo" / "tokenizer.json", directory)
    backend = Backend(
        BackendOptions(directory, ring="latency", device="gpu", max_batch=48, random_weights=True)
    )
    backend.start()
    yield backend
    assert backend.stop(0.0)


def clock_offset(region: Region) -> int:
    """The GPU's clock minus this process's, in ns, too small by a word's way to the host: a microsecond.

    From the scheduler's heartbeat, which is its clock at that turn.
    """
    before = int(region.header["heartbeat"][0])
    while (beat := int(region.header["heartbeat"][0])) == before:
        pass
    return beat - time.monotonic_ns()


@pytest.mark.parametrize("rows", [8, 32])
def test_an_arrival_is_prefilled_within_two_decode_steps(backend: Backend, rows: int) -> None:
    """Counted: steps without prompts that ran, in whole or in part, between publication and prefill."""
    assert isinstance(backend.ring, Region)
    client, rng = RingClient(backend.ring), random.Random(rows)
    flags = RequestFlags.IGNORE_EOS
    long = [client.submit([5] * 16, backend.limits.max_context, flags=flags) for _ in range(rows)]
    while not all(stream.tokens for stream in long):
        for stream in long:
            client.poll(stream)
    published = []
    for _ in range(ARRIVALS):
        stream = client.prepare([rng.randrange(1000) for _ in range(rng.randint(1, 200))], 2, flags=flags)
        offset = clock_offset(backend.ring)
        pause = time.monotonic() + rng.random() * 2 * STEP_S
        while time.monotonic() < pause:
            pass
        published.append(time.monotonic_ns() + offset)
        client.start(stream)
        client.wait([stream], 10)
    for stream in long:
        client.cancel(stream)
    client.wait(long, 10)
    client.close()
    steps = backend.setup.trace()
    decodes, prefills = steps[steps["kind"] == StepKind.DECODE], steps[steps["kind"] != StepKind.DECODE]
    waited = []
    for moment in published:
        start = int(prefills["start_ns"][prefills["start_ns"] > moment].min())
        waited.append(int(((decodes["done_ns"] > moment) & (decodes["start_ns"] < start)).sum()))
    assert max(waited) <= 2, waited
    assert np.median(waited) <= 1, waited
    assert max(waited) > 0, "no decode step ran"
