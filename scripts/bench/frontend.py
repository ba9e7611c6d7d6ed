#!/usr/bin/env python3
"""The frontend's ceiling: tokens a second per core, with a ring writer in place of the scheduler.

Three processes: this one writes tokens into the ring at a given rate, one frontend serves, one client counts
events, or answers with --whole. What is reported is tokens per CPU second of the frontend (user and system
time, all its threads), which other load on the machine does not distort.

python scripts/bench/frontend.py --model models/demo --streams 64 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import uvloop

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from nic_frontend.options import FrontendOptions  # noqa: E402
from nic_frontend.server import listening, serve  # noqa: E402
from ringbuffer import abi  # noqa: E402
from ringbuffer.abi import Command, LeaseState, Phase, State  # noqa: E402
from ringbuffer.region import Geometry, ModelFacts, create, model_fingerprint, rounded_up  # noqa: E402
from ringbuffer.words import pair_word  # noqa: E402

TOKEN = 100
MOST_WHOLE = 4096  # tokens of an answer that is sent in one piece


class RingWriter:
    """Grants the lease, takes every submission, and gives every open slot one token a step.

    Relies on x86-64's store order.
    """

    def __init__(self, path: Path, model: Path, n_slots: int, capacity: int) -> None:
        facts = ModelFacts(model_fingerprint(model), model.name, "ring writer", 512, capacity, n_slots, 1, 16)
        per_slot = rounded_up(capacity, abi.PROMPT_GRANULE)
        self.region = create(path, Geometry(n_slots, 1, n_slots * 64, n_slots * per_slot), facts)
        self.output_offsets = np.zeros(n_slots, dtype=np.uint64)
        self.counts = np.zeros(n_slots, dtype=np.uint64)
        self.limits = np.zeros(n_slots, dtype=np.uint64)
        self.sequences = np.zeros(n_slots, dtype=np.uint64)
        self.seen = self.region.requests.copy()
        self.tokens = 0

    def run(self, step_s: float, stop: multiprocessing.synchronize.Event) -> None:
        header, beat = self.region.header, 0
        header["phase"][0] = Phase.SERVING
        next_step = time.perf_counter()
        while not stop.is_set():
            beat += 1
            header["heartbeat"][0] = beat
            word = int(self.region.leases["word"][0]) & 0xFFFFFFFF
            self.region.lease_acks["word"][0] = pair_word(
                word, LeaseState.GRANTED if word else LeaseState.FREE
            )
            for slot in np.flatnonzero(self.region.requests != self.seen).tolist():
                self.observe(slot)
            if (wait := next_step - time.perf_counter()) > 0:
                time.sleep(wait)
            next_step = max(next_step + step_s, time.perf_counter() - step_s)
            self.step()

    def observe(self, slot: int) -> None:
        word = int(self.region.requests[slot])
        self.seen[slot] = word
        command = Command((word >> 32) & 0xFF)
        if command is Command.SUBMIT:
            self.sequences[slot], self.counts[slot] = word & 0xFFFFFFFF, 0
            self.limits[slot] = self.region.descriptors["max_tokens"][slot]
            self.output_offsets[slot] = self.region.descriptors["output_offset"][slot]
        else:  # cancel and release alike: completed and empty in one
            self.limits[slot] = 0
            state = State.EMPTY if command is Command.RELEASE else State.DECODE_COMPLETED
            self.region.progress["status"][slot] = (word & 0xFFFFFFFF) | (int(state) << 32)

    def step(self) -> None:
        rows = np.flatnonzero(self.counts < self.limits)
        position, low = self.counts[rows], self.sequences[rows] & np.uint64(0xFFF)
        record = np.uint64(TOKEN) | position << np.uint64(32) | low << np.uint64(52)
        self.region.outputs[0, self.output_offsets[rows] + position] = record
        self.region.progress["records"][rows, position % np.uint64(abi.INLINE_RECORDS)] = record
        count = position + np.uint64(1)
        done = count >= self.limits[rows]
        state = np.where(done, int(State.DECODE_COMPLETED), int(State.DECODE_PROCESSING)).astype(np.uint64)
        reason = np.where(done, int(abi.Reason.LENGTH), 0).astype(np.uint64)
        status = (
            self.sequences[rows] | state << np.uint64(32) | reason << np.uint64(36) | count << np.uint64(44)
        )
        self.region.progress["status"][rows] = status
        self.counts[rows] = count
        self.tokens += len(rows)


class Counter(asyncio.Protocol):
    """One request after another on one connection; counts tokens without parsing what comes."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.tokens = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Of a stream, which has an event for each token."""
        self.tokens += data.count(b"data: {")
        if (self.tail + data).endswith(b"0\r\n\r\n"):
            self.transport.write(self.request)  # type: ignore[attr-defined]
        self.tail = data[-5:]


