"""What the frontends of a host tell each other of their figures: a scrape shows all, whichever answers it.

A file in memory beside the ring has a block for each lease. Its frontend writes its figures there once a
second; who is scraped reads the others'. A block that has not changed for STALE_S belongs to nobody any more.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import zlib
from pathlib import Path

from nic_frontend.metrics import Figures
from nic_frontend.options import VerbsRing
from ringbuffer.abi import MAX_LEASES
from ringbuffer.region import SHM_DIRECTORY

BLOCK_BYTES = 32 << 10
HEAD = struct.Struct(
    "<IIQ"
)  # length and CRC-32 of the figures, and when they were written (CLOCK_MONOTONIC, ns)
STALE_S = 10.0
READS = 3  # of a block that is being written


def figures_path(ring: Path | VerbsRing) -> Path:
    """The same for all frontends of a ring on this host."""
    if isinstance(ring, Path):
        return ring.with_name(f"{ring.name}.figures")
    return SHM_DIRECTORY / f"blink-{ring.host.replace(':', '.')}-{ring.port}.figures"


class SharedFigures:
    """The block of `lease` and the others', in the file at `path`. Raises OSError when that cannot be had."""

    def __init__(self, path: Path, lease: int) -> None:
        self._path, self._lease = path, lease
        self._attach()

    def _attach(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, MAX_LEASES * BLOCK_BYTES)
            self._inode = os.fstat(descriptor).st_ino
            self._memory = mmap.mmap(descriptor, MAX_LEASES * BLOCK_BYTES)
        finally:
            os.close(descriptor)

    def publish(self, figures: Figures) -> None:
        if self._is_replaced():
            self._memory.close()
            self._attach()
        text = json.dumps(figures).encode()
        if len(text) > BLOCK_BYTES - HEAD.size:
            raise ValueError(f"{len(text)} bytes of figures do not fit a block")
        at = self._lease * BLOCK_BYTES
        self._memory[at + HEAD.size : at + HEAD.size + len(text)] = text
        HEAD.pack_into(self._memory, at, len(text), zlib.crc32(text), time.monotonic_ns())

    def others(self) -> dict[int, Figures]:
        """By lease, those of every other frontend that lives."""
        found = {lease: self._read(lease) for lease in range(MAX_LEASES) if lease != self._lease}
        return {lease: figures for lease, figures in found.items() if figures is not None}

    def _read(self, lease: int) -> Figures | None:
        at = lease * BLOCK_BYTES
        for _ in range(READS):
            length, crc, when = HEAD.unpack_from(self._memory, at)
            if length == 0 or time.monotonic_ns() - when > STALE_S * 1e9:
                return None
            text = self._memory[at + HEAD.size : at + HEAD.size + length]
            if zlib.crc32(text) == crc:
                figures: Figures = json.loads(text)
                return figures
        return None

    def _is_replaced(self) -> bool:
        """Whether the last frontend before us has removed the file, or another has made it anew."""
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Empties the block. The last one removes the file."""
        HEAD.pack_into(self._memory, self._lease * BLOCK_BYTES, 0, 0, 0)
        is_last = not self.others() and not self._is_replaced()
        self._memory.close()
        if is_last:
            self._path.unlink(missing_ok=True)
