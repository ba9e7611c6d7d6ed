"""A lease: the right to use a share of the ring's slots, granted by the scheduler for one epoch (ring.h,
"lease word").

1. The transport's lock picks an index that no other frontend holds (F1).
2. A new epoch in the lease word asks for it; the scheduler cancels what an earlier holder left, empties the
slots and acknowledges.
3. The token reader's thread keeps it alive with beats; a lease that is lost is asked for again with the next
epoch.
"""

from __future__ import annotations

import time

import numpy as np

from nic_frontend.transport.base import Transport, TransportError, read_header, read_word
from ringbuffer import abi
from ringbuffer.words import name_of, pair_word

POLL_S = 0.002


class Lease:
    """The lease that this process holds on the ring behind `transport`.

    Raises TransportError when all are taken.
    """

    def __init__(self, transport: Transport) -> None:
        header = read_header(transport)
        n_leases = int(header["n_leases"])
        index = transport.claim_lease(n_leases)
        if index is None:
            raise TransportError(
                f"all {n_leases} lease(s) of the ring are held by running frontends: "
                "stop one, or start the backend with more: --leases N"
            )
        self.index = index
        self.n_slots = int(header["n_slots"]) // n_leases
        self.epoch = 0
        self.beat = 0
        self._transport = transport
        line = int(header["leases_offset"]) + index * abi.Lease.itemsize
        self._word, self._timeout = (line + offset_of(name) for name in ("word", "timeout_ns"))
        self._ack = int(header["lease_acks_offset"]) + index * abi.LeaseAck.itemsize
        self._deadline = 0.0

    def ask(self, timeout_s: float) -> None:
        """Asks for the lease with a fresh epoch; `granted` tells when it is there."""
        used = max(low(read_word(self._transport, offset)) for offset in (self._word, self._ack))
        self.epoch = (used + 1) & 0xFFFFFFFF or 1
        self.beat = 0
        self._deadline = time.monotonic() + timeout_s
        kept_ns = self._transport.capabilities.lease_timeout_ns
        self._transport.write(self._timeout, kept_ns.to_bytes(8, "little"))
        self._beat()

    def granted(self) -> bool:
        """Beats and looks once. Raises TransportError when the time to answer has passed."""
        self._beat()
        word = read_word(self._transport, self._ack)
        if word == pair_word(self.epoch, abi.LeaseState.GRANTED):
            return True
        if time.monotonic() > self._deadline:
            raise TransportError(
                f"the scheduler did not grant lease {self.index} (epoch {self.epoch}): {self._why()}"
            )
        return False

    def acquire(self, timeout_s: float) -> None:
        """Asks and waits. Raises TransportError after `timeout_s`."""
        self.ask(timeout_s)
        while not self.granted():
            time.sleep(POLL_S)

    def give_back(self) -> None:
        """Tells the scheduler that nobody uses these slots any more."""
        self._transport.publish(self._word, 0)

    def _beat(self) -> None:
        self.beat = (self.beat + 1) & 0xFFFFFFFF
        self._transport.publish(self._word, pair_word(self.epoch, self.beat))

    def _why(self) -> str:
        before = read_header(self._transport)
        time.sleep(0.05)
        after = read_header(self._transport)
        alive = before["heartbeat"] != after["heartbeat"]
        return f"its phase is {phase_name(after)}, its heartbeat {'changes' if alive else 'stands still'}"


def offset_of(field: str) -> int:
    return int(abi.Lease.fields[field][1])  # type: ignore[index]


def low(word: int) -> int:
    return word & 0xFFFFFFFF


def phase_name(header: np.void) -> str:
    return name_of(abi.Phase, int(header["phase"]))
