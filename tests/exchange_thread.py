"""The exchange of a backend in a thread of the test, on a free port of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

from gpu_backend.rdma.exchange_server import ExchangeServer, RingFacts, Target
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.rdma.messages import SILENCE_S

KEY = b"0123456789abcdef"


class ExchangeThread:
    """Serves from the constructor to `stop`."""

    def __init__(
        self,
        ring: Path,
        facts: RingFacts,
        target: Target,
        *,
        port: int = 0,
        key: bytes = KEY,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self.listener.getsockname()[1]
        self.server = ExchangeServer(facts, key, target, lambda: LeaseLock(ring), silence_s)
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self.server.serve(self.listener))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    def hang_up(self) -> None:
        """Ends every frontend's connection, as a cut cable would in the end."""
        self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        for holder in self.server._holders.values():
            holder.task.cancel()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self.listener.close()
