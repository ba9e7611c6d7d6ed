"""The ring in GPU memory: the token reader over CUDA IPC against the real scheduler, without HTTP between."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from demo_model.tasks import Item, check
from limits import START_S
from process_state import state_of, stop
from serving import DEMO, ROOT, items
from tokenizers import Tokenizer

from nic_frontend.library import EVENT_FINISHED, EVENT_FREED
from nic_frontend.options import FrontendOptions
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.service import open_local, why_not_serving
from nic_frontend.transport.base import TransportError, read_header
from nic_frontend.transport.cuda_ipc import CudaIpc
from ringbuffer import abi
from ringbuffer.abi import Phase, Reason
from ringbuffer.region import ring_path

SHORT = ("add", "subtract", "sort_numbers", "reverse", "spell", "fact", "lookup")
LONG_PROMPTS = ("lookup_long", "memory")  # beyond what goes as words
LONG_ANSWERS = ("count_long", "table")


@contextlib.contextmanager
def backend(name: str, transport: str) -> Iterator[subprocess.Popen[bytes]]:
    """`blink backend` on the demo model, serving."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "blink", "backend", str(DEMO), "--ring", name, "--device", "gpu"]
    command += ["--transport", transport, f"--ready-fd={write_end}"]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=(write_end,))
    os.close(write_end)
    try:
        assert select.select([read_end], [], [], START_S)[0], "the backend did not serve in time"
        assert os.read(read_end, 16) == b"ready"
        yield process
    finally:
        os.close(read_end)
        killed = process.poll() is not None
        process.terminate()
        assert process.wait(60) == 0 or killed
        ring_path(name).unlink(missing_ok=True)


class Client:
    """A frontend's way to the ring, whichever that is: transport, lease, token reader."""

    def __init__(self, name: str) -> None:
        self.transport = open_local(ring_path(name))
        self.lease = Lease(self.transport)
        self.lease.acquire(5.0)
        path = ring_path(name)
        self.reader = TokenReader(self.transport, self.lease, FrontendOptions(ring=path, model_dir=path))
        self.reader.open()
        self.tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))

    def submit(self, prompts: Sequence[Sequence[int]], max_tokens: int = 1900) -> None:
        descriptors = np.zeros(len(prompts), abi.Descriptor)
        descriptors["prompt_tokens"] = [len(prompt) for prompt in prompts]
        descriptors["max_tokens"] = max_tokens
        for field, heap in (("prompt", "prompt_heap"), ("output", "output_heap")):
            room = int(read_header(self.transport)[heap]) // self.lease.n_slots
            descriptors[f"{field}_room"] = room
            descriptors[f"{field}_offset"] = np.arange(len(prompts)) * room
        descriptors["top_p"] = descriptors["repetition_penalty"] = 1
        tokens = np.concatenate([np.array(prompt, np.uint32) for prompt in prompts])
        assert self.reader.submit(np.arange(len(prompts), dtype=np.uint32), descriptors, tokens)

    def collect(self, n: int, timeout_s: float = 60.0) -> tuple[list[list[int]], list[Reason]]:
        """What slots 0..n-1 answer, once all are free again."""
        answers: list[list[int]] = [[] for _ in range(n)]
        reasons = [Reason.NONE] * n
        freed, deadline = 0, time.monotonic() + timeout_s
        while freed < n:
            assert time.monotonic() < deadline, f"{freed} of {n} requests have ended"
            select.select([self.reader.descriptor], [], [], 0.1)
            events, tokens, _ = self.reader.drain()
            for slot, _, n_tokens, kind, reason, *_ in events:
                answers[slot] += tokens[:n_tokens]
                tokens = tokens[n_tokens:]
                if kind == EVENT_FINISHED:
                    reasons[slot] = Reason(reason)
                freed += kind == EVENT_FREED
        return answers, reasons

    def answer(self, chosen: Sequence[Item]) -> list[str]:
        self.submit([self.tokenizer.encode(item.prompt).ids for item in chosen])
        answers, reasons = self.collect(len(chosen))
        assert set(reasons) == {Reason.EOS}
        return [self.tokenizer.decode(tokens) for tokens in answers]

    def close(self) -> None:
        self.reader.close()
        self.lease.give_back()
        self.transport.close()


def right(chosen: Sequence[Item], texts: Sequence[str]) -> float:
    return sum(check(item, text) for item, text in zip(chosen, texts, strict=True)) / len(chosen)


def test_the_same_answers_as_over_shared_memory() -> None:
    chosen = items(SHORT, 70) + items(LONG_PROMPTS, 20) + items(LONG_ANSWERS, 10)
    answers = {}
    for transport in ("shm", "cuda_ipc"):
        with backend(f"same-{transport}", transport):
            client = Client(f"same-{transport}")
            assert client.transport.capabilities.name == transport
            answers[transport] = client.answer(chosen)
            assert read_header(client.transport)["stats"]["torn_payloads"] == 0
            client.close()
    assert right(chosen, answers["cuda_ipc"]) >= 0.95
    assert answers["cuda_ipc"] == answers["shm"]


def test_32_streams_while_the_backend_process_is_stopped() -> None:
    """From before the first to after the last token; the frontend needs nothing of that process either."""
    chosen = items(LONG_ANSWERS, 24) + items(LONG_PROMPTS, 8)
    with backend("ipc-stopped", "cuda_ipc") as process:
        client = Client("ipc-stopped")
        before = client.answer(chosen)
        stop(process.pid)
        stopped = client.answer(chosen)
        still = state_of(process.pid)
        os.kill(process.pid, signal.SIGCONT)
        assert still == "T"
        assert stopped == before
        client.close()


def test_prompts_of_every_way_to_write_them() -> None:
    """As words, as a padded copy, as a longer copy than the padding. A wrong byte fails the checksum."""
    with backend("ipc-prompts", "cuda_ipc"):
        client = Client("ipc-prompts")
        longest = int(read_header(client.transport)["max_context"]) - 40
        lengths = [1, 2, 3, 64, 65, 257, 1000, longest]
        rng = np.random.default_rng(3)
        for _ in range(20):
            client.submit([rng.integers(10, 200, n).tolist() for n in lengths], max_tokens=8)
            answers, reasons = client.collect(len(lengths))
            assert set(reasons) <= {Reason.LENGTH, Reason.EOS}
            assert all(answers)
        client.close()


def test_a_killed_backend_is_seen_and_nothing_hangs() -> None:
    chosen = items(LONG_ANSWERS, 32)
    with backend("ipc-killed", "cuda_ipc") as process:
        client = Client("ipc-killed")
        client.submit([client.tokenizer.encode(item.prompt).ids for item in chosen])
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        deadline = time.monotonic() + 5
        while True:
            health = client.reader.health()
            if health.link_down or health.heartbeat_lost:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        began = time.monotonic()
        with contextlib.suppress(TransportError):
            assert why_not_serving(client.transport) is not None
        client.close()
        assert time.monotonic() - began < 5


def test_a_second_frontend_needs_a_second_lease() -> None:
    with backend("ipc-leases", "cuda_ipc"):
        client = Client("ipc-leases")
        other = CudaIpc(ring_path("ipc-leases"))
        with pytest.raises(TransportError, match="all 1 lease"):
            Lease(other)
        assert read_header(other)["phase"] == Phase.SERVING
        other.close()
        client.close()
