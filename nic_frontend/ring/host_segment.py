"""Memory that a ring's frontends on a host share: their figures, and what is left to each API key."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nic_frontend.options import VerbsRing
from ringbuffer.region import SHM_DIRECTORY

LOCK_S = 0.005  # a frontend that is suspended while it has the lock holds nobody up for longer


def segment_path(ring: Path | VerbsRing) -> Path:
    """The same for all frontends of a ring on this host."""
    if isinstance(ring, Path):
        return ring.with_name(f"{ring.name}.frontends")
    return SHM_DIRECTORY / f"blink-{ring.host.replace(':', '.')}-{ring.port}.frontends"


class HostSegment:
    """The file at `path` in memory, `size` bytes, zero at first. Raises OSError when it cannot be had."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._descriptor = -1
        self.refresh()

    def refresh(self) -> None:
        """Takes the file that is at the path now: the last frontend before us may have removed ours."""
        if self._descriptor >= 0 and not self.is_replaced():
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            state = os.fstat(descriptor)
            if state.st_uid != os.geteuid() or state.st_mode & 0o077:
                raise PermissionError(f"{self._path} belongs to others, or is open to them: remove it")
            os.posix_fallocate(descriptor, 0, self._size)  # else a full /dev/shm would be a signal later
            memory = mmap.mmap(descriptor, self._size)
        except BaseException:
            os.close(descriptor)
            raise
        self._release()
        self._descriptor, self.memory = descriptor, memory

    def is_replaced(self) -> bool:
        try:
            return not os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Among the frontends of the host; after LOCK_S without it."""
        deadline, held = time.monotonic() + LOCK_S, False
        while not held and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
        try:
            yield
        finally:
            if held:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self, remove: bool) -> None:
        """`remove` the file as well, when it is still ours."""
        if remove and not self.is_replaced():
            self._path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
