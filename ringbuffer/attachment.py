"""A process attaches itself to the ring of a backend: it maps the file, and may write what is its own."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np

from ringbuffer import abi
from ringbuffer.name import RingError, open_ring
from ringbuffer.region import PAGE, Geometry, Region

FRONTENDS_OWN = ("leases", "requests", "descriptors", "prompts", "kv_events")  # sections that they write
PROT_READ = 1  # asm-generic/mman-common.h


def attach(path: Path, *, writable: bool = False) -> Region:
    """Maps an existing ring: what backend and scheduler own (R1) cannot be written, unless all is `writable`.

    Raises RingError when there is none, it is another user's, or it was built from another ring.h.
    """
    try:
        descriptor = open_ring(path, os.O_RDWR)
    except FileNotFoundError as error:
        raise RingError(
            f"no ring at {path}: start `blink backend` first, with the same --ring name"
        ) from error
    try:
        size = os.fstat(descriptor).st_size
        if size < PAGE:
            raise RingError(f"{path} is not a ring (only {size} bytes)")
        with mmap.mmap(descriptor, PAGE, access=mmap.ACCESS_READ) as page:
            header = np.frombuffer(bytes(page[: abi.Header.itemsize]), dtype=abi.Header)[0]
        geometry = checked_geometry(path, header)
        if size < geometry.offsets()["end"]:
            raise RingError(
                f"{path} has {size} bytes of {geometry.offsets()['end']}: it is truncated, or its ring lies "
                "in GPU memory, which the transport cuda_ipc reaches"
            )
        mapping = mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
    region = Region(path, mapping, geometry, name=None)
    if not writable:
        _protect(region)
    return region


def checked_geometry(path: Path, header: np.void) -> Geometry:
    """The geometry in a header found at `path`. Raises RingError when it is not of this version of ring.h."""
    if int(header["magic"]) != abi.MAGIC:
        raise RingError(f"{path} is not a ring, or its backend is still creating it")
    if int(header["abi_version"]) != abi.ABI_VERSION or int(header["layout_hash"]) != abi.RING_LAYOUT_HASH:
        raise RingError(
            f"{path} has ring layout {int(header['layout_hash']):016x} (ABI {int(header['abi_version'])}), "
            f"this frontend has {abi.RING_LAYOUT_HASH:016x} (ABI {abi.ABI_VERSION}): "
            "run the same version of blink on both sides"
        )
    geometry = Geometry(*(int(header[field.name]) for field in fields(Geometry)))
    if geometry.offsets()["end"] != int(header["region_bytes"]):
        raise RingError(
            f"the header of {path} contradicts itself: its sections take {geometry.offsets()['end']} bytes, "
            f"it says {int(header['region_bytes'])}"
        )
    return geometry


def _protect(region: Region) -> None:
    """Makes the sections that no frontend writes read-only: a stray store then ends this process, and forges
    no other's answers."""
    for (name, begin), (_, end) in pairwise(region.geometry.offsets().items()):
        if name == "kv_events":
            begin += PAGE  # the first one has the reader's word
        elif name in FRONTENDS_OWN:
            continue
        else:
            getattr(region, name).flags.writeable = False
        _make_read_only(region.address + begin, end - begin)
    region.kv_event_records.flags.writeable = False


def _make_read_only(address: int, n_bytes: int) -> None:
    """Whole pages of this process (mprotect(2), which Python's mmap leaves out). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if n_bytes and libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), PROT_READ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
