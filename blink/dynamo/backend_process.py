"""The backend that a worker of Dynamo starts, watches and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from blink.child import said_ready, spawn
from blink.dynamo.ring_claim import RingClaim
from blink.errors import CommandError
from ringbuffer.name import RingError, clear_name
from ringbuffer.region import ring_path


class BackendProcess:
    """`blink backend` as a child. `claim` is its ring's name, which is released when the child was stopped.
    `on_end` is told why when it ends without having been asked to.
    """

    def __init__(
        self, command: Sequence[str], claim: RingClaim, *, start_timeout_s: float, end_timeout_s: float
    ) -> None:
        self.ring = ring_path(claim.name)
        self._claim = claim
        self.on_end: Callable[[str], None] = lambda why: None
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._end_timeout_s = end_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once its scheduler runs. Raises CommandError when it does not."""
        self._process, read_end = await spawn(self._command, dict(os.environ))
        try:
            ready = await asyncio.wait_for(said_ready(read_end), self._start_timeout_s)
        except TimeoutError:
            raise CommandError(
                f"the backend is not ready after {self._start_timeout_s:g} s: raise --start-timeout"
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
                await asyncio.wait_for(process.wait(), self._end_timeout_s)
            except TimeoutError:
                process.kill()
                await process.wait()
        with contextlib.suppress(RingError):  # a living backend's: another worker has the name
            clear_name(self.ring)  # a backend that was killed leaves its ring
        self._claim.release()
