"""A backend process, and tasks of the demo model whose answers can be checked, for the tests that serve."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from demo_model.tasks import Item, check, sample
from limits import START_S, WAIT_S
from tokenizers import Tokenizer

from ringbuffer.abi import Phase
from ringbuffer.attachment import attach
from ringbuffer.client import RingClient, Stream
from ringbuffer.name import RingError
from ringbuffer.region import Region, ring_path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "models" / "demo"


@contextmanager
def serving(
    name: str, *flags: str, device: str = "gpu", start_s: float = START_S, model: Path = DEMO
) -> Iterator[tuple[subprocess.Popen[bytes], Region]]:
    """`blink backend` on a model, and its ring."""
    command = [
        sys.executable,
        "-m",
        "blink",
        "backend",
        str(model),
        "--ring",
        name,
        "--device",
        device,
        *flags,
    ]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process, wait_for_ring(process, name, start_s)
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


def wait_for_ring(process: subprocess.Popen[bytes], name: str, start_s: float = START_S) -> Region:
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the backend exited with {process.returncode}"
        try:
            region = attach(ring_path(name))
        except RingError:
            time.sleep(0.05)
            continue
        if region.phase() == Phase.SERVING:
            return region
        region.close()
        time.sleep(0.05)
    raise TimeoutError("the backend did not serve in time")


def items(tasks: Sequence[str], n: int, seed: int = 5) -> list[Item]:
    """`n` held-out items, round robin over `tasks`."""
    rng = random.Random(seed)
    return [sample(tasks[i % len(tasks)], rng, split="heldout") for i in range(n)]


class Demo:
    """Submits items as plain completions and judges the answers."""

    def __init__(self, region: Region) -> None:
        self.client = RingClient(region)
        self.tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))

    def submit(self, item: Item, max_tokens: int = 1900) -> Stream:
        return self.client.submit(self.tokenizer.encode(item.prompt).ids, max_tokens)

    def right(self, item: Item, stream: Stream) -> bool:
        return check(item, self.tokenizer.decode(stream.tokens))

    def answer(self, chosen: Sequence[Item], timeout_s: float = WAIT_S) -> list[Stream]:
        """All at once."""
        streams = [self.submit(item) for item in chosen]
        self.client.wait(streams, timeout_s)
        return streams
