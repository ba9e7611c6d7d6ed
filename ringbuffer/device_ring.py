"""The file that stands for a ring in GPU memory: the ring's constant header, then how to open the memory.

It has the name that a ring in host memory would have, so `--ring NAME` means either; its bytes are also what
the lease locks lock (F1). The memory itself is reached with CUDA alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi
from ringbuffer.attachment import checked_geometry
from ringbuffer.name import RingError, RingName, open_ring
from ringbuffer.region import PAGE, Geometry

MARK = 0x4350495F4B4E4C42  # "BLNK_IPC" in memory order
HANDLE_BYTES = 64  # CUipcMemHandle
UUID_BYTES = 16  # CUuuid
Opening = np.dtype([("mark", "<u8"), ("uuid", "u1", (UUID_BYTES,)), ("handle", "u1", (HANDLE_BYTES,))])
FILE_BYTES = PAGE + Opening.itemsize


@dataclass(frozen=True)
class DeviceRing:
    """A ring in the memory of the GPU with this `uuid`, which `handle` opens from another process."""

    geometry: Geometry
    uuid: bytes
    handle: bytes


def write(path: Path, header: NDArray[np.void], uuid: bytes, handle: bytes) -> RingName:
    """Creates the file at `path`, whole or not at all; it exists until the name is closed.

    Raises RingError when a live backend serves under this name.
    """
    opening = np.zeros(1, Opening)
    opening["mark"] = MARK
    opening["uuid"] = np.frombuffer(uuid, np.uint8)
    opening["handle"] = np.frombuffer(handle, np.uint8)
    name = RingName(path)
    try:
        with open(name.descriptor, "wb", closefd=False) as file:
            file.write(header.tobytes().ljust(PAGE, b"\0") + opening.tobytes())
        name.publish()
    except (OSError, RingError):
        name.close()
        raise
    return name


def read(path: Path) -> DeviceRing | None:
    """What the file at `path` says; None when there is none, or it is a ring in host memory.

    Raises RingError when the ring is of another version of ring.h, or cannot be read.
    """
    try:
        descriptor = open_ring(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size != FILE_BYTES:
            return None
        raw = file.read(FILE_BYTES)
    opening = np.frombuffer(raw, Opening, offset=PAGE)[0]
    if int(opening["mark"]) != MARK:
        return None
    geometry = checked_geometry(path, np.frombuffer(raw, abi.Header, count=1)[0])
    return DeviceRing(geometry, opening["uuid"].tobytes(), opening["handle"].tobytes())
