"""Clears prompts in the ring when nobody needs them any more (--scrub): its memory outlives them."""

from __future__ import annotations

from nic_frontend.transport.base import Transport, read_header
from ringbuffer.heap import Place

TOKEN_BYTES = 4
PIECE_BYTES = 1 << 20


class Scrubber:
    """Of the prompts of one lease, which the caller holds."""

    def __init__(self, transport: Transport, lease: int) -> None:
        header = read_header(transport)
        self._transport = transport
        self._bytes = int(header["prompt_heap"]) * TOKEN_BYTES
        self._begin = int(header["prompts_offset"]) + lease * self._bytes

    def everything(self) -> None:
        """All prompts: those that a frontend before, which was killed, has left."""
        self._clear(self._begin, self._bytes)

    def place(self, place: Place) -> None:
        """The prompt of a request whose slot is EMPTY."""
        self._clear(self._begin + place.prompt_offset * TOKEN_BYTES, place.prompt_room * TOKEN_BYTES)

    def _clear(self, offset: int, n_bytes: int) -> None:
        for at in range(0, n_bytes, PIECE_BYTES):
            self._transport.write(offset + at, bytes(min(PIECE_BYTES, n_bytes - at)))
