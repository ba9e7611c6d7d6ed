"""What the exchange of a backend can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RdmaOptions:
    """Where frontends on other hosts set themselves up."""

    host: str  # to listen on, and unless it is a wildcard, whose RDMA device to use
    port: int  # 0: the system picks one
    key_file: Path | None = None  # default: $BLINK_RING_KEY
    rdma_device: str | None = None  # default: the one whose GID is `host`, else the first active one
    gid_index: int | None = None  # of that device; default: chosen like the device
