"""What the frontends of a host tell each other of their figures: a scrape shows all, whichever answers it.

Each lease has a block of their common memory. Its frontend writes its figures there once a second; who is
scraped reads the others'. A block that has not changed for STALE_S belongs to nobody any more.
"""

from __future__ import annotations

import json
import struct
import time
import zlib

from nic_frontend.observe.metrics import Figures
from nic_frontend.ring.host_segment import HostSegment
from ringbuffer.abi import MAX_LEASES

BLOCK_BYTES = 32 << 10
HALF_BYTES = BLOCK_BYTES // 2  # written in turns: one is whole at any time
FIGURES_BYTES = MAX_LEASES * BLOCK_BYTES  # at the beginning of the segment
HEAD = struct.Struct(
    "<IIQ"
)  # length and CRC-32 of the figures, and when they were written (CLOCK_MONOTONIC, ns)
STALE_S = 10.0


class SharedFigures:
    """The block of `lease`, and the others'."""

    def __init__(self, segment: HostSegment, lease: int) -> None:
        self._segment, self._lease, self._published = segment, lease, 0

    def publish(self, figures: Figures) -> None:
        self._segment.refresh()
        text = json.dumps(figures).encode()
        if len(text) > HALF_BYTES - HEAD.size:
            raise ValueError(f"{len(text)} bytes of figures do not fit a block")
        self._published += 1
        at, memory = _halves(self._lease)[self._published % 2], self._segment.memory
        memory[at + HEAD.size : at + HEAD.size + len(text)] = text
        HEAD.pack_into(memory, at, len(text), zlib.crc32(text), time.monotonic_ns())

    def others(self) -> dict[int, Figures]:
        """By lease, those of every other frontend that lives."""
        found = {lease: self._read(lease) for lease in range(MAX_LEASES) if lease != self._lease}
        return {lease: figures for lease, figures in found.items() if figures is not None}

    def _read(self, lease: int) -> Figures | None:
        memory, newest = self._segment.memory, (0, b"")
        for at in _halves(lease):
            length, crc, when = HEAD.unpack_from(memory, at)
            if not 0 < length <= HALF_BYTES - HEAD.size or time.monotonic_ns() - when > STALE_S * 1e9:
                continue
            text = memory[at + HEAD.size : at + HEAD.size + length]
            if zlib.crc32(text) == crc:  # else it is being written
                newest = max(newest, (when, text))
        if not newest[1]:
            return None
        figures: Figures = json.loads(newest[1])
        return figures

    def clear(self) -> bool:
        """Empties the block. Whether no other frontend is there."""
        for at in _halves(self._lease):
            HEAD.pack_into(self._segment.memory, at, 0, 0, 0)
        return not self.others()


def _halves(lease: int) -> tuple[int, int]:
    return lease * BLOCK_BYTES, lease * BLOCK_BYTES + HALF_BYTES
