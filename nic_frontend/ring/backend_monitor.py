"""Watches what the token reader reports about the backend: sets why the frontend is down, fails what cannot
go on, renews a lost lease, makes a broken connection again, gives up a ring that another has replaced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from nic_frontend import errors
from nic_frontend.abi import Health
from nic_frontend.ring.lease import POLL_S, Lease
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.ring.ring_thread import RingThread
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.transport.base import Transport, TransportError
from ringbuffer.abi import LEASE_TIMEOUT_NS, Phase
from ringbuffer.fault import describe
from ringbuffer.words import name_of

log = logging.getLogger(__name__)

INTERVAL_S = 0.05
RECONNECT_PAUSE_S = 1.0  # between attempts, once the lease cannot be saved any more
EMULATION_PATIENCE_NS = 10_000_000_000  # a heartbeat of threads on a busy CPU may stand still for so long


def why_down(health: Health, patience_ns: int = 0, processors: tuple[str, ...] = ()) -> str | None:
    """Why the backend cannot take requests, whose heartbeat may stand still for so long; None when it can."""
    if health.phase == Phase.FAILED:
        return f"the scheduler failed: {describe(health.fault, health.fault_detail, processors)}"
    if health.phase != Phase.SERVING:
        return f"the scheduler is in phase {name_of(Phase, health.phase)}, not SERVING"
    if health.heartbeat_lost and health.heartbeat_age_ns >= patience_ns:
        return f"the scheduler's heartbeat has stood still for {health.heartbeat_age_ns / 1e9:.1f} s"
    if health.lease_lost:
        return "the scheduler took this frontend's lease back"
    return None


class BackendMonitor:
    """`run` is a task of the event loop for as long as the frontend serves."""

    def __init__(
        self,
        transport: Transport,
        thread: RingThread,
        reader: TokenReader,
        tracker: RequestTracker,
        lease: Lease,
        grant_timeout_s: float,
        give_up: Callable[[str], None],
        emulated: bool = False,
        processors: tuple[str, ...] = (),
    ) -> None:
        """`give_up` is told why when this frontend can never serve again (F11). `emulated`: the scheduler
        runs on the CPU. `processors`: the names of the backend's logits processors.
        """
        self._processors = processors
        self._emulated = emulated
        self._transport = transport
        self._thread = thread
        self._broken_since: float | None = None
        self._reader = reader
        self._tracker = tracker
        self._lease = lease
        self._grant_timeout_s = grant_timeout_s
        self._give_up = give_up

    async def run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("watching the backend failed")
            await asyncio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        health = self._reader.health()
        if health.link_down or health.resolving:
            await self._mend(health)
            return
        self._broken_since = None
        patience_ns = self._patience_ns(health)
        reason = why_down(health, patience_ns, self._processors)
        self._report(reason)
        # An unknown phase is no end: another process wrote it, and the scheduler beats on.
        ended = health.phase in (Phase.STARTING, Phase.STOPPED, Phase.FAILED)
        alive = not ended and not (health.heartbeat_lost and health.heartbeat_age_ns >= patience_ns)
        if reason is not None and (not alive or health.lease_lost):
            self._tracker.fail_all(errors.unavailable(reason))
        if not alive and self._transport.is_outdated():
            self._give_up(f"{reason}, and another backend has made the ring anew: start this frontend again")
        if health.lease_lost and alive and health.phase == Phase.SERVING:
            await self._renew()

    def _patience_ns(self, health: Health) -> int:
        """A GPU's heartbeat stands still when the GPU hangs. The emulation's also does when others need the
        CPU, which is no reason to fail its requests while its process lives.
        """
        patient = health.heartbeat_lost and self._emulated and self._transport.backend_lives()
        return EMULATION_PATIENCE_NS if patient else 0

    async def _mend(self, health: Health) -> None:
        """One attempt to make the connection again. Streams wait for as long as the scheduler keeps the lease
        without a beat, and resume if that sufficed (V7); then they fail.
        """
        reason = "the connection to the backend broke"
        if self._broken_since is None:
            self._broken_since = time.monotonic()
            self._report(reason)
        if health.link_down:
            self._tracker.on_connection_lost()
            try:
                await asyncio.to_thread(self._transport.reconnect)
            except TransportError as error:
                reason = str(error)
            self._tracker.on_connection_lost()
        if time.monotonic() - self._broken_since < LEASE_TIMEOUT_NS / 1e9:
            return
        if self._tracker.n_open:
            log.warning("%s", reason)
        self._tracker.down = reason
        self._tracker.fail_all(errors.unavailable(reason))
        await asyncio.sleep(RECONNECT_PAUSE_S)

    def _report(self, reason: str | None) -> None:
        if reason != self._tracker.down and (reason is None or self._tracker.down is None):
            log.warning("not serving: %s", reason) if reason else log.info("serving again")
        self._tracker.down = reason

    async def _renew(self) -> None:
        """Asks for the lost lease with a new epoch; the next turn of `run` tries again if that fails."""
        try:
            await self._thread.run(lambda: self._lease.ask(self._grant_timeout_s))
            while not await self._thread.run(self._lease.granted):
                await asyncio.sleep(POLL_S)
            self._reader.open()
        except TransportError as error:
            log.warning("%s", error)
            return
        self._tracker.reset()
        log.info("lease %d granted again, epoch %d", self._lease.index, self._lease.epoch)
