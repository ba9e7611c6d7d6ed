"""The backend that a process starts for itself alone, watches and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from blink.child import said_ready, spawn
from blink.errors import CommandError
from blink.ring_claim import RingClaim
from gpu_backend.backend import DRAIN_S, STOP_S
from ringbuffer.name import RingError, clear_name
from ringbuffer.region import ring_path

START_TIMEOUT_S = 600.0
SLACK_S = 10.0  # beyond the bounds that the backend keeps by itself


class BackendProcess:
    """`blink backend DIRECTORY` with further arguments, as a child. `claim` is its ring's name, which is
    released when the child was stopped. `on_end` is told why when it ends without having been asked to.
    `start_option` is what its user gives to let it take longer to start than `start_timeout_s`.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Iterable[str],
        claim: RingClaim,
        *,
        start_timeout_s: float,
        start_option: str,
    ) -> None:
        self.ring = ring_path(claim.name)
        self.claim = claim
        self.on_end: Callable[[str], None] = lambda why: None
        self.command = [
            sys.executable, "-m", "blink", "backend", str(directory), f"--ring={claim.name}", *arguments,
        ]  # fmt: skip
        self._start_timeout_s = start_timeout_s
        self._start_option = start_option
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once its scheduler runs. Raises CommandError when it does not."""
        self._process, read_end = await spawn(self.command, dict(os.environ))
        try:
            ready = await asyncio.wait_for(said_ready(read_end), self._start_timeout_s)
        except TimeoutError:
            raise CommandError(
                f"the backend is not ready after {self._start_timeout_s:g} s: raise {self._start_option}"
            ) from None
        if not ready:
            raise CommandError(f"the backend ended with exit status {await self._process.wait()}")
        self._watch = asyncio.create_task(self._wait(self._process))

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self.on_end(f"the backend {how}")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that is still there after its time. Call it once; it may have ended."""
        if self._watch is not None:
            self._watch.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that was suspended can end in order, too
            try:
                await asyncio.wait_for(process.wait(), DRAIN_S + STOP_S + SLACK_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        with contextlib.suppress(RingError):  # a living backend's: another process has the name
            clear_name(self.ring)  # a backend that was killed leaves its ring
        self.claim.release()
