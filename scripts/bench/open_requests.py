"""Opens thousands of streams at once against the emulation, and says what each thread spends on them.

    .venv/bin/python scripts/bench/open_requests.py [--requests 4096] [--max-batch 128] [--json FILE]

Serves the demo model on the CPU, with a slot for each request. The backend stands still (SIGSTOP) until all
are in the ring, so that all are open at once. Each stream has a connection of its own, and must end with the
answer that its prompt has when nobody else asks. Afterwards every slot and page must be free, and no process
may have grown from one round to the next. Times are of the processor, because others may use the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import httpx  # noqa: E402
import numpy as np  # noqa: E402
import uvloop  # noqa: E402
from fuzz.faults import free_port  # noqa: E402

from ringbuffer.abi import Command  # noqa: E402
from ringbuffer.attachment import attach  # noqa: E402
from ringbuffer.region import Region, ring_path  # noqa: E402

PROMPTS = [f"Count from {first} to {first + 40}." for first in range(16)]
PHASES = ("opening", "open", "serving")
LOOK_S = 0.05
BEAT_S = 4.0  # the frontend waits for 10 s for a heartbeat of the emulation
START_S = 300.0
REST_S = 20.0  # for every slot to be given back
LONGEST_S = 1200.0  # of a round
SPARE_CONNECTIONS = 64
MOST_GROWTH = 16 << 20  # bytes of a process, from the first round to the last


# ---------------------------------------------------------------- clients


class Stream(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request: bytes, ended: Callable[[Stream], None]) -> None:
        self.received = bytearray()
        self._request, self._ended = request, ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.received.endswith(b"0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, why: Exception | None) -> None:
        self._ended(self)

    def answer(self) -> tuple[str, int]:
        """The text, and how many tokens it has. Raises ValueError for anything but a whole answer."""
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in body:
            raise ValueError(f"not a whole answer: {bytes(self.received[-300:])!r}")
        events = [
            json.loads(line.removeprefix(b"data: "))
            for line in body.split(b"\n")
            if line.startswith(b"data: {")
        ]
        text = "".join(choice["text"] for event in events for choice in event["choices"])
        return text, int(events[-1]["usage"]["completion_tokens"])


def request(prompt: str, tokens: int) -> bytes:
    body = json.dumps(
        {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
         "stream_options": {"include_usage": True}}
    )  # fmt: skip
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n{body}".encode()


async def ask(port: int, prompts: list[str], tokens: int) -> list[Stream]:
    """All at once; the streams when all have ended."""
    loop, streams, left = asyncio.get_running_loop(), [], len(prompts)
    over = loop.create_future()

    def ended(_: Stream) -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    for prompt in prompts:
        stream = Stream(request(prompt, tokens), ended)
        await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", port)  # type: ignore[misc]
        streams.append(stream)
    async with asyncio.timeout(LONGEST_S):
        await over
    return streams


# ---------------------------------------------------------------- what the server spends


def thread_ns(pid: int) -> Counter[str]:
    """Processor time of each of the process's threads, by its name; "main" is the first one."""
    found = Counter[str]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = "main" if task.name == str(pid) else (task / "comm").read_text().strip()
            found[name] += int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has just ended
            continue
    return found


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Look:
    """What the server has done until now."""

    at: float
    threads: dict[str, Counter[str]]  # of each plane
    metrics: dict[str, float]


