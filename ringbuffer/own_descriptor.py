"""Descriptors of files whose locks say what this process holds, and that it lives.

A process that is forked from this one, as by Python's multiprocessing, inherits the descriptors, and a lock
lasts until the last copy of its descriptor is closed: the child would keep what this process has given back,
and what it had when it was killed. So a child closes its copies. It does not unlock them, which would unlock
them here as well (fcntl(2), flock(2)).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

_opening = threading.RLock()  # no other thread forks while a descriptor is open and not known, or the reverse
_open: weakref.WeakSet[OwnDescriptor] = weakref.WeakSet()


class OwnDescriptor:
    """`number` is what `opened` returns, a descriptor, until `close`; then, and in forked processes, -1.

    Raises what `opened` does.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        with _opening:
            self.number = opened()
            _open.add(self)

    def close(self) -> None:
        """Harmless twice."""
        with _opening:
            number, self.number = self.number, -1
            if number >= 0:
                os.close(number)


def _close_in_child() -> None:
    _opening.release()
    for one in list(_open):
        one.close()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child)
