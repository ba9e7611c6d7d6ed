"""A server as `blink serve` starts it, with one process for the backend and some for frontends, whose backend
can be looked into, changed to another way to speculate without loading its model again, and stopped.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from bench.origin import of_gpu
from bench.ways import speculate
from numpy.typing import NDArray

from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from gpu_backend.speculation import Speculation
from ringbuffer.parent import ask_for_death_signal

ROOT = Path(__file__).resolve().parents[2]
START_S, ANSWER_S, END_S = 240.0, 60.0, 40.0
LOOK, END = "look", "end"
IDLE_NS = 1_000_000  # between seeing a step's end and the turn that launches the next: nobody was served


@dataclass(frozen=True)
class Started:
    """What a backend has taken. `device_mib`: on the GPU, in all; None without one. `host_mib`: resident."""

    machine: str
    ready_s: float  # from the start of its process until its scheduler runs
    shapes: int  # of steps, each of which is some captured graphs
    kv_pages: int
    device_mib: int | None
    host_mib: int


@dataclass(frozen=True)
class Look:
    """The scheduler's counters and its trace of the last steps (blink_step_trace), oldest first."""

    stats: dict[str, int]
    trace: NDArray[Any]


def gaps_us(trace: NDArray[Any], first: int, last: int) -> NDArray[np.float64]:
    """From the end of a step to the first instruction of the next one, while somebody was served.

    Of the steps in `trace` (blink_step_trace, oldest first) with ids in (first, last].
    """
    trace = trace[(trace["id"] > first) & (trace["id"] <= last)]
    before, after = trace[:-1], trace[1:]
    waited = after["turn_ns"].astype(np.int64) - before["seen_ns"].astype(np.int64)
    counts = (after["id"] == before["id"] + 1) & (waited < IDLE_NS)
    gaps = after["start_ns"].astype(np.int64) - before["done_ns"].astype(np.int64)
    found: NDArray[np.float64] = gaps[counts] / 1e3
    return found


class Served:
    """A context: the backend's process. Ends with status 1 where it does not start or answer in time."""

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        began = time.monotonic()
        context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, options), daemon=True)
        self._process.start()
        theirs.close()
        told = self._told(START_S)
        self.started = Started(ready_s=time.monotonic() - began, device_mib=_device_mib(), **told)

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(END)
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def change(self, way: Speculation) -> None:
        self._pipe.send(way)
        self._told()

    def look(self) -> Look:
        self._pipe.send(LOOK)
        found = self._told()
        assert isinstance(found, Look)
        return found

    def _told(self, within_s: float = ANSWER_S) -> Any:
        try:
            if self._pipe.poll(within_s):
                return self._pipe.recv()
        except EOFError:
            raise SystemExit("the backend died: see above") from None
        raise SystemExit(f"the backend did not answer within {within_s:.0f} s")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """By SIGSTOP: on a GPU the scheduler and its steps go on without their process."""
        pid = self._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "T":
                raise SystemExit(f"the backend did not stand still: its state is {state}")
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frontends(self, n: int) -> Iterator[int]:
        """`n` of them on one port, which is given, until the context ends."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        children: list[subprocess.Popen[bytes]] = []
        try:
            ready = [self._frontend(port, children) for _ in range(n)]
            for end in ready:
                _await(end)
            yield port
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait(END_S)

    def _frontend(self, port: int, children: list[subprocess.Popen[bytes]]) -> int:
        """Starts one, and returns the pipe on which it says that it is ready."""
        read_end, write_end = os.pipe()
        command = [
            sys.executable, "-m", "blink", "frontend", str(self.options.model_dir), f"--port={port}",
            f"--ring={self.options.ring}", "--served-model-name=m", f"--ready-fd={write_end}",
            "--drain-timeout=1", "--log-level=warning",
        ]  # fmt: skip
        children.append(
            subprocess.Popen(command, cwd=ROOT, pass_fds=(write_end,), preexec_fn=ask_for_death_signal)
        )
        os.close(write_end)
        return read_end


def _await(ready: int) -> None:
    try:
        if not select.select([ready], [], [], ANSWER_S)[0] or not os.read(ready, 1):
            raise SystemExit("a frontend did not start")
    finally:
        os.close(ready)


def _device_mib() -> int | None:
    used = of_gpu("memory.used")
    return int(used) if used.isdigit() else None


def _serve(pipe: Connection, options: BackendOptions) -> None:
    """The backend's process."""
    ask_for_death_signal(signal.SIGKILL)  # one that is stopped would end by no other
    backend = Backend(options)
    backend.start()
    pages = Path("/proc/self/statm").read_text().split()[1]
    told = {
        "machine": backend.device.name,
        "shapes": len(backend.setup.shape_times()),
        "kv_pages": backend.limits.total_pages,
        "host_mib": int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20,
    }
    pipe.send(told)
    while (asked := pipe.recv()) != END:
        if isinstance(asked, Speculation):
            speculate(backend, asked)
            pipe.send(None)
        else:
            assert backend.fault() is None, backend.fault()
            pipe.send(Look(backend.ring.stats(), backend.setup.trace()))
    assert backend.stop(0.0)