class Server:
    def __init__(self, slots: int, max_batch: int) -> None:
        self.port = free_port()
        self.url, self._ring = f"http://127.0.0.1:{self.port}", f"open-requests-{self.port}"
        command = [
            sys.executable, "-m", "blink", "serve", "demo", "--device=cpu", f"--port={self.port}",
            f"--ring={self._ring}", f"--slots={slots}", f"--max-batch={max_batch}",
            f"--max-connections={slots + SPARE_CONNECTIONS}",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            self._wait()
            self.pids = {plane: self._child(plane) for plane in ("frontend", "backend")}
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            time.sleep(LOOK_S)
        raise SystemExit("the server does not start: see `blink serve demo --device=cpu`")

    def _child(self, plane: str) -> int:
        pid = self._process.pid
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if plane.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return child
        raise SystemExit(f"the server has no {plane}")

    def region(self) -> contextlib.closing[Region]:
        return contextlib.closing(attach(ring_path(self._ring)))

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(START_S)

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=120).text.splitlines():
            if line.startswith("blink:") and "_bucket" not in line:
                found[line.partition("{")[0].removeprefix("blink:")] = float(line.rsplit(" ", 1)[1])
        return found

    def look(self) -> Look:
        threads = {plane: thread_ns(pid) for plane, pid in self.pids.items()}
        return Look(time.monotonic(), threads, self.metrics())

    def memory(self) -> dict[str, int]:
        return {plane: resident(pid) for plane, pid in self.pids.items()}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The scheduler stands still, and takes nothing but in `beat`."""
        os.kill(self.pids["backend"], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pids["backend"], signal.SIGCONT)

    async def beat(self) -> None:
        """Within `held`, so often that the frontend does not take the scheduler for dead. It goes on for no
        longer than it needs: all that are open have to be so until the last one is.
        """
        with self.region() as region:
            before = int(region.header["heartbeat"][0])
            os.kill(self.pids["backend"], signal.SIGCONT)
            deadline = time.monotonic() + BEAT_S
            while int(region.header["heartbeat"][0]) == before and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            os.kill(self.pids["backend"], signal.SIGSTOP)


@dataclass
class Phase:
    """A part of a round. Times are seconds of the processor, but for `wall_s`."""

    wall_s: float
    event_loop_s: float
    reader_s: float
    reader_cycles: int
    scheduler_s: float
    steps: int
    tokens: int

    @classmethod
    def between(cls, before: Look, after: Look) -> Phase:
        def spent(plane: str, thread: str) -> float:
            return (after.threads[plane][thread] - before.threads[plane][thread]) / 1e9

        def counted(name: str) -> int:
            return int(after.metrics[name] - before.metrics[name])

        return cls(
            after.at - before.at,
            spent("frontend", "main"),
            spent("frontend", "token reader"),
            counted("reader_cycles_total"),
            spent("backend", "scheduler"),
            counted("scheduler_steps_total"),
            counted("generation_tokens_total"),
        )

    def told(self, name: str) -> str:
        return (
            f"  {name:8} {self.wall_s:6.1f} s by the clock: event loop {self.event_loop_s:.2f} s, "
            f"token reader {self.reader_s:.2f} s in {self.reader_cycles} cycles "
            f"({1e6 * self.reader_s / max(1, self.reader_cycles):.0f} us each), scheduler "
            f"{self.scheduler_s:.2f} s in {self.steps} steps, {self.tokens} tokens"
        )


@dataclass
class Round:
    """`opening`: until all requests are in the ring; `open`: for a while more, in which nothing comes or
    goes; and `serving` them all.
    """

    phases: dict[str, Phase]
    longest_turn_ms: float  # by the clock, of the scheduler's loop, since its start
    memory: dict[str, int]
    faults: list[str]

    def told(self) -> str:
        memory = ", ".join(f"{plane} {size >> 20} MiB" for plane, size in self.memory.items())
        return "\n".join(
            [
                *(phase.told(name) for name, phase in self.phases.items()),
                f"  memory: {memory}; longest turn {self.longest_turn_ms:.2f} ms",
                *(f"  FAULT {fault}" for fault in self.faults[:10]),
            ]
        )


def n_submitted(region: Region) -> int:
    command = region.requests >> np.uint64(32) & np.uint64(0xFF)
    return int((command == int(Command.SUBMIT)).sum())


async def opened(server: Server, region: Region, n: int) -> None:
    """Until all are open at once, which they never are if one has ended before."""
    ended, beaten = region.stats()["completed"], time.monotonic()
    while n_submitted(region) < n:
        if time.monotonic() - beaten > BEAT_S:
            await server.beat()
            beaten = time.monotonic()
        if region.stats()["completed"] > ended:
            raise SystemExit("a request ended before all were open: let them have more --tokens")
        await asyncio.sleep(LOOK_S)
    await server.beat()


async def one_round(server: Server, n: int, tokens: int, hold_s: float, expected: dict[str, str]) -> Round:
    """Of requests that are all open before the first is served."""
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(n)]
    looks = [server.look()]
    with server.region() as region:
        with server.held():
            asking = asyncio.create_task(ask(server.port, prompts, tokens))
            await opened(server, region, n)
            looks.append(await asyncio.to_thread(server.look))
            await asyncio.sleep(hold_s)
            looks.append(await asyncio.to_thread(server.look))
        streams = await asking
    faults = await asyncio.to_thread(at_rest, server, looks[0].metrics)
    looks.append(await asyncio.to_thread(server.look))
    for prompt, stream in zip(prompts, streams, strict=True):
        try:
            if stream.answer() != (expected[prompt], tokens):
                faults.append(f"{prompt!r}: {stream.answer()}")
        except ValueError as error:
            faults.append(str(error))
    phases = map(Phase.between, looks, looks[1:])
    longest_turn_ms = looks[-1].metrics["scheduler_longest_turn_ns"] / 1e6
    return Round(dict(zip(PHASES, phases, strict=True)), longest_turn_ms, server.memory(), faults)


def at_rest(server: Server, wanted: dict[str, float]) -> list[str]:
    """What is still held when it should not be."""
    names = ("num_requests_open", "num_requests_running", "num_requests_waiting", "scheduler_free_pages")
    deadline = time.monotonic() + REST_S
    while True:
        found = server.metrics()
        left = [
            f"{name} is {found[name]:g}, not {wanted[name]:g}"
            for name in names
            if found[name] != wanted[name]
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_S)


def answers(server: Server, tokens: int) -> dict[str, str]:
    """What each prompt is answered when nobody else asks."""
    return {prompt: uvloop.run(ask(server.port, [prompt], tokens))[0].answer()[0] for prompt in PROMPTS}


def grown(rounds: list[Round]) -> list[str]:
    """The first round fills caches and pools; what comes behind it must not grow."""
    if len(rounds) < 2:
        return []
    more = {plane: size - rounds[0].memory[plane] for plane, size in rounds[-1].memory.items()}
    return [f"the {plane} has grown by {by >> 20} MiB" for plane, by in more.items() if by > MOST_GROWTH]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4096, metavar="N")
    parser.add_argument("--max-batch", type=int, default=128, metavar="ROWS")
    parser.add_argument("--tokens", type=int, default=16, metavar="N", help="of each answer")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--hold", type=float, default=5.0, metavar="SECONDS", help="less than 10")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    server = Server(options.requests, options.max_batch)
    rounds: list[Round] = []
    try:
        expected = answers(server, options.tokens)
        for _ in range(options.rounds):
            asking = one_round(server, options.requests, options.tokens, options.hold, expected)
            rounds.append(uvloop.run(asking))
            print(f"round {len(rounds)}\n{rounds[-1].told()}", flush=True)
    finally:
        status = server.stop()
    if options.json:
        named: dict[str, Any] = {key: str(value) for key, value in vars(options).items()}
        options.json.write_text(
            json.dumps({**named, "rounds": [asdict(found) for found in rounds]}, indent=1)
        )
    faults = [fault for found in rounds for fault in found.faults] + grown(rounds)
    print(*faults[:10], f"{len(faults)} faults", sep="\n")
    return 1 if status or faults else 0


if __name__ == "__main__":
    sys.exit(main())
