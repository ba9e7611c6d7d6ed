"""What processes of a ring leave in memory when they are killed."""

from __future__ import annotations

from pathlib import Path

from nic_frontend.ring.host_segment import segment_path


def remove_ring(ring: Path) -> None:
    """The ring, and its frontends' segment, where they are still there. Nobody may use them any more."""
    for left in (ring, segment_path(ring)):
        left.unlink(missing_ok=True)
