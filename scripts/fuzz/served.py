"""A frontend to attack, in a process of its own over a mock backend, and what it holds when all have gone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), *(str(ROOT / "tests" / part) for part in ("", "nic_frontend")), str(ROOT / "scripts")]
REST_S = 20.0  # for everything to be given back
MOST_GROWTH = 96 << 20  # bytes, from the first requests to the last


class Served:
    """The process, from the constructor to `close`. `options` are of FrontendOptions, and `backend` says
    what is special about the mock backend.
    """

    def __init__(self, *, backend: dict[str, Any] | None = None, **options: Any) -> None:
        descriptor, name = tempfile.mkstemp(prefix="blink-fuzz-", suffix=".log")
        self._log = Path(name)
        with open(descriptor, "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, json.dumps([backend or {}, options])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "PYTHONPATH": ":".join(PATHS)},
            )  # fmt: skip
        self.port = int(self._line())
        self._first_rss = 0

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            self._process.wait(REST_S)
            raise RuntimeError(self.end)
        return line

    @property
    def end(self) -> str | None:
        """How the frontend has ended, which it must not; None while it lives."""
        status = self._process.poll()
        return None if status is None else f"the frontend has ended with status {status}: {self.log[-4000:]}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def rss(self) -> int:
        """Bytes."""
        status = Path(f"/proc/{self._process.pid}/statm").read_text()
        return int(status.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _told(self, what: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._line())
        return told

    def held(self) -> dict[str, int]:
        """Connections, requests and bytes of bodies that the frontend has now."""
        return self._told("held")

    def busy_s(self) -> dict[str, float]:
        """The longest turn of the event loop, and the longest hold of Python's lock, since this was called
        last, in seconds of processor time. Where one is too long, both are those of a known processor.
        """
        return self._told("busy")

    def forget_peak(self) -> None:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """Bytes: the most memory that it has had since `forget_peak`."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def warmed_up(self) -> None:
        self._first_rss = self.rss

    def faults(self) -> list[str]:
        """What is wrong when every client has gone."""
        if self.end is not None:
            return [self.end]
        found = []
        deadline = time.monotonic() + REST_S
        while any((held := self.held()).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if any(held.values()):
            found.append(f"something is still held: {held}")
        if self._first_rss and (grown := self.rss - self._first_rss) > MOST_GROWTH:
            found.append(f"the frontend has grown by {grown >> 20} MiB")
        found += [
            f"the log has: {line}" for line in self.log.splitlines() if "Error" in line or "Traceback" in line
        ]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.unlink()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)


class Forgetful(list[Any]):
    """What the mock backend remembers for tests would look like growth of the frontend."""

    def append(self, item: Any) -> None:
        pass


def main(special: dict[str, Any], options: dict[str, Any]) -> None:
    from harness import Frontend
    from known_work import LONGEST_S, slowness
    from mock_backend import MockBackend
    from templates import HERMES, write_model_with
    from turns import LockHolds, Turns

    from nic_frontend.service import Service

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    turns = Turns()
    lock = LockHolds(turns)
    with (
        tempfile.TemporaryDirectory(prefix="blink-fuzz-") as folder,
        mock.patch.object(Service, "start", lambda service: turns.start(service)),
    ):
        model = write_model_with(Path(folder) / "model", HERMES)
        backend = MockBackend(
            Path(f"/dev/shm/blink-fuzz-{os.getpid()}"), model, **{"n_slots": 256, "step_s": 0.0005, **special}
        ).start()
        backend.accepted, backend.commands = Forgetful(), Forgetful()
        frontend = Frontend(backend, model, **{"store_responses": Path(folder) / "responses", **options})

        def held() -> dict[str, int]:
            return {
                "connections": len(frontend.server.server_state.connections),
                "requests": frontend.service.tracker.n_open,
                "slots": backend.open_rows(),
                "bodies": frontend.service.bodies.held,
            }

        def busy() -> dict[str, float]:
            turns.look()
            found = {"turn": turns.longest_s, "lock": lock.longest_s}
            turns.longest_s = lock.longest_s = 0.0
            slower = slowness() if max(found.values()) >= LONGEST_S else 1.0
            return {name: took_s / slower for name, took_s in found.items()}

        print(frontend.port, flush=True)
        for line in sys.stdin:
            print(json.dumps(held() if line == "held\n" else busy()), flush=True)
        frontend.stop()
        backend.stop()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
