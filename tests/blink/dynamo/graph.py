"""Dynamo's graph as an operator runs it: its frontend with KV-aware routing, and emulated blink workers.

Discovery is by files and events by ZeroMQ, so there is neither etcd nor NATS.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import IO

import httpx
from free_port import free_port
from limits import START_S, WAIT_S
from process_state import children
from ring_files import remove_ring
from waiting import wait_until

from ringbuffer.abi import Command
from ringbuffer.attachment import attach
from ringbuffer.region import Region, ring_path

ROOT = Path(__file__).resolve().parents[3]
RUN = ROOT / "scripts/dynamo"
ENVIRONMENT = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_EVENT_PLANE": "zmq",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1",  # 5 by default, for routers to hear that a worker leaves
    "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
}


class Worker:
    """`blink dynamo demo`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log
        self.own_ring: Path | None = None  # known once it serves

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def serves(self) -> bool:
        assert self.process.poll() is None, self.log
        serves = "Serving demo on" in self.log
        if serves and self.own_ring is None:
            self.own_ring = self._ring_of_backend()
        return serves

    def _ring_of_backend(self) -> Path | None:
        """The ring of the backend that the worker has started; None where it has started none."""
        for child in children(self.process.pid):
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            names = [word for word in words if word.startswith(b"--ring=")]
            if b"backend" in words and names:
                return ring_path(names[0].removeprefix(b"--ring=").decode())
        return None

    @property
    def ring(self) -> Path:
        assert self.own_ring is not None
        return self.own_ring

    @property
    def told_all(self) -> bool:
        """Whether the worker has read all KV events that its backend has written."""
        with self.region() as region:
            words = region.kv_events[0]
            return bool(words["written"]) and int(words["reader"]) == int(words["written"])

    def region(self) -> contextlib.closing[Region]:
        return contextlib.closing(attach(self.ring))

    @property
    def backend(self) -> int:
        """The process id of its backend."""
        with self.region() as region:
            return int(region.header["backend_pid"][0])

    @property
    def open_requests(self) -> int:
        """Those that the worker has submitted and not released."""
        with self.region() as region:
            return sum(word >> 32 & 0xFF == Command.SUBMIT for word in region.requests.tolist())

    def stats(self) -> dict[str, int]:
        with self.region() as region:
            return region.stats()


class Graph:
    """`close` ends whatever was started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {**os.environ, **ENVIRONMENT, "DYN_FILE_KV": str(directory / "discovery")}
        self._logs: list[IO[bytes]] = []
        self.workers: list[Worker] = []
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._frontend = self._run(
            "frontend", "python", "-m", "dynamo.frontend", "--router-mode", "kv", "--http-host=127.0.0.1",
            f"--http-port={port}",
        )  # fmt: skip
        self.client = httpx.Client(base_url=self.url, timeout=WAIT_S)

    def _run(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        self._logs.append((self._directory / f"{name}.log").open("wb"))
        return subprocess.Popen(
            [RUN, *command],
            env={**self._environment, **environment},
            stdout=self._logs[-1],
            stderr=subprocess.STDOUT,
        )

    def start_worker(self, *flags: str, own: bool = True, **environment: str) -> Worker:
        """`own`: with a backend of its own."""
        name, backend = f"worker-{len(self.workers)}", ("--device=cpu", "--threads=1") if own else ()
        process = self._run(name, "python", "-m", "blink", "dynamo", "demo", *backend, *flags, **environment)
        self.workers.append(Worker(process, self._directory / f"{name}.log"))
        return self.workers[-1]

    def wait_for(self, *workers: Worker) -> None:
        """Until these serve and the frontend routes to as many."""
        wait_until(lambda: all(worker.serves for worker in workers), START_S, "workers that serve")
        wait_until(lambda: self.routed() == len(workers), WAIT_S, f"{len(workers)} routed workers")
        wait_until(self._answers, WAIT_S, "answers")

    def _answers(self) -> bool:
        """Whether requests come through: a worker refuses this one, and none computes anything."""
        body = {"model": "demo", "prompt": "hello", "max_tokens": 1_000_000}
        return self.client.post("/v1/completions", json=body).status_code == 400

    def routed(self) -> int:
        """Workers that the frontend sends requests to."""
        try:
            instances = self.client.get("/health").json()["instances"]
            models = self.client.get("/v1/models").json()["data"]
        except httpx.TransportError:
            return 0
        if not models:
            return 0
        return sum(instance["endpoint"] == "generate" for instance in instances)

    def close(self) -> None:
        self.client.close()
        processes = [self._frontend, *(worker.process for worker in self.workers)]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for ring in (worker.own_ring for worker in self.workers):
            if ring is not None:  # what a worker that was killed has left
                remove_ring(ring)
        for log in self._logs:
            log.close()
