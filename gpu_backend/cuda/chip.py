"""What decides which kernels a GPU can run: its compute capability.

Hopper's kernels use wgmma and its amount of shared memory. Everything else, the scheduler first, needs what
all of SERVED have; on GPUs other than Hopper the portable kernels serve, which nobody has measured yet
(docs/portability.md).
"""

from __future__ import annotations

from typing import NamedTuple

Capability = tuple[int, int]  # major and minor

HOPPER: Capability = (9, 0)
SERVED: dict[Capability, str] = {
    (8, 9): "Ada: L4, L40S, RTX 40",
    HOPPER: "Hopper: H100, H200, GH200",
    (10, 0): "Blackwell: B200, GB200",
    (12, 0): "Blackwell: RTX 50, RTX PRO",
}
FIRST_WITH_OVERLAP: Capability = (9, 0)  # programmatic dependent launch, and clusters of blocks


class Chip(NamedTuple):
    """What the choice of kernels must know of a GPU."""

    multiprocessors: int
    capability: Capability = HOPPER


def kernels_for(capability: Capability) -> str:
    """Which kernels serve on such a GPU, in one line."""
    if capability == HOPPER:
        return "those made for Hopper"
    return "portable ones, for dense models in bf16 and fp16; nobody has run them on this GPU yet"


def arch_of(capability: Capability) -> str:
    """What NVRTC compiles for: "sm_90a", with the instructions that only Hopper has, or "sm_120"."""
    major, minor = capability
    return f"sm_{major}{minor}a" if capability == HOPPER else f"sm_{major}{minor}"