class WholeCounter(Counter):
    def __init__(self, request: bytes, max_tokens: int) -> None:
        super().__init__(request)
        self._max_tokens = max_tokens

    def data_received(self, data: bytes) -> None:
        self.tail += data
        head, blank, body = self.tail.partition(b"\r\n\r\n")
        if blank and len(body) == int(head.lower().partition(b"content-length:")[2].split()[0]):
            assert head.startswith(b"HTTP/1.1 200"), self.tail
            self.tokens += self._max_tokens
            self.tail = b""
            self.transport.write(self.request)  # type: ignore[attr-defined]


def client(
    port: int, streams: int, max_tokens: int, whole: bool, seconds: float, results: Queue[float]
) -> None:
    wanted = {"prompt": [5] * 16, "max_tokens": max_tokens, "stream": not whole, "ignore_eos": True}
    body = json.dumps(wanted)
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()

    def counter() -> Counter:
        return WholeCounter(request, max_tokens) if whole else Counter(request)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        counters = [(await loop.create_connection(counter, "127.0.0.1", port))[1] for _ in range(streams)]
        await asyncio.sleep(1.0)
        for mark in (0.0, seconds):
            await asyncio.sleep(mark)
            results.put(sum(one.tokens for one in counters))

    uvloop.run(run())


def serve_here(options: FrontendOptions) -> None:
    with listening(options) as listener:
        serve(options, listener)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the frontend did not start")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="directory with tokenizer.json"
    )
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--step-us", type=float, default=2000.0, help="between two tokens of a stream")
    parser.add_argument("--whole", action="store_true", help="ask for answers that are not streamed")
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    if arguments.whole and arguments.max_tokens > MOST_WHOLE:
        parser.error(f"--whole: at most {MOST_WHOLE} tokens, as longer answers have no content-length")

    path, port = Path(f"/dev/shm/blink-bench-{os.getpid()}"), free_port()
    n_slots = -(-2 * arguments.streams // abi.SLOT_ALIGNMENT) * abi.SLOT_ALIGNMENT
    writer = RingWriter(path, arguments.model, n_slots, arguments.max_tokens + 64)
    context = multiprocessing.get_context("spawn")
    stop, results = context.Event(), context.Queue()
    options = FrontendOptions(ring=path, model_dir=arguments.model, port=port, log_level="warning")
    frontend = context.Process(target=serve_here, args=(options,))
    load = context.Process(
        target=client,
        args=(
            port, arguments.streams, arguments.max_tokens, arguments.whole, arguments.seconds, results,
        ),
    )  # fmt: skip
    try:
        frontend.start()
        writing = threading.Thread(target=writer.run, args=(arguments.step_us / 1e6, stop))
        writing.start()
        wait_for(port)
        load.start()
        first, cpu, began = results.get(timeout=60), cpu_seconds(frontend.pid or 0), time.perf_counter()
        last = results.get(timeout=60)
        cpu, wall = cpu_seconds(frontend.pid or 0) - cpu, time.perf_counter() - began
        load.join()
    finally:
        stop.set()
        writing.join()
        frontend.terminate()
        frontend.join()
        writer.region.close()
    tokens = last - first
    kind = "answers" if arguments.whole else "streams"
    print(f"{arguments.streams} {kind}, a token each per {arguments.step_us:.0f} us")
    print(f"{tokens / wall:10.0f} tokens/s")
    print(f"{cpu / wall:10.2f} cores of frontend")
    print(f"{tokens / cpu:10.0f} tokens per CPU second of frontend")


if __name__ == "__main__":
    main()
