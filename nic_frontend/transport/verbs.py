"""The ring on another host, over RDMA: reliable-connected queue pairs, set up by the exchange.

The data path is native (native/verbs); this module makes connections, at first and again after one broke.
"""

from __future__ import annotations

import ctypes
import threading

from nic_frontend.options import VerbsRing
from nic_frontend.transport.base import Capabilities, NativeLink, TransportError
from nic_frontend.transport.exchange_client import Exchange
from nic_frontend.transport.verbs_library import verbs_library
from ringbuffer import abi
from ringbuffer.rdma.abi import RdmaAddress
from ringbuffer.rdma.messages import Claim, EndpointAddress, Grant
from ringbuffer.rdma.native import (
    ERROR_BYTES,
    VerbsMissing,
    device_choice,
    from_native,
    to_native,
)
from ringbuffer.rdma.session import ExchangeError


class Verbs(NativeLink):
    """A Transport over RDMA. `fingerprint` is that of the model which this frontend serves.

    Raises TransportError when the backend cannot be reached or refuses.
    """

    def __init__(self, ring: VerbsRing, fingerprint: bytes) -> None:
        self._ring = ring
        self._fingerprint = fingerprint
        super().__init__()
        try:
            self._verbs = verbs_library()
        except VerbsMissing as error:
            raise TransportError(str(error)) from error
        self._connecting = threading.Lock()
        self._closed = False
        self._exchange: Exchange | None = None
        self._grant: Grant | None = None
        self.link: int = self._verbs.blink_verbs_open()
        try:
            self.reconnect()
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        """The lease is kept for as long as V6 and V7 wait for a connection."""
        ordered = not self._ring.read_back
        return Capabilities("verbs", writes_ordered=ordered, lease_timeout_ns=abi.LEASE_TIMEOUT_NS)

    def reconnect(self) -> None:
        """Makes a connection in the place of the one before, with the same lease if nobody else has taken it.

        Raises TransportError when that fails; the link then stays down.
        """
        with self._connecting:
            if self._closed:
                raise TransportError(f"the connection to {self._ring} has been closed")
            self._hang_up("it is made again")
            try:
                exchange = Exchange(self._ring.host, self._ring.port, self._ring.key)
            except OSError as error:
                raise TransportError(
                    f"no backend answers at {self._ring} ({error}): start `blink backend` there with "
                    "--rdma-listen, and see that nothing blocks the port"
                ) from error
            try:
                self._connect(exchange)
            except BaseException as error:
                exchange.close()
                if isinstance(error, ExchangeError):
                    raise TransportError(str(error)) from error
                raise
            self._exchange = exchange

    def _connect(self, exchange: Exchange) -> None:
        before = self._grant
        claim = Claim(
            abi.ABI_VERSION,
            abi.RING_LAYOUT_HASH,
            self._fingerprint,
            before.lease if before else None,
            before.token if before else None,
            self._prepare(exchange.local_address),
        )
        grant = exchange.claim(claim)
        if before is not None and before.instance != grant.instance:
            raise TransportError("the backend was started again, with another ring: restart this frontend")
        if grant.read_back_needed and not self._ring.read_back:
            raise TransportError(
                "the backend's device does not order remote writes by itself: leave --no-read-back out"
            )
        error = ctypes.create_string_buffer(ERROR_BYTES)
        theirs = to_native(grant.endpoint)
        if self._verbs.blink_verbs_connect(
            self.link, theirs, grant.address, grant.key, self._ring.read_back, error
        ):
            raise TransportError(f"cannot connect to {self._ring}: {error.value.decode()}")
        self._grant = grant
        exchange.keep(lambda why: self._verbs.blink_verbs_break(self.link, why.encode()))

    def _prepare(self, local_address: str) -> EndpointAddress:
        error = ctypes.create_string_buffer(ERROR_BYTES)
        ours = RdmaAddress()
        device = device_choice(self._ring.rdma_device, self._ring.gid_index, local_address)
        if self._verbs.blink_verbs_prepare(self.link, *device, ours, error):
            raise TransportError(error.value.decode())
        return from_native(ours)

    def _why_down(self) -> str:
        error = ctypes.create_string_buffer(ERROR_BYTES)
        self._verbs.blink_verbs_down(self.link, error)
        return f"the connection to {self._ring} is down: {error.value.decode(errors='replace')}"

    def claim_lease(self, n_leases: int) -> int | None:
        """The lease that came with the connection."""
        assert self._grant is not None
        return self._grant.lease

    def is_outdated(self) -> bool:
        """Never: a backend that ends breaks the connection, and `reconnect` meets the one that came after."""
        return False

    def backend_lives(self) -> bool:
        return False

    def _hang_up(self, why: str) -> None:
        # The link first: it must not be used while the backend destroys its end.
        self._verbs.blink_verbs_break(self.link, why.encode())
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def close(self) -> None:
        with self._connecting:
            if self._closed:
                return
            self._closed = True
            if self._exchange is not None:
                self._exchange.stop_keeping()
            self._native.blink_link_close(self.link)  # while the backend's end is still there
            self.link = 0
            if self._exchange is not None:
                self._exchange.close()
