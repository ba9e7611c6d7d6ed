"""What both planes' native libraries for RDMA share: addresses, errors, what to do when one is missing."""

from __future__ import annotations

import ctypes
from pathlib import Path

from ringbuffer.rdma.abi import RdmaAddress
from ringbuffer.rdma.messages import EndpointAddress

ERROR_BYTES = 512


class VerbsMissing(RuntimeError):
    """The native library for RDMA was not built, or libibverbs is not installed."""


def to_native(address: EndpointAddress) -> RdmaAddress:
    found = RdmaAddress(lid=address.lid, mtu=address.mtu, reads=address.reads)
    found.gid[:] = address.gid
    found.numbers[:] = address.numbers
    found.first_packets[:] = address.first_packets
    return found


def from_native(address: RdmaAddress) -> EndpointAddress:
    return EndpointAddress(
        bytes(address.gid),
        address.lid,
        address.mtu,
        address.reads,
        tuple(address.numbers),
        tuple(address.first_packets),
    )


def device_choice(device: str | None, gid_index: int | None, local_address: str) -> tuple[bytes, int, bytes]:
    """The three arguments by which the native libraries choose a device (endpoint.h, DeviceChoice)."""
    return (device or "").encode(), -1 if gid_index is None else gid_index, local_address.encode()


def load(path: Path) -> ctypes.CDLL:
    """Raises VerbsMissing."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        advice = (
            "install libibverbs1"
            if path.exists()
            else "install libibverbs-dev, then the package again (in a checkout: run scripts/setup)"
        )
        raise VerbsMissing(f"cannot load {path.name} ({error}): {advice}") from error
