"""The lock that gives a lease index one holder on the ring's host (F1): a byte of the ring's file, locked."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ringbuffer.byte_lock import lock_byte
from ringbuffer.name import open_ring
from ringbuffer.own_descriptor import OwnDescriptor


class LeaseLock:
    """At most one lease index of the ring at `path`, held from a successful `claim` until `close`,
    by this process alone: not by those that are forked from it.

    Raises FileNotFoundError, and RingError where the file is no ring of this user's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = OwnDescriptor(lambda: open_ring(path, os.O_RDWR))

    def claim(self, n_leases: int) -> int | None:
        """The first index that nobody else holds, or None."""
        return next((i for i in range(n_leases) if self.claim_index(i)), None)

    def claim_index(self, index: int) -> bool:
        """Whether `index` was free and is now held."""
        return lock_byte(self._descriptor.number, index)

    def is_outdated(self) -> bool:
        """Whether `path` leads to another file by now: a later backend's ring."""
        try:
            return not os.path.samestat(os.fstat(self._descriptor.number), self._path.stat())
        except FileNotFoundError:
            return False

    def backend_lives(self) -> bool:
        """Whether a process holds the lock on the file that its backend holds until it ends (R9)."""
        descriptor = os.open(f"/proc/self/fd/{self._descriptor.number}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def close(self) -> None:
        self._descriptor.close()
