"""`blink serve` as a user runs it: a process, its children, its ring and its address."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from limits import START_S, WAIT_S
from process_state import alive, children
from ring_files import remove_ring
from waiting import idle_stats, wait_until

from ringbuffer.attachment import attach
from ringbuffer.region import Region

ROOT = Path(__file__).resolve().parent.parent


_numbers = itertools.count()


class ServeProcess:
    """`blink serve MODEL --device cpu --port 0` with further flags, run in `directory`. `log` is where its
    log goes if a flag says so; it may be renamed to a name that begins with its own.

    `close` ends whatever is left.
    """

    def __init__(
        self,
        *flags: str,
        model: str = "demo",
        python: Path = Path(sys.executable),
        directory: Path = ROOT,
        environment: dict[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._log = log
        self._ring_of_socket = f"test-{os.getpid()}-{next(_numbers)}"
        if any(flag.startswith("--uds") for flag in flags):
            flags = (*flags, f"--ring={self._ring_of_socket}")
        descriptor, name = tempfile.mkstemp(prefix="blink-serve-", suffix=".log")
        self._output = Path(name)
        command = [str(python), "-m", "blink", "serve", model, "--device=cpu", "--port=0", *flags]
        with open(descriptor, "w") as stderr:
            self.process = subprocess.Popen(
                command, cwd=directory, stderr=stderr, env={**os.environ, **(environment or {})}
            )
        self._seen: set[int] = set()

    @property
    def output(self) -> str:
        files = [self._output, *(self._log.parent.glob(f"{self._log.name}*") if self._log else ())]
        return "".join(file.read_text() for file in files)

    def wait_ready(self) -> ServeProcess:
        wait_until(self._ready, START_S, "ready")
        self._seen |= {*self.backends(), *self.frontends()}
        self.client = self.new_client()
        return self

    def new_client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.uds)) if self.uds else None
        return httpx.Client(base_url=self.url, timeout=WAIT_S, transport=transport)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.output
        return "blink: ready after" in self.output

    @property
    def uds(self) -> Path | None:
        """The Unix socket that it listens on, if it does."""
        found = re.search(r"ready after .* at unix:(\S+)", self.output)
        return Path(found[1]) if found else None

    @property
    def url(self) -> str:
        if self.uds:
            return "http://localhost"
        found = re.search(r"ready after .* at (http://\S+)/v1", self.output)
        assert found, self.output
        return found[1]

    @property
    def ring(self) -> Path:
        name = self._ring_of_socket if self.uds else f"serve-{self.url.rsplit(':', 1)[1]}"
        return Path(f"/dev/shm/blink-{name}")

    def region(self) -> contextlib.closing[Region]:
        return contextlib.closing(attach(self.ring))

    def stats(self) -> dict[str, int]:
        with self.region() as region:
            return region.stats()

    def idle_stats(self) -> dict[str, int]:
        with self.region() as region:
            return idle_stats(region)

    def backends(self) -> list[int]:
        return self._children("backend")

    def frontends(self) -> list[int]:
        return self._children("frontend")

    def _children(self, plane: str) -> list[int]:
        found = []
        for pid in children(self.process.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if plane.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(pid)
        self._seen.update(found)
        return found

    def stop(self, timeout_s: float = WAIT_S, number: int = signal.SIGTERM) -> int:
        """Signals the supervisor and waits for its exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # an end in order lasts a second and more; tests of it call `stop`
            self.process.wait()
        for pid in self._seen:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        if hasattr(self, "client"):
            self.client.close()
        if "blink: ready after" in self.output:  # it had a ring, which stays where all were killed
            remove_ring(self.ring)
        self._output.unlink()


Serve = Callable[..., ServeProcess]  # with flags: a server that is ready


def complete(client: httpx.Client, prompt: str, **fields: object) -> str:
    """The text of a greedy completion."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 64, **fields}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])
