"""Locks on bytes of a file, by which processes of a host tell who holds what, and who still lives.

Open-file-description locks: the kernel drops them with the process, they survive another close of the same
file by this process, and they keep two holders of one process apart (fcntl(2), "Open file description
locks").
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

FLOCK = struct.Struct("hhqqi4x")  # struct flock, as the kernel lays it out on 64-bit Linux


def _of_byte(index: int) -> bytes:
    return FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, index, 1, 0)


def lock_byte(descriptor: int, index: int) -> bool:
    """Whether the byte was free and is now held until the descriptor is closed. The file may be shorter."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _of_byte(index))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def is_byte_locked(descriptor: int, index: int) -> bool:
    """Whether somebody holds the byte who opened the file by themselves."""
    found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _of_byte(index))
    kind: int = FLOCK.unpack(found)[0]
    return kind != fcntl.F_UNLCK
