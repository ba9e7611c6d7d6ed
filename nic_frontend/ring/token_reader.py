"""The token reader (paper section 4.4) as the event loop sees it: the native thread of native/token_reader.h
behind an eventfd.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from nic_frontend.abi import EVENT_TOKENS_MAX, LINK_DOWN, Health, ReaderOptions
from nic_frontend.library import EVENT_DTYPE, library
from nic_frontend.options import FrontendOptions
from nic_frontend.ring.lease import Lease
from nic_frontend.transport.base import Transport, TransportError, read_header
from ringbuffer import abi

MAX_EVENTS = 4096
MAX_TOKENS = 16384
assert MAX_TOKENS >= EVENT_TOKENS_MAX

EventRow = tuple[int, int, int, int, int, int, int]  # the fields of an abi.Event


class TokenReader:
    """Owns the native reader. All methods are called from the event loop's thread."""

    def __init__(self, transport: Transport, lease: Lease, options: FrontendOptions) -> None:
        self._native = library()
        self._lease = lease
        self._transport = transport
        header = read_header(transport)
        self._heap_at = int(header["prompts_offset"]) + 4 * int(header["prompt_heap"]) * lease.index
        wanted = ReaderOptions(
            lease=lease.index,
            records_per_cycle=options.records_per_cycle,
            spin_ns=int(options.poll_spin_us * 1e3),
            min_sleep_ns=int(options.poll_min_us * 1e3),
            max_sleep_ns=int(options.poll_max_us * 1e3),
            beat_ns=abi.LEASE_BEAT_NS // 2,
            heartbeat_timeout_ns=abi.HEARTBEAT_TIMEOUT_NS,
            torn_timeout_ns=abi.TORN_PAYLOAD_TIMEOUT_NS,
        )
        self._reader = self._native.blink_reader_create(transport.link, ctypes.byref(wanted))
        if not self._reader:
            raise TransportError("cannot create the token reader: too many open files, or the link is down")
        self._events = np.zeros(MAX_EVENTS, dtype=EVENT_DTYPE)
        self._tokens = np.zeros(MAX_TOKENS, dtype=np.uint32)
        self._drain_arguments = (
            self._reader,
            self._events.ctypes.data,
            MAX_EVENTS,
            self._tokens.ctypes.data,
            MAX_TOKENS,
        )
        self.descriptor: int = self._native.blink_reader_eventfd(
            self._reader
        )  # readable when `drain` has something

    @property
    def handle(self) -> int:
        """Address of the native reader (struct blink_reader), valid until `close`."""
        return int(self._reader)

    def open(self) -> None:
        """Starts reading under the lease just granted; every slot is free.

        Raises TransportError if they are not.
        """
        wrong = self._native.blink_reader_open(self._reader, self._lease.epoch, self._lease.beat)
        if wrong == LINK_DOWN:
            raise TransportError("the connection to the backend broke while the lease was taken over")
        if wrong:
            raise TransportError(
                f"the scheduler granted lease {self._lease.index} with {wrong} slot(s) still in use: "
                "restart the backend"
            )

    def submit(
        self, slots: NDArray[np.uint32], descriptors: NDArray[np.void], prompts: NDArray[np.uint32]
    ) -> bool:
        """Submits a burst: `descriptors` is abi.Descriptor [n], completed in place; `prompts` holds the
        prompts back to back.

        False when the lease is lost or the link is down.
        """
        n: int = self._native.blink_reader_submit(
            self._reader, len(slots), slots.ctypes.data, descriptors.ctypes.data, prompts.ctypes.data
        )
        return n == len(slots)

    def write_prompt_heap(self, offset: int, payload: bytes, room: int) -> None:
        """Writes into the lease's heap of prompts, where what is submitted later finds it.

        `offset` and `room` are in words; the payload may be followed by anything within `room`.
        """
        self._transport.write(self._heap_at + 4 * offset, payload, 4 * room)

    def cancel(self, slot: int, sequence: int) -> None:
        self._native.blink_reader_cancel(self._reader, slot, sequence)

    def drain(self) -> tuple[list[EventRow], list[int], bool]:
        """What arrived: events, their tokens back to back, and whether there may be more."""
        n: int = self._native.blink_reader_drain(*self._drain_arguments)
        events: list[EventRow] = self._events[:n].tolist()
        n_tokens = sum(event[2] for event in events)
        more = n == MAX_EVENTS or n_tokens > MAX_TOKENS - EVENT_TOKENS_MAX
        return events, self._tokens[:n_tokens].tolist(), more

    def health(self) -> Health:
        found = Health()
        self._native.blink_reader_health(self._reader, ctypes.byref(found))
        return found

    def close(self) -> None:
        if self._reader:
            self._native.blink_reader_destroy(self._reader)
            self._reader = None
