"""The name of the ring of a process that starts a backend for itself alone.

A host may have several such processes, and none has a port from which a name could follow. So each takes the
first name whose lock nobody holds. The kernel drops the lock with the process, however that ends: the next
one that starts takes the name over, and removes what a killed one left under it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from blink.errors import CommandError
from nic_frontend.ring.host_segment import segment_path
from ringbuffer.name import RingError, clear_name
from ringbuffer.own_descriptor import OwnDescriptor
from ringbuffer.region import ring_path

MOST = 256  # processes of a host that have the same kind of names


class RingClaim:
    """The right to a ring's name, which begins with `prefix`, until `release` or the end of this process.
    `whose` says who has such names.

    Raises CommandError when every name is taken.
    """

    def __init__(self, prefix: str, whose: str) -> None:
        for self.name in (f"{prefix}-{n}" for n in range(MOST)):
            self._file = ring_path(self.name).with_name(f"{ring_path(self.name).name}.owner")
            if self._lock():
                if self._clear():
                    return
                self.release()
        raise CommandError(f"{MOST} {whose} run on this host: attach to a ring that runs, or end one of them")

    def _lock(self) -> bool:
        """Whether nobody else has the name."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = OwnDescriptor(lambda: os.open(self._file, flags, 0o600))
        except OSError:  # another user's
            return False
        with contextlib.suppress(OSError):  # held, or removed meanwhile by whoever held it
            fcntl.flock(self._descriptor.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._descriptor.number), self._file.stat()):
                return True
        self._descriptor.close()
        return False

    def _clear(self) -> bool:
        """Removes what is left under the name. False: a killed process's backend has not ended yet."""
        ring = ring_path(self.name)
        try:
            clear_name(ring)
        except RingError:
            return False
        segment_path(ring).unlink(missing_ok=True)
        return True

    def release(self) -> None:
        self._file.unlink(missing_ok=True)
        self._descriptor.close()
