"""The backend's side of the exchange: authenticates frontends, hands out leases and connects queue pairs.

It takes part in set-up only. Once granted, a frontend reads and writes the ring without this process, which
may be stopped for as long as no frontend comes or goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ringbuffer.lease_lock import LeaseLock
from ringbuffer.rdma.messages import (
    HANDSHAKE_S,
    SILENCE_S,
    Claim,
    EndpointAddress,
    Grant,
    refused,
    why_refused,
)
from ringbuffer.rdma.session import (
    FRAME,
    OPENING,
    Body,
    ExchangeError,
    Role,
    Session,
    frame_size,
    unsealed,
)

log = logging.getLogger(__name__)

MAX_STRANGERS = 64  # connections that have not been granted a lease: of more, some are closed


class QueuePairs(Protocol):
    """The passive end of one frontend's queue pairs, connected to `peer`. `close` destroys them."""

    address: EndpointAddress

    def close(self) -> None: ...


class Target(Protocol):
    """The registered region."""

    address: int
    bytes: int
    key: int
    read_back_needed: bool

    def accept(self, peer: EndpointAddress) -> QueuePairs:
        """Raises OSError when the device cannot reach `peer`."""
        ...


@dataclass(frozen=True)
class RingFacts:
    """What the exchange needs to know of the ring."""

    n_leases: int
    fingerprint: bytes
    instance: str


@dataclass(frozen=True)
class Holder:
    """A connection that was granted a lease."""

    token: str
    task: asyncio.Task[None]


class Refused(ExchangeError):
    """The claim is understood and not granted; the frontend is told why."""


class ExchangeServer:
    """`open_lock` opens a LeaseLock on the ring, so that frontends on this host and remote ones share the
    leases (F1). `serve` runs until it is cancelled. `silence_s` is how long a frontend may say nothing.
    """

    def __init__(
        self,
        facts: RingFacts,
        key: bytes,
        target: Target,
        open_lock: Callable[[], LeaseLock],
        silence_s: float = SILENCE_S,
    ) -> None:
        self._facts = facts
        self._key = key
        self._target = target
        self._open_lock = open_lock
        self._silence_s = silence_s
        self._holders: dict[int, Holder] = {}
        self._strangers: dict[asyncio.Task[None], str] = {}  # and their addresses, the longest there first

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._connected, sock=listener)
        try:
            await server.serve_forever()
        finally:
            for holder in list(self._holders.values()):
                await _end(holder.task)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername")[0])
        try:
            if len(self._strangers) >= MAX_STRANGERS:
                self._drop_stranger()
            await self._serve_one(Wire(reader, writer, Session(self._key, Role.BACKEND)), peer)
        except (ExchangeError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.warning("frontend %s: %s", peer, _told(error))
        except asyncio.CancelledError:
            # By `_end`, or at the end of `serve`. Not passed on: asyncio would report it as an error.
            log.info("frontend %s: its connection was ended", peer)
        finally:
            writer.close()

    def _drop_stranger(self) -> None:
        """Of the address that most of them come from, the one that has been there for longest: whoever says
        nothing keeps out nobody who proves the key at once.
        """
        counts = Counter(self._strangers.values())
        stranger = next(one for one, peer in self._strangers.items() if counts[peer] == max(counts.values()))
        del self._strangers[stranger]
        stranger.cancel()

    async def _serve_one(self, wire: Wire, peer: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.ExitStack() as owned:
            self._strangers[task] = peer
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    lease = await self._grant(wire, owned)
            finally:
                self._strangers.pop(task, None)
            log.info("frontend %s holds lease %d", peer, lease)
            while True:
                async with asyncio.timeout(self._silence_s):
                    await wire.receive()

    async def _grant(self, wire: Wire, owned: contextlib.ExitStack) -> int:
        """The lease that the frontend now holds; what it holds is released by `owned`."""
        await wire.begin()
        try:
            claim = Claim.parse(await wire.receive())
            grant = await self._take(claim, owned)
        except ExchangeError as error:
            await wire.refuse(str(error) if isinstance(error, Refused) else "the claim is not valid")
            raise
        await wire.send(grant.body())
        return grant.lease

    async def _take(self, claim: Claim, owned: contextlib.ExitStack) -> Grant:
        if reason := why_refused(claim, self._facts.fingerprint):
            raise Refused(reason)
        # A frontend that lost its connection comes back before this side has noticed. Its old queue pairs
        # must be gone before the lease is used again (V4).
        holder = self._holders.get(-1 if claim.lease is None else claim.lease)
        if holder is not None and claim.token and hmac.compare_digest(claim.token, holder.token):
            await _end(holder.task)
        lock = self._open_lock()
        owned.callback(lock.close)
        if claim.lease is None:
            lease = lock.claim(self._facts.n_leases)
            if lease is None:
                raise Refused(
                    f"all {self._facts.n_leases} lease(s) of the ring are held by running frontends: "
                    "stop one, or start the backend with more"
                )
        else:
            lease = claim.lease
            if lease >= self._facts.n_leases or not lock.claim_index(lease):
                raise Refused(f"lease {lease} is held by another frontend by now")
        try:
            pairs = self._target.accept(claim.endpoint)
        except OSError as error:
            raise Refused(f"the backend's device cannot reach the frontend's queue pairs: {error}") from error
        owned.callback(pairs.close)  # before the lock is released: the stack unwinds backwards (V4)
        task = asyncio.current_task()
        assert task is not None
        holder = self._holders[lease] = Holder(secrets.token_hex(16), task)
        owned.callback(self._forget, lease, holder)
        target = self._target
        return Grant(
            lease, holder.token, self._facts.instance, target.address, target.bytes, target.key,
            target.read_back_needed, pairs.address,
        )  # fmt: skip

    def _forget(self, lease: int, holder: Holder) -> None:
        if self._holders.get(lease) is holder:
            del self._holders[lease]


class Wire:
    """A session on a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session) -> None:
        self._reader, self._writer, self._session = reader, writer, session

    async def begin(self) -> None:
        self._writer.write(self._session.opening())
        self._session.begin(await self._reader.readexactly(OPENING.size))

    async def receive(self) -> Body:
        length, code = frame_size(await self._reader.readexactly(FRAME.size))
        return self._session.unseal(code, await self._reader.readexactly(length))

    async def refuse(self, reason: str) -> None:
        """Whoever has not proved the key learns no more than that (V1)."""
        body = refused(reason if self._session.proved else "it has another key")
        self._writer.write(self._session.seal(body) if self._session.proved else unsealed(body))
        await self._writer.drain()

    async def send(self, body: Body) -> None:
        self._writer.write(self._session.seal(body))
        await self._writer.drain()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _told(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it has said nothing for too long"
    if isinstance(error, asyncio.IncompleteReadError):
        return "it has left"
    return str(error)
