"""Leases whose frontends have died: who learns of a death gives them back, long before they time out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringbuffer.attachment import attach
from ringbuffer.lease_lock import LeaseLock


def give_back_abandoned(path: Path) -> int:
    """Gives back every lease of the ring at `path` that nobody holds and that was not given back: the
    scheduler then cancels what is open under it (R6). Returns how many.

    It holds a lease while it writes the word (F1), so it is no other frontend's (R1).

    Raises RingError when no ring lies there in host memory.
    """
    ring = attach(path)
    lock = LeaseLock(path)
    try:
        asked = np.flatnonzero(ring.leases["word"][: ring.geometry.n_leases]).tolist()
        abandoned = [index for index in asked if lock.claim_index(index)]
        for index in abandoned:
            ring.leases["word"][index] = 0
        return len(abandoned)
    finally:
        lock.close()
        ring.close()
